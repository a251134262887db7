/* src/text/utf8.c - where bytes stop being UTF-8, and how much of them is bad. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "text/utf8.h"

#include <string.h>

/* How many of the bytes at s, at most n, are the beginning of a character; in *whole, how many it needs. 0: none. */
static size_t begun(const unsigned char *s, size_t n, size_t *whole)
{
  unsigned char a = s[0];
  *whole = a < 0xe0 ? 2 : a < 0xf0 ? 3 : 4;
  if (a < 0xc2 || a > 0xf4) return 0;
  unsigned char low = a == 0xe0 ? 0xa0 : a == 0xf0 ? 0x90 : 0x80, high = a == 0xed ? 0x9f : a == 0xf4 ? 0x8f : 0xbf;
  size_t i = 1;
  if (i < n && s[i] >= low && s[i] <= high)
    for (i++; i < n && i < *whole && (s[i] & 0xc0) == 0x80;) i++;
  return i;
}

size_t lm_utf8_valid(const char *text, size_t n)
{
  const unsigned char *s = (const unsigned char *)text;
  size_t i = 0, whole;
  while (i < n) {
    uint64_t eight;
    if (n - i >= sizeof eight && (memcpy(&eight, s + i, sizeof eight), eight & 0x8080808080808080) == 0) {
      i += sizeof eight;
    } else if (s[i] < 0x80) {
      i++;
    } else {
      if (begun(s + i, n - i, &whole) < whole) break;
      i += whole;
    }
  }
  return i;
}

size_t lm_utf8_bad(const char *text, size_t n)
{
  size_t whole, length = begun((const unsigned char *)text, n, &whole);
  return length > 0 ? length : 1;
}

lm_status lm_utf8_replace(const char *text, size_t n, lm_buffer *out, uint64_t *bad, lm_error *err)
{
  for (size_t at = 0; at < n;) {
    size_t good = lm_utf8_valid(text + at, n - at);
    if (out != NULL) LM_TRY(lm_buffer_append(out, text + at, good, err));
    at += good;
    if (at == n) break;
    if (out != NULL) LM_TRY(lm_buffer_append(out, "\xef\xbf\xbd", 3, err));
    at += lm_utf8_bad(text + at, n - at);
    ++*bad;
  }
  return LM_OK;
}

lm_status lm_utf8_reject(const char *text, size_t at, lm_error *err)
{
  return lm_fail(err, LM_EINVAL, "byte %zu of the document (0x%02x) is not UTF-8", at + 1,
                 (unsigned)(unsigned char)text[at]);
}
