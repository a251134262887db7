/* src/text/borders.h - inside the text folder: places in a piece that no token of a vocabulary can lie across. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TEXT_BORDERS_H
#define LM_TEXT_BORDERS_H

#include "base/memory.h"
#include <stdbool.h>
#include <string.h>

/* What stands around the places inside tokens where a character of several bytes begins. A merge across such a place
 * makes a token that lies across it, so where the bytes on both sides occur in no token, the sides are merged each for
 * itself. That cuts text without spaces, Japanese or Chinese, into parts as short as words, which come back.
 * Contexts are hashed: one that is taken for another costs a cut, never a token. Plain data. */
typedef struct lm_borders {
  uint64_t near[256]; /* [last byte left] bit [first byte right & 63], of tokens with one byte on a side */
  uint64_t *wide;     /* [1 << bits, in bits] hashes of two bytes left and two right; NULL: no table, no cuts */
  int shift;          /* 32 - bits */
} lm_borders;

static inline uint32_t lm_borders_hash(const lm_borders *b, const uint8_t *at)
{
  uint32_t four;
  memcpy(&four, at - 2, 4);
  return (four * 0x9e3779b1u) >> b->shift;
}

/** The length of the first part of a piece: up to a place that no token lies across, or n. Local.
 *  @param n  at most 2^32 bytes @param before  bytes of the same piece before it, of which two may be read */
static inline size_t lm_borders_next(const lm_borders *b, const uint8_t *s, size_t n, size_t before)
{
  if (b->wide == NULL) return n;
  for (size_t i = before >= 1 ? 1 : 2; i + 1 < n; i++) {
    if (s[i] < 0xc2 || (b->near[s[i - 1]] >> (s[i] & 63) & 1) != 0) continue;
    uint32_t hash = lm_borders_hash(b, s + i);
    if ((b->wide[hash / 64] >> hash % 64 & 1) == 0) return i;
  }
  return n;
}

/** Note a token of n bytes. Local. With `count`, only add to it how many contexts there are. */
void lm_borders_add(lm_borders *b, const uint8_t *token, size_t n, size_t *count);

/** Room for so many contexts. Local. LM_ENOMEM */
lm_status lm_borders_reserve(lm_borders *b, size_t contexts, lm_error *err) LM_NODISCARD;

#endif
