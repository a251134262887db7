/* tests/data/test_mixture.c - shares of sources are kept at every sample, and survive a change of weights. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/rng.h"
#include "batch/mixture.h"
#include "batch/sampler.h"
#include "tests/tap.h"
#include "train/mixing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 12 };
static lm_error err;

static uint64_t random_below(uint64_t *counter, uint64_t n)
{
  uint32_t w[4];
  lm_random_words(20, LM_STREAM_SAMPLE, (*counter)++, 0, w);
  return (((uint64_t)w[0] << 32) | w[1]) % n;
}

/* The first n samples: the largest distance of a count from n times the share. 1e9 where an index is not the count. */
static double worst_distance(const uint64_t *weight, size_t sources, uint64_t samples)
{
  static const uint64_t names[MOST] = {10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21};
  lm_mixture m = {0};
  lm_mixture_walk *w = NULL;
  uint64_t count[MOST] = {0}, sum = 0;
  double worst = 0;
  for (size_t i = 0; i < sources; i++) sum += weight[i];
  if (lm_mixture_change(&m, 0, names, weight, sources, &err) != LM_OK || lm_mixture_walk_new(&w, &m, &err) != LM_OK)
    return 1e9;
  for (uint64_t n = 0; n < samples; n++) {
    lm_draw d = lm_mixture_draw(w, n);
    if (d.index != count[d.source]++) worst = 1e9;
    for (size_t i = 0; i < sources; i++) {
      double off = fabs((double)count[i] - (double)(n + 1) * (double)weight[i] / (double)sum);
      if (off > worst) worst = off;
    }
  }
  lm_mixture_walk_free(w);
  lm_mixture_free(&m);
  return worst;
}

static void check_shares(void)
{
  uint64_t c = 0, weight[MOST];
  double worst = 0;
  for (int round = 0; round < 300; round++) {
    size_t n = 1 + random_below(&c, MOST);
    uint64_t scale = (uint64_t[]){3, 20, 1000, 1000000007}[round % 4];
    for (size_t i = 0; i < n; i++) weight[i] = 1 + random_below(&c, scale);
    if (n > 2 && round % 3 == 0) weight[1] = 0;
    if (round % 5 == 0) weight[0] *= 1000;
    worst = fmax(worst, worst_distance(weight, n, 3000));
  }
  tap_ok(worst < 1, "300 mixtures of up to %d sources: no count is ever 1 off (the worst is %.3f off)", MOST, worst);
  uint64_t half[] = {1, 1}, three[] = {5, 3, 2};
  tap_ok(worst_distance(half, 2, 1000) <= 0.5, "two halves alternate");
  tap_ok(worst_distance(three, 3, 1000) <= 0.75, "three sources stay within 3/4");
  uint64_t large[] = {LM_MOST_WEIGHT - 3, 1, 2};
  tap_ok(worst_distance(large, 3, 1000) < 1, "weights of 53 bits");
}

/* Any order of questions has the answers of the endless sequence. */
static void check_random_access(void)
{
  static const uint64_t names[] = {7, 8, 9}, weight[] = {70, 20, 11}; /* no common divisor: a period of 101 */
  enum { N = 1000 };
  lm_draw in_order[N];
  lm_mixture m = {0};
  lm_mixture_walk *w = NULL;
  uint64_t c = 1000;
  bool same = lm_mixture_change(&m, 0, names, weight, 3, &err) == LM_OK && lm_mixture_walk_new(&w, &m, &err) == LM_OK;
  for (uint64_t i = 0; same && i < N; i++) in_order[i] = lm_mixture_draw(w, i);
  for (int i = 0; same && i < 3000; i++) {
    uint64_t at = random_below(&c, N);
    lm_draw d = lm_mixture_draw(w, at);
    same = d.source == in_order[at].source && d.index == in_order[at].index;
  }
  tap_ok(same, "samples are the same in any order of asking");
  lm_draw far = lm_mixture_draw(w, UINT64_C(101) << 40);
  tap_ok(far.source == in_order[0].source && far.index == weight[far.source] << 40, "and far on, at once");
  uint64_t drawn[3] = {0}, count[3] = {0};
  bool counted = true;
  for (uint64_t n = 0; n < N; n++) {
    counted = counted && lm_mixture_drawn(&m, n, drawn, &err) == LM_OK && memcmp(drawn, count, sizeof drawn) == 0;
    count[in_order[n].source]++;
  }
  tap_ok(counted, "what was drawn before a position is what was counted");
  lm_mixture_walk_free(w);
  lm_mixture_free(&m);
}

/* Four eras: of one source, of two, of two others, of all three. Within each epoch of a source no window comes twice.
 */
static void check_changes(void)
{
  enum { A = 41, B = 42, C = 43, N = 3000 };
  static const uint64_t windows[] = {50, 333, 1000}, one[] = {1}, two[] = {1, 3}, all[] = {2, 5, 3};
  lm_mixture m = {0};
  bool fine = lm_mixture_change(&m, 0, (uint64_t[]){A}, one, 1, &err) == LM_OK &&
              lm_mixture_change(&m, 31, (uint64_t[]){B, A}, two, 2, &err) == LM_OK &&
              lm_mixture_change(&m, 700, (uint64_t[]){B, C}, two, 2, &err) == LM_OK &&
              lm_mixture_change(&m, 1500, (uint64_t[]){A, B, C}, all, 3, &err) == LM_OK;
  tap_ok(fine && m.eras == 4 && m.sources == 3 && lm_mixture_valid(&m), "four eras of three sources");
  tap_ok(lm_mixture_change(&m, 2000, (uint64_t[]){C, A, B}, (uint64_t[]){30, 20, 50}, 3, &err) == LM_OK && m.eras == 4,
         "the same shares in another order, and in other numbers, are no change");
  lm_mixture_walk *w = NULL;
  fine = lm_mixture_walk_new(&w, &m, &err) == LM_OK;
  static bool seen[3][64][1000];
  uint64_t count[3] = {0};
  bool once = true, follows = true, absent = true;
  for (uint64_t n = 0; fine && n < N; n++) {
    lm_draw d = lm_mixture_draw(w, n);
    follows = follows && d.index == count[d.source]++;
    absent = absent && (n >= 31 || d.source == 0) && (n < 700 || n >= 1500 || d.source != 0);
    uint64_t window = lm_sample_window(5, d.source, windows[d.source], d.index);
    bool *place = &seen[d.source][d.index / windows[d.source]][window];
    once = once && !*place;
    *place = true;
  }
  tap_ok(follows, "each source goes on where it was");
  tap_ok(absent, "what is not named is not drawn");
  tap_ok(once, "no window comes twice in an epoch of its source");
  uint64_t since[3];
  memcpy(since, m.drawn + 3 * 3, sizeof since);
  tap_ok(count[0] - since[0] == 300 && count[1] - since[1] == 750 && count[2] - since[2] == 450,
         "and from the change on the shares are the new ones: 2, 5 and 3 of ten");
  tap_ok(lm_mixture_change(&m, 100, (uint64_t[]){A}, one, 1, &err) == LM_OK && m.eras == 3 && m.from[2] == 100 &&
             m.sources == 3,
         "back to an earlier position: what was planned behind it is gone");
  lm_mixture_walk_free(w);
  lm_mixture_free(&m);
}

static void check_invalid(void)
{
  lm_mixture m;
  tap_ok(lm_mixture_new(&m, 2, 2, &err) == LM_OK && !lm_mixture_valid(&m), "weights of 0 are no mixture");
  for (int i = 0; i < 4; i++) m.weight[i] = 1;
  m.checksum[1] = 9;
  m.from[1] = 5;
  tap_ok(lm_mixture_valid(&m), "two eras of two sources are one");
  m.from[1] = 0;
  tap_ok(!lm_mixture_valid(&m), "eras that begin together are none");
  m.from[1] = 5;
  m.checksum[1] = 0;
  tap_ok(!lm_mixture_valid(&m), "one source twice is none");
  m.checksum[1] = 9;
  m.weight[2] = UINT64_MAX;
  tap_ok(!lm_mixture_valid(&m), "weights that overflow are none");
  lm_mixture_free(&m);
}

/* Rank 0's mixture of two eras, on all ranks. */
static lm_status share_once(void *context, lm_error *e)
{
  const lm_comm *comm = context;
  static const uint64_t names[] = {5, 6}, then[] = {1, 2}, now[] = {2, 1};
  lm_mixture m = {0};
  if (comm->rank == 0) /* made again where this call's memory fails */
    while (lm_mixture_change(&m, 0, names, then, 2, e) != LM_OK || lm_mixture_change(&m, 9, names, now, 2, e) != LM_OK)
      lm_mixture_free(&m);
  lm_status s = lm_mixing_share(comm, &m, e);
  LM_ASSERT(s != LM_OK || (m.eras == 2 && m.sources == 2 && m.from[1] == 9 && m.weight[2] == 2 && m.drawn[3] == 6 &&
                           lm_mixture_valid(&m)));
  lm_mixture_free(&m);
  return s;
}

int main(int argc, char **argv)
{
  lm_comm comm;
  tap_begin(&comm, argc, argv);
  check_shares();
  check_random_access();
  check_changes();
  check_invalid();
  for (int bad = 0; bad < comm.size; bad++) tap_alone_no_memory(lm_mixing_share, &comm, bad, share_once, &comm);
  return tap_end();
}
