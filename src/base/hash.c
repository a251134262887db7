/* src/base/hash.c - XXH3, 64 bits: fingerprints and checksums. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/hash.h"

#include <xxhash.h>

uint64_t lm_hash(const void *bytes, size_t n)
{
  return XXH3_64bits(bytes, n);
}

uint64_t lm_hash_seeded(const void *bytes, size_t n, uint64_t seed)
{
  return XXH3_64bits_withSeed(bytes, n, seed);
}
