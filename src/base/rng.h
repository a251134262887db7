/* src/base/rng.h - counter-based random numbers: a value is a pure function of its key and its counter. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_BASE_RNG_H
#define LM_BASE_RNG_H

#include <stdint.h>

/* What random numbers are drawn for. Streams of one seed never meet: the stream is part of the key. */
typedef enum lm_stream {
  LM_STREAM_INIT = 1,    /* counter: parameter hash, element */
  LM_STREAM_SHUFFLE = 2, /* counter: epoch, window, round */
  LM_STREAM_DROPOUT = 3, /* counter: step, sample, layer, element */
  LM_STREAM_SAMPLE = 4,  /* counter: position of the generated token */
} lm_stream;

/** Philox4x32-10. Local. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11, section 3.3.
 *  @param counter [4] @param key [2] @param[out] out [4] */
void lm_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/** Four words for (seed, stream, a, b). Local. */
void lm_random_words(uint64_t seed, lm_stream stream, uint64_t a, uint64_t b, uint32_t out[4]);

/** Uniform in (0, 1), never 0 or 1. Local. */
static inline double lm_uniform(uint32_t word)
{
  return ((double)word + 0.5) * 0x1p-32;
}

/** Standard normal by the Box-Muller transform, from two words. Local. */
double lm_normal(uint32_t word0, uint32_t word1);

#endif
