/* tests/kernels/random.h - reproducible random tensors. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TESTS_KERNELS_RANDOM_H
#define LM_TESTS_KERNELS_RANDOM_H

#include "base/rng.h"
#include <stddef.h>

/* Element i of the random tensor named by seed: uniform in (low, high). */
static inline double random_in(uint64_t seed, size_t i, double low, double high)
{
  uint32_t w[4];
  lm_random_words(seed, LM_STREAM_SAMPLE, 0, i, w);
  return low + (high - low) * lm_uniform(w[0]);
}

#endif
