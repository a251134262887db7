/* src/text/borders.c - places in a piece that no token of a vocabulary can lie across. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "text/borders.h"

enum { BITS_PER_CONTEXT = 32, LEAST_BITS = 12, MOST_BITS = 24 };

lm_status lm_borders_reserve(lm_borders *b, size_t contexts, lm_error *err)
{
  int bits = LEAST_BITS;
  while (bits < MOST_BITS && ((size_t)1 << bits) < BITS_PER_CONTEXT * contexts) bits++;
  b->shift = 32 - bits;
  return lm_alloc(&b->wide, ((size_t)1 << bits) / 64, sizeof *b->wide, "the borders of a vocabulary", err);
}

void lm_borders_add(lm_borders *b, const uint8_t *token, size_t n, size_t *count)
{
  for (size_t i = 1; i < n; i++) {
    if (token[i] < 0xc2) continue;
    if (i == 1 || i + 1 == n) {
      b->near[token[i - 1]] |= UINT64_C(1) << (token[i] & 63);
    } else if (count != NULL) {
      ++*count;
    } else {
      uint32_t hash = lm_borders_hash(b, token + i);
      b->wide[hash / 64] |= UINT64_C(1) << hash % 64;
    }
  }
}
