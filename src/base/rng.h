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

/* These are computed on GPUs too. */
#ifdef __CUDACC__
#define LM_ANYWHERE __host__ __device__
#else
#define LM_ANYWHERE
#endif

/* c [4] and k [2] go from one round to the next. */
static inline LM_ANYWHERE __attribute__((always_inline)) void lm_philox_round(uint32_t *c, uint32_t *k)
{
  uint64_t p0 = (uint64_t)0xD2511F53u * c[0], p1 = (uint64_t)0xCD9E8D57u * c[2];
  c[0] = (uint32_t)(p1 >> 32) ^ c[1] ^ k[0];
  c[1] = (uint32_t)p1;
  c[2] = (uint32_t)(p0 >> 32) ^ c[3] ^ k[1];
  c[3] = (uint32_t)p0;
  k[0] += 0x9E3779B9u;
  k[1] += 0xBB67AE85u;
}

/** Philox4x32-10. Local. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11, section 3.3. Inline and
 *  without a loop, so that a loop over counters becomes one over vectors of them.
 *  @param counter [4] @param key [2] @param[out] out [4] */
static inline LM_ANYWHERE __attribute__((always_inline)) void lm_philox4x32(const uint32_t counter[4],
                                                                            const uint32_t key[2], uint32_t out[4])
{
  uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]}, k[2] = {key[0], key[1]};
  lm_philox_round(c, k);
  lm_philox_round(c, k);
  lm_philox_round(c, k);
  lm_philox_round(c, k);
  lm_philox_round(c, k);
  lm_philox_round(c, k);
  lm_philox_round(c, k);
  lm_philox_round(c, k);
  lm_philox_round(c, k);
  lm_philox_round(c, k);
  out[0] = c[0];
  out[1] = c[1];
  out[2] = c[2];
  out[3] = c[3];
}

/** Four words for (seed, stream, a, b). Local. The key has 64 bits and seed fills them; the stream goes into the top
 * byte of the counter, where b never reaches: b counts elements, windows or tokens, all below 2^56. */
static inline LM_ANYWHERE void lm_random_words(uint64_t seed, lm_stream stream, uint64_t a, uint64_t b, uint32_t out[4])
{
  uint64_t top = b | (uint64_t)stream << 56;
  uint32_t counter[4] = {(uint32_t)a, (uint32_t)(a >> 32), (uint32_t)top, (uint32_t)(top >> 32)};
  uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  lm_philox4x32(counter, key, out);
}

/** Uniform in (0, 1), never 0 or 1. Local. */
static inline double lm_uniform(uint32_t word)
{
  return ((double)word + 0.5) * 0x1p-32;
}

/** Standard normal by the Box-Muller transform, from two words. Local. */
double lm_normal(uint32_t word0, uint32_t word1);

#endif
