/* src/base/rng.c - counter-based random numbers. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/rng.h"

#include <math.h>

void lm_random_words(uint64_t seed, lm_stream stream, uint64_t a, uint64_t b, uint32_t out[4])
{
  /* The key has 64 bits and seed fills them; the stream goes into the top byte of the counter, where b never reaches:
   * b counts elements, windows or tokens, all below 2^56. */
  uint64_t top = b | (uint64_t)stream << 56;
  uint32_t counter[4] = {(uint32_t)a, (uint32_t)(a >> 32), (uint32_t)top, (uint32_t)(top >> 32)};
  uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  lm_philox4x32(counter, key, out);
}

double lm_normal(uint32_t word0, uint32_t word1)
{
  return sqrt(-2 * log(lm_uniform(word0))) * cos(6.283185307179586476925 * lm_uniform(word1));
}
