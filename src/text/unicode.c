/* src/text/unicode.c - UTF-8 -> code points. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "text/unicode.h"

/* The Unicode Standard, table 3-7: the second byte's range keeps out overlong forms, surrogates, and what is too large.
 */
size_t lm_utf8_long(const uint8_t *s, size_t n, uint32_t *c)
{
  uint8_t a = s[0];
  if (a < 0xc2 || a > 0xf4) return 0;
  size_t bytes = a < 0xe0 ? 2 : a < 0xf0 ? 3 : 4;
  if (n < bytes) return 0;
  uint8_t low = a == 0xe0 ? 0xa0 : a == 0xf0 ? 0x90 : 0x80, high = a == 0xed ? 0x9f : a == 0xf4 ? 0x8f : 0xbf;
  if (s[1] < low || s[1] > high) return 0;
  uint32_t value = a & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; i++) {
    if ((s[i] & 0xc0) != 0x80) return 0;
    value = value << 6 | (s[i] & 0x3f);
  }
  *c = value;
  return bytes;
}
