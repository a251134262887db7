/* src/base/hash.h - XXH3, 64 bits: fingerprints and checksums. Not for adversaries, but for disks and mistakes. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_BASE_HASH_H
#define LM_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/** XXH3_64bits of n bytes. Local. */
uint64_t lm_hash(const void *bytes, size_t n);
uint64_t lm_hash_seeded(const void *bytes, size_t n, uint64_t seed);

#endif
