/* tests/train/test_schedule.c - learning rates at the borders of the schedules. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "optim/schedule.h"
#include "tests/tap.h"

#include <math.h>

typedef struct known {
  int64_t applied;
  double lr;
} known;

static void check(const char *name, const lm_schedule *s, const known *k, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    double lr = lm_schedule_lr(s, k[i].applied);
    tap_ok(fabs(lr - k[i].lr) < 1e-10, "%s: lr(%lld) is %.6e, got %.6e", name, (long long)k[i].applied, k[i].lr, lr);
  }
}
#define CHECK(name, s, ...)                                                                                            \
  check((name), (s), (const known[]){__VA_ARGS__}, sizeof((const known[]){__VA_ARGS__}) / sizeof(known))

/* Never up after the warm-up, never below the floor, never NaN; what follows the end is what the end is. */
static void test_falls(const char *name, const lm_schedule *s)
{
  bool falls = true, stays = true;
  for (int64_t i = s->warmup; i < s->end; i++)
    falls = falls && lm_schedule_lr(s, i + 1) <= lm_schedule_lr(s, i) && lm_schedule_lr(s, i + 1) >= s->floor;
  for (int64_t i = s->end; i < s->end + 1000; i++) stays = stays && lm_schedule_lr(s, i) == lm_schedule_lr(s, s->end);
  tap_ok(falls, "%s never rises after the warm-up, and never falls below the floor", name);
  if (s->kind != LM_SCHEDULE_INVERSE_SQRT) tap_ok(stays, "%s stays where it ended", name);
}

static void test_cosine(void)
{
  lm_schedule s = {.peak = 6e-4, .floor = 6e-5, .warmup = 100, .end = 1000, .cycles = 0.5};
  /* floor + (1 + cos(pi r)) / 2 (peak - floor) at r = 0, 1/4, 1/2, 3/4, 1, to seven digits by hand */
  CHECK("cosine", &s, {100, 6e-4}, {325, 5.209188e-4}, {550, 3.3e-4}, {775, 1.390812e-4}, {1000, 6e-5}, {1500, 6e-5},
        {0, 6e-6}, {49, 3e-4}, {99, 6e-4});
  test_falls("cosine", &s);
  lm_schedule cold = {.peak = 1, .warmup = 0, .end = 10, .cycles = 0.5},
              all = {.peak = 1, .warmup = 10, .end = 10, .cycles = 0.5};
  tap_ok(lm_schedule_lr(&cold, 0) == 1, "no warm-up begins at the peak");
  tap_ok(lm_schedule_lr(&all, 9) == 1 && lm_schedule_lr(&all, 10) == 1 && lm_schedule_lr(&all, 11) == 0,
         "warm-up to the very end divides nothing by zero");
}

/* The cycles of Hugging Face's cosine schedules: one whole wave ends at the peak; with restarts each cycle falls. */
static void test_cycles(void)
{
  lm_schedule s = {.peak = 1, .floor = 0.2, .warmup = 10, .end = 410, .cycles = 1};
  CHECK("1 cycle", &s, {10, 1}, {110, 0.6}, {210, 0.2}, {310, 0.6}, {410, 1}, {500, 1});
  s.cycles = 1.5;
  CHECK("1.5 cycles", &s, {10, 1}, {10 + 400 / 6 * 2 + 1, 0.2 + 0.8 * 0.5 * (1 + cos(3 * acos(-1) * 133 / 400))},
        {410, 0.2});
  s.cycles = 4;
  s.restarts = true;
  CHECK("4 restarts", &s, {10, 1}, {60, 0.6}, {110, 1}, {160, 0.6}, {210, 1}, {310, 1}, {360, 0.6}, {410, 0.2},
        {9999, 0.2});
  double last = lm_schedule_lr(&s, 109);
  tap_ok(last > 0.2 && last < 0.201, "before a restart the rate is nearly the floor: %.6f", last);
}

static void test_others(void)
{
  lm_schedule s = {.kind = LM_SCHEDULE_LINEAR, .peak = 1, .floor = 0.2, .warmup = 10, .end = 110};
  CHECK("linear", &s, {0, 0.1}, {9, 1}, {10, 1}, {35, 0.8}, {60, 0.6}, {110, 0.2}, {1000, 0.2});
  test_falls("linear", &s);
  s.kind = LM_SCHEDULE_CONSTANT;
  CHECK("constant", &s, {0, 0.1}, {10, 1}, {60, 1}, {110, 1}, {1000, 1});
  test_falls("constant", &s);
  /* llm.c: constant to 80 %, then min + (1 - sqrt r) (max - min) */
  s = (lm_schedule){.kind = LM_SCHEDULE_WSD,
                    .peak = 1,
                    .floor = 0.2,
                    .warmup = 10,
                    .end = 1000,
                    .decay_from = 800,
                    .decay = LM_DECAY_SQRT};
  CHECK("wsd, 1 - sqrt", &s, {9, 1}, {10, 1}, {500, 1}, {800, 1}, {808, 0.84}, {850, 0.6},
        {912, 0.2 + 0.8 * (1 - sqrt(0.56))}, {1000, 0.2}, {2000, 0.2});
  test_falls("wsd, 1 - sqrt", &s);
  s.decay = LM_DECAY_LINEAR;
  CHECK("wsd, linear", &s, {800, 1}, {850, 0.8}, {900, 0.6}, {1000, 0.2}, {2000, 0.2});
  test_falls("wsd, linear", &s);
  /* Vaswani et al., eq. 3, for the n-th update: min(n / W, sqrt(W / n)) */
  s = (lm_schedule){.kind = LM_SCHEDULE_INVERSE_SQRT, .peak = 1, .warmup = 100, .end = 1000};
  CHECK("inverse square root", &s, {0, 0.01}, {99, 1}, {399, 0.5}, {899, 1.0 / 3}, {9999, 0.1});
  test_falls("inverse square root", &s);
  s.warmup = 0;
  CHECK("inverse square root without warm-up", &s, {0, 1}, {3, 0.5});
}

int main(int argc, char **argv)
{
  lm_comm comm;
  tap_begin(&comm, argc, argv);
  test_cosine();
  test_cycles();
  test_others();
  return tap_end();
}
