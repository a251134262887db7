/* src/base/rng.h - counter-based random numbers: a value is a pure function of its key and its counter. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_BASE_RNG_H
#define LM_BASE_RNG_H

#include <stdint.h>

/* What random numbers are drawn for. Streams of one seed never meet: the stream is part of the key. */
typedef enum lm_stream {
  LM_STREAM_INIT = 1,    /* counter: parameter hash, element */
  LM_STREAM_SHUFFLE = 2, /* counter: epoch, window, round */
  LM_STREAM_DROPOUT = 3, /* counter: position of the sample; gives the key of its masks (lm_dropout) */
  LM_STREAM_SAMPLE = 4,  /* counter: position of the generated token */
} lm_stream;

/** Philox4x32-10. Local. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11, section 3.3. Inline, so
 * that a loop over counters becomes a loop over vectors of them.
 *  @param counter [4] @param key [2] @param[out] out [4] */
static inline void lm_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
  uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
#if defined __clang__
#pragma unroll
#else
#pragma GCC unroll 10
#endif
  for (int round = 0; round < 10; round++) {
    uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
    uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c0 = n0;
    c1 = (uint32_t)p1;
    c2 = n2;
    c3 = (uint32_t)p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

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
