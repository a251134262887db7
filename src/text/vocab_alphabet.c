/* src/text/vocab_alphabet.c - bytes <-> the printable characters that spell them in vocabulary files. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "text/unicode.h"
#include "text/vocab_build.h"

/* The visible characters of Latin-1 spell themselves; the other bytes, in order, are U+0100 and up. */
static bool is_visible(unsigned byte)
{
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
}

enum { N_VISIBLE = 188 };

uint8_t lm_alphabet_byte(unsigned i)
{
  bool visible = i < N_VISIBLE;
  unsigned left = visible ? i : i - N_VISIBLE, byte = 0;
  for (;; byte++)
    if (is_visible(byte) == visible && left-- == 0) return (uint8_t)byte;
}

static uint32_t character_of(uint8_t byte)
{
  if (is_visible(byte)) return byte;
  uint32_t c = 0x100;
  for (unsigned b = 0; b < byte; b++) c += !is_visible(b);
  return c;
}

lm_status lm_alphabet_write(lm_buffer *out, const char *bytes, size_t n, lm_error *err)
{
  for (size_t i = 0; i < n; i++) {
    uint32_t c = character_of((uint8_t)bytes[i]);
    char utf8[2] = {(char)(0xc0 | c >> 6), (char)(0x80 | (c & 0x3f))};
    if (c < 0x80)
      LM_TRY(lm_buffer_append(out, &bytes[i], 1, err));
    else
      LM_TRY(lm_buffer_append(out, utf8, 2, err));
  }
  return LM_OK;
}

/* The byte that a character spells, or -1. */
static int byte_of(uint32_t c)
{
  if (c < 0x100) return is_visible(c) ? (int)c : -1;
  return c - 0x100 < 256 - N_VISIBLE ? lm_alphabet_byte(N_VISIBLE + c - 0x100) : -1;
}

lm_status lm_alphabet_read(lm_buffer *out, const char *text, size_t n, bool *known, lm_error *err)
{
  const uint8_t *s = (const uint8_t *)text;
  *known = true;
  for (size_t i = 0; i < n;) {
    uint32_t c = s[i];
    size_t length = c < 0x80 ? 1 : lm_utf8_long(s + i, n - i, &c);
    int byte = length > 0 ? byte_of(c) : -1;
    if (byte < 0) {
      *known = false;
      return LM_OK;
    }
    char b = (char)byte;
    LM_TRY(lm_buffer_append(out, &b, 1, err));
    i += length;
  }
  return LM_OK;
}
