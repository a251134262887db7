/* src/text/nfc.c - Unicode Normalization Form C. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "text/nfc.h"
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

/* The Unicode Standard, section 3.12: Hangul syllables are computed. */
enum {
  S_BASE = 0xac00,
  L_BASE = 0x1100,
  V_BASE = 0x1161,
  T_BASE = 0x11a7,
  L_COUNT = 19,
  V_COUNT = 21,
  T_COUNT = 28,
  S_COUNT = L_COUNT * V_COUNT * T_COUNT
};

void lm_nfc_free(lm_nfc *s)
{
  free(s->chars);
  free(s->marks);
  *s = (lm_nfc){0};
}

/* ---- where there is something to do ---- */

/* The first character from byte i on that NFC may change, and where the stable one before it begins: what stands
 * between both, and what follows it up to the next stable one, is normalised together. */
static size_t find_unstable(const uint8_t *s, size_t i, size_t n, size_t *before)
{
  size_t length;
  *before = i;
  while (i < n) {
    uint64_t eight;
    if (n - i > sizeof eight && (memcpy(&eight, s + i, sizeof eight), eight & 0x8080808080808080) == 0) {
      i += sizeof eight;
      *before = i - 1;
      continue;
    }
    unsigned class = lm_utf8_class(s + i, n - i, &length);
    if ((class & LM_CLASS_UNSTABLE) != 0) return i;
    *before = s[i] >= 0x80 && length == 1 ? i + 1 : i; /* a bad byte is no character to compose with */
    i += length;
  }
  return n;
}

static size_t next_stable(const uint8_t *s, size_t i, size_t n)
{
  size_t length;
  while (i < n && (lm_utf8_class(s + i, n - i, &length) & LM_CLASS_UNSTABLE) != 0) i += length;
  return i;
}

bool lm_nfc_quick(const char *text, size_t n)
{
  size_t before;
  return find_unstable((const uint8_t *)text, 0, n, &before) == n;
}

/* ---- the tables ---- */

static uint8_t combining_class(uint32_t c)
{
  size_t low = 0, high = lm_unicode_n_ccc;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (lm_unicode_cccs[middle].c == c) return lm_unicode_cccs[middle].value;
    if (lm_unicode_cccs[middle].c < c)
      low = middle + 1;
    else
      high = middle;
  }
  return 0;
}

static const lm_unicode_pair *find_split(uint32_t c)
{
  size_t low = 0, high = lm_unicode_n_split;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (lm_unicode_splits[middle].c == c) return &lm_unicode_splits[middle];
    if (lm_unicode_splits[middle].c < c)
      low = middle + 1;
    else
      high = middle;
  }
  return NULL;
}

/* 0: the two do not compose. */
static uint32_t compose(uint32_t a, uint32_t b)
{
  if (a - L_BASE < L_COUNT && b - V_BASE < V_COUNT) return S_BASE + ((a - L_BASE) * V_COUNT + (b - V_BASE)) * T_COUNT;
  if (a - S_BASE < S_COUNT && (a - S_BASE) % T_COUNT == 0 && b - T_BASE - 1 < T_COUNT - 1) return a + (b - T_BASE);
  size_t low = 0, high = lm_unicode_n_join;
  uint64_t key = (uint64_t)a << 32 | b;
  while (low < high) {
    size_t middle = (low + high) / 2;
    const lm_unicode_pair *p = &lm_unicode_joins[middle];
    uint64_t other = (uint64_t)p->first << 32 | p->second;
    if (other == key) return p->c;
    if (other < key)
      low = middle + 1;
    else
      high = middle;
  }
  return 0;
}

/* ---- one run of characters ---- */

static lm_status add_char(lm_nfc *s, uint32_t c, lm_error *err)
{
  LM_TRY(lm_grow(&s->chars, &s->capacity, s->n + 1, sizeof *s->chars, err));
  s->chars[s->n++] = c;
  return LM_OK;
}

static lm_status decompose(lm_nfc *s, uint32_t c, lm_error *err)
{
  if (c - S_BASE < S_COUNT) {
    uint32_t at = c - S_BASE, t = at % T_COUNT;
    LM_TRY(add_char(s, L_BASE + at / T_COUNT / V_COUNT, err));
    LM_TRY(add_char(s, V_BASE + at / T_COUNT % V_COUNT, err));
    return t > 0 ? add_char(s, T_BASE + t, err) : LM_OK;
  }
  const lm_unicode_pair *p = find_split(c);
  if (p == NULL) return add_char(s, c, err);
  LM_TRY(decompose(s, p->first, err)); /* of the second characters none decomposes further, of the first some do */
  return p->second != 0 ? decompose(s, p->second, err) : LM_OK;
}

static int compare_marks(const void *a, const void *b)
{
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* Marks [begin, end) by combining class; those of the same stay in their order. */
static lm_status sort_marks(lm_nfc *s, size_t begin, size_t end, lm_error *err)
{
  if (end - begin < 2) return LM_OK;
  LM_TRY(lm_grow(&s->marks, &s->marks_capacity, end - begin, sizeof *s->marks, err));
  for (size_t i = begin; i < end; i++)
    s->marks[i - begin] = (uint64_t)combining_class(s->chars[i]) << 56 | (uint64_t)(i - begin) << 21 | s->chars[i];
  qsort(s->marks, end - begin, sizeof *s->marks, compare_marks);
  for (size_t i = begin; i < end; i++) s->chars[i] = s->marks[i - begin] & 0x1fffff;
  return LM_OK;
}

static lm_status sort_all_marks(lm_nfc *s, lm_error *err)
{
  size_t begin = 0;
  for (size_t i = 0; i <= s->n; i++) {
    if (i < s->n && combining_class(s->chars[i]) > 0) continue;
    LM_TRY(sort_marks(s, begin, i, err));
    begin = i + 1;
  }
  return LM_OK;
}

/* A character composes with the last starter where nothing of the same or a higher class stands between them. */
static void compose_all(lm_nfc *s)
{
  size_t n = 0, starter = SIZE_MAX;
  uint8_t last = 0;
  for (size_t i = 0; i < s->n; i++) {
    uint32_t c = s->chars[i], joined = 0;
    uint8_t class = combining_class(c);
    if (starter != SIZE_MAX && (starter + 1 == n || last < class)) joined = compose(s->chars[starter], c);
    if (joined != 0) {
      s->chars[starter] = joined;
      continue;
    }
    if (class == 0) starter = n;
    last = class;
    s->chars[n++] = c;
  }
  s->n = n;
}

static lm_status append_char(lm_buffer *out, uint32_t c, lm_error *err)
{
  char utf8[4];
  size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  if (n == 1)
    utf8[0] = (char)c;
  else
    for (size_t k = n; k-- > 0; c >>= 6) utf8[k] = (char)(k > 0 ? 0x80 | (c & 63) : (0xf00u >> n & 0xff) | c);
  return lm_buffer_append(out, utf8, n, err);
}

static lm_status normalise(lm_nfc *s, const uint8_t *text, size_t n, lm_buffer *out, lm_error *err)
{
  s->n = 0;
  for (size_t i = 0, length; i < n; i += length) {
    uint32_t c = text[i];
    length = 1;
    if (c >= 0x80) {
      length = lm_utf8_long(text + i, n - i, &c);
      LM_ASSERT(length > 0);
    }
    LM_TRY(decompose(s, c, err));
  }
  LM_TRY(sort_all_marks(s, err));
  compose_all(s);
  for (size_t i = 0; i < s->n; i++) LM_TRY(append_char(out, s->chars[i], err));
  return LM_OK;
}

lm_status lm_nfc_append(lm_nfc *s, const char *text, size_t n, lm_buffer *out, lm_error *err)
{
  const uint8_t *bytes = (const uint8_t *)text;
  for (size_t done = 0, from; done < n;) {
    size_t unstable = find_unstable(bytes, done, n, &from);
    if (unstable == n) return lm_buffer_append(out, text + done, n - done, err);
    size_t end = next_stable(bytes, unstable, n);
    LM_TRY(lm_buffer_append(out, text + done, from - done, err));
    LM_TRY(normalise(s, bytes + from, end - from, out, err));
    done = end;
  }
  return LM_OK;
}
