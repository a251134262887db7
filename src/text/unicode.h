/* src/text/unicode.h - UTF-8 -> characters and their classes, as the split patterns need them. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TEXT_UNICODE_H
#define LM_TEXT_UNICODE_H

#include <stddef.h>
#include <stdint.h>

enum lm_class {
  LM_CLASS_LETTER = 1,   /* \p{L} */
  LM_CLASS_NUMBER = 2,   /* \p{N} */
  LM_CLASS_SPACE = 4,    /* \s: the property White_Space */
  LM_CLASS_UPPER = 8,    /* [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] */
  LM_CLASS_LOWER = 16,   /* [\p{Ll}\p{Lm}\p{Lo}\p{M}] */
  LM_CLASS_NEWLINE = 32, /* [\r\n] */
  LM_CLASS_UNSTABLE =
      64, /* NFC may change it, or what stands around it: a combining class, or NFC_Quick_Check not Yes */
};

/* For normalisation, by code point: combining classes above 0, canonical decompositions into one (second 0) or two
 * characters, and, by first and second, the compositions that NFC makes. Hangul is computed. */
typedef struct lm_unicode_ccc {
  uint32_t c;
  uint8_t value;
} lm_unicode_ccc;
typedef struct lm_unicode_pair {
  uint32_t c, first, second;
} lm_unicode_pair;
extern const size_t lm_unicode_n_ccc, lm_unicode_n_split, lm_unicode_n_join;
extern const lm_unicode_ccc lm_unicode_cccs[];
extern const lm_unicode_pair lm_unicode_splits[], lm_unicode_joins[];

extern const char lm_unicode_version[];
extern const uint8_t lm_unicode_block_of[0x1100];
extern const uint8_t lm_unicode_blocks[][256];

/** The classes of a code point, c < 0x110000. Local. */
static inline unsigned lm_unicode_class(uint32_t c)
{
  return lm_unicode_blocks[lm_unicode_block_of[c >> 8]][c & 255];
}

/** Bytes of the valid UTF-8 character of several bytes at s, 1 <= n bytes left; 0 where there is none. Local. */
size_t lm_utf8_long(const uint8_t *s, size_t n, uint32_t *c);

/** The character at s, 1 <= n bytes left: its classes, and in *length its bytes. Local.
 *  A byte that is no part of valid UTF-8 is a character of its own, of no class. */
static inline unsigned lm_utf8_class(const uint8_t *s, size_t n, size_t *length)
{
  uint32_t c;
  *length = 1;
  if (*s < 0x80) return lm_unicode_blocks[0][*s]; /* block 0 comes first in the tables */
  size_t bytes = lm_utf8_long(s, n, &c);
  if (bytes == 0) return 0;
  *length = bytes;
  return lm_unicode_class(c);
}

#endif
