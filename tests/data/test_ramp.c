/* tests/data/test_ramp.c - a batch that grows: its steps against the plain sum. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "batch/ramp.h"
#include "tests/tap.h"

static void check(const char *name, lm_ramp r)
{
  uint64_t sum = 0, step = 0;
  bool rises = true, adds_up = true, inverse = true;
  for (; step < 100000 && lm_ramp_batch(&r, step) < r.full; step++) {
    uint64_t batch = lm_ramp_batch(&r, step);
    rises = rises && batch >= r.start && (step == 0 || batch >= lm_ramp_batch(&r, step - 1));
    adds_up = adds_up && lm_ramp_position(&r, step) == sum;
    inverse = inverse && lm_ramp_steps(&r, sum) == step && lm_ramp_steps(&r, sum + 1) == step + 1;
    sum += batch;
  }
  tap_ok(rises, "%s: begins with %d and never falls", name, (int)r.start);
  tap_ok(adds_up && lm_ramp_position(&r, step) == sum && lm_ramp_position(&r, step + 7) == sum + 7 * r.full,
         "%s: the position is the sum of the batches", name);
  tap_ok(inverse && lm_ramp_steps(&r, sum + 3 * r.full) == step + 3, "%s: so many samples take so many steps", name);
  /* Each of at most 64 stages ends less than a batch after its share. */
  tap_ok(sum >= r.samples && sum <= r.samples + 64 * r.full, "%s: full after %d samples, asked for %d", name, (int)sum,
         (int)r.samples);
}

int main(int argc, char **argv)
{
  lm_comm comm;
  tap_begin(&comm, argc, argv);
  lm_ramp none = {.start = 12, .full = 12};
  tap_ok(lm_ramp_batch(&none, 0) == 12 && lm_ramp_position(&none, 1000) == 12000 && lm_ramp_steps(&none, 12001) == 1001,
         "no ramp: 12 samples a step");
  /* 4, 5, 6, 7, each for ceil(30 / batch) steps: 8, 6, 5, 5 */
  lm_ramp small = {.start = 4, .full = 8, .samples = 120};
  static const uint64_t batches[] = {4, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 6, 6, 6, 6, 6, 7, 7, 7, 7, 7, 8, 8};
  bool same = true;
  for (uint64_t i = 0; i < sizeof batches / sizeof *batches; i++) same = same && lm_ramp_batch(&small, i) == batches[i];
  tap_ok(same, "4 to 8 over 120 samples: a quarter of them for each of 4 .. 7");
  tap_ok(lm_ramp_position(&small, 25) == 8 * 4 + 6 * 5 + 5 * 6 + 5 * 7 + 8, "and the sum of the first 25");
  check("4 to 8", small);
  check("1 to 1000", (lm_ramp){.start = 1, .full = 1000, .samples = 50000});
  check("16 to 257", (lm_ramp){.start = 16, .full = 257, .samples = 12345});
  check("faster than it can", (lm_ramp){.start = 3, .full = 100, .samples = 10});
  /* GPT-3's 175B: from 32 Ki tokens to 3.2 M over 12 B, in samples of 2048 */
  lm_ramp gpt3 = {.start = 16, .full = 1562, .samples = 12000000000 / 2048};
  uint64_t steps = lm_ramp_steps(&gpt3, gpt3.samples);
  tap_ok(lm_ramp_batch(&gpt3, 0) == 16 && lm_ramp_batch(&gpt3, steps + 100) == 1562 && steps > 12000000000 / 3200000,
         "a ramp as of GPT-3 takes %d steps", (int)steps);
  lm_ramp flat = {.start = 5, .full = 5, .samples = 100};
  tap_ok(lm_ramp_batch(&flat, 0) == 5 && lm_ramp_position(&flat, 9) == 45, "from 5 to 5 there is nothing to grow");
  return tap_end();
}
