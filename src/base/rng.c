/* src/base/rng.c - counter-based random numbers. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/rng.h"

#include <math.h>

void lm_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
  uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
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
