/* kernels/cpu/keep.h - which elements a dropout keeps, for vectors of them. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_KERNELS_CPU_KEEP_H
#define LM_KERNELS_CPU_KEEP_H

#include "base/rng.h"
#include "kernels/cpu/vector.h"
#include "kernels/kernels.h"

/* A dropout of one sequence. */
typedef struct lm_keep {
  uint32_t key[4];    /* the first two count */
  uint32_t threshold; /* words below it take their element out */
  uint32_t place;
  float factor; /* of what stays */
} lm_keep;

static inline lm_keep lm_keep_of(const lm_dropout *how, size_t b)
{
  lm_keep k = {
      .threshold = (uint32_t)ceil((double)how->rate * 0x1p32), .place = how->place, .factor = 1 / (1 - how->rate)};
  lm_random_words(how->seed, LM_STREAM_DROPOUT, how->sample + b, 0, k.key);
  return k;
}

/** The factors of elements 4 block .. 4 block + 3 of a row -> out[0], out[step], out[2 step], out[3 step]. */
LM_INLINE void lm_keep_factors(const lm_keep *k, uint32_t part, uint32_t row, uint32_t block, float *out, size_t step)
{
  const uint32_t counter[4] = {block, row, part, k->place}, threshold = k->threshold;
  const float factor = k->factor; /* loaded whatever is chosen: a load under a condition keeps vectors away */
  uint32_t w[4];
  lm_philox4x32(counter, k->key, w);
  out[0] = w[0] < threshold ? 0 : factor;
  out[step] = w[1] < threshold ? 0 : factor;
  out[2 * step] = w[2] < threshold ? 0 : factor;
  out[3 * step] = w[3] < threshold ? 0 : factor;
}

#endif
