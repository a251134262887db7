/* src/text/json_line.c - one line of JSON Lines -> the text under one key. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "text/json_line.h"

#include <string.h>

typedef struct parser {
  const char *start, *p, *end;
  lm_buffer open; /* the arrays and objects around a nested value, '[' or '{' each */
  lm_error *err;
} parser;

typedef struct json_string {
  size_t begin, n; /* as written, without the quotes; an offset from the start of the line */
  bool escaped;
} json_string;

static lm_status broken_at(const parser *j, const char *p, const char *what)
{
  return lm_fail(j->err, LM_EINVAL, "byte %zu of the line: %s", (size_t)(p - j->start) + 1, what);
}

static lm_status broken(const parser *j, const char *what)
{
  return broken_at(j, j->p,
                   j->p == j->end ? "the line ends inside the object; JSON Lines expects one object per line" : what);
}

static bool is_blank(char c)
{
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void skip_blanks(parser *j)
{
  while (j->p < j->end && is_blank(*j->p)) j->p++;
}

static bool take(parser *j, char c)
{
  if (j->p == j->end || *j->p != c) return false;
  j->p++;
  return true;
}

bool lm_json_line_is_blank(const char *line, size_t n)
{
  while (n > 0 && is_blank(line[n - 1])) n--;
  return n == 0;
}

/* ---- strings ---- */

/* To the first byte that is not plain text of a string: a quote, a backslash, a control character, or the end. Eight
 * bytes at a time: x - 01..01 borrows into the high bit of a byte that was zero, and ~x drops those that had it. */
static const char *skip_plain(const char *p, const char *end)
{
  const uint64_t ones = 0x0101010101010101, high = 0x8080808080808080;
  while (end - p >= 8) {
    uint64_t x, quote, backslash;
    memcpy(&x, p, 8);
    quote = x ^ (ones * '"');
    backslash = x ^ (ones * '\\');
    uint64_t hit = ((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) | ((x - ones * 0x20) & ~x);
    if (hit & high) break;
    p += 8;
  }
  while (p < end && *p != '"' && *p != '\\' && (unsigned char)*p >= 0x20) p++;
  return p;
}

static int hex_digit(char c)
{
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

/* Four hex digits, or -1. */
static int32_t hex_word(const char *p, const char *end)
{
  int32_t word = 0;
  if (end - p < 4) return -1;
  for (int i = 0; i < 4; i++) {
    int d = hex_digit(p[i]);
    if (d < 0) return -1;
    word = word * 16 + d;
  }
  return word;
}

/* p is at the backslash. */
static lm_status check_escape(parser *j)
{
  if (j->end - j->p < 2) return broken_at(j, j->end, "the line ends inside a string");
  char c = j->p[1];
  if (c == 'u') {
    if (hex_word(j->p + 2, j->end) < 0) return broken_at(j, j->p, "\\u needs four hexadecimal digits");
    j->p += 6;
    return LM_OK;
  }
  if (c == '\0' || strchr("\"\\/bfnrt", c) == NULL) return broken_at(j, j->p, "an unknown escape in a string");
  j->p += 2;
  return LM_OK;
}

/* p is behind the opening quote; then behind the closing one. */
static lm_status scan_string(parser *j, json_string *s)
{
  *s = (json_string){.begin = (size_t)(j->p - j->start)};
  for (;;) {
    j->p = skip_plain(j->p, j->end);
    if (j->p == j->end) return broken(j, "");
    if (*j->p == '"') break;
    if (*j->p != '\\') return broken(j, "a raw control character in a string");
    s->escaped = true;
    LM_TRY(check_escape(j));
  }
  s->n = (size_t)(j->p++ - j->start) - s->begin;
  return LM_OK;
}

static char *put_utf8(char *w, uint32_t c)
{
  if (c < 0x80) {
    *w++ = (char)c;
  } else if (c < 0x800) {
    *w++ = (char)(0xc0 | c >> 6);
    *w++ = (char)(0x80 | (c & 0x3f));
  } else {
    if (c < 0x10000) {
      *w++ = (char)(0xe0 | c >> 12);
    } else {
      *w++ = (char)(0xf0 | c >> 18);
      *w++ = (char)(0x80 | (c >> 12 & 0x3f));
    }
    *w++ = (char)(0x80 | (c >> 6 & 0x3f));
    *w++ = (char)(0x80 | (c & 0x3f));
  }
  return w;
}

/* The code point of the \u escape (or pair of them) at *r. */
static uint32_t take_code_point(const char **r, const char *end, uint64_t *lone)
{
  uint32_t c = (uint32_t)hex_word(*r + 2, end);
  *r += 6;
  if (c < 0xd800 || c > 0xdfff) return c;
  if (c < 0xdc00 && end - *r >= 6 && (*r)[0] == '\\' && (*r)[1] == 'u') {
    uint32_t low = (uint32_t)hex_word(*r + 2, end);
    if (low >= 0xdc00 && low <= 0xdfff) {
      *r += 6;
      return 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
  }
  ++*lone;
  return 0xfffd;
}

/* In place: an escape is never shorter than what it stands for. The escapes were checked. */
static size_t decode_string(char *s, size_t n, uint64_t *lone)
{
  const char *r = s, *end = s + n;
  char *w = s;
  while (r < end) {
    const char *escape = memchr(r, '\\', (size_t)(end - r));
    size_t plain = (size_t)((escape != NULL ? escape : end) - r);
    memmove(w, r, plain);
    w += plain;
    r += plain;
    if (r == end) break;
    if (r[1] == 'u') {
      w = put_utf8(w, take_code_point(&r, end, lone));
    } else {
      static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
      const char *known = strchr(from, r[1]);
      *w++ = known != NULL ? to[known - from] : r[1];
      r += 2;
    }
  }
  return (size_t)(w - s);
}

/* ---- values ---- */

static size_t skip_digits(parser *j)
{
  const char *from = j->p;
  while (j->p < j->end && *j->p >= '0' && *j->p <= '9') j->p++;
  return (size_t)(j->p - from);
}

static bool take_word(parser *j, const char *word)
{
  size_t n = strlen(word);
  if ((size_t)(j->end - j->p) < n || memcmp(j->p, word, n) != 0) return false;
  j->p += n;
  return true;
}

static lm_status skip_number(parser *j)
{
  take(j, '-');
  if (take_word(j, "Infinity")) return LM_OK;
  if (!take(j, '0') && skip_digits(j) == 0) return broken(j, "a value was wanted");
  if (take(j, '.') && skip_digits(j) == 0) return broken(j, "a digit was wanted");
  if (take(j, 'e') || take(j, 'E')) {
    if (!take(j, '-')) take(j, '+');
    if (skip_digits(j) == 0) return broken(j, "a digit was wanted");
  }
  return LM_OK;
}

static lm_status skip_scalar(parser *j)
{
  json_string unused;
  if (take(j, '"')) return scan_string(j, &unused);
  if (take_word(j, "true") || take_word(j, "false") || take_word(j, "null") || take_word(j, "NaN")) return LM_OK;
  return skip_number(j);
}

static lm_status take_key(parser *j, json_string *key)
{
  skip_blanks(j);
  if (!take(j, '"')) return broken(j, "a key in quotes was wanted");
  LM_TRY(scan_string(j, key));
  skip_blanks(j);
  if (!take(j, ':')) return broken(j, "':' was wanted after the key");
  skip_blanks(j);
  return LM_OK;
}

/* An array or object begins at p. *empty: it ended at once. */
static lm_status enter(parser *j, bool *empty)
{
  json_string unused;
  char c = *j->p++, close = c == '{' ? '}' : ']';
  skip_blanks(j);
  *empty = take(j, close);
  if (*empty) return LM_OK;
  LM_TRY(lm_buffer_append(&j->open, &c, 1, j->err));
  return c == '{' ? take_key(j, &unused) : LM_OK;
}

/* A nested value is complete: close what ends here; then either another value begins at p, or nothing is open. */
static lm_status leave(parser *j)
{
  json_string unused;
  while (j->open.size > 0) {
    char c = j->open.data[j->open.size - 1];
    skip_blanks(j);
    if (take(j, ',')) {
      if (c == '{') return take_key(j, &unused);
      skip_blanks(j);
      return LM_OK;
    }
    if (!take(j, c == '{' ? '}' : ']')) return broken(j, c == '{' ? "',' or '}' was wanted" : "',' or ']' was wanted");
    j->open.size--;
  }
  return LM_OK;
}

/* No recursion: a line may nest as deep as it is long. */
static lm_status skip_value(parser *j)
{
  do {
    bool complete = true;
    if (j->p < j->end && (*j->p == '{' || *j->p == '['))
      LM_TRY(enter(j, &complete));
    else
      LM_TRY(skip_scalar(j));
    if (complete) LM_TRY(leave(j));
  } while (j->open.size > 0);
  return LM_OK;
}

/* ---- the line ---- */

/* As lm_json_line_text() wants it, but with escapes. A key with escapes is decoded in a copy. */
static lm_status key_matches(parser *j, const json_string *s, const char *key, bool *matches)
{
  const char *written = j->start + s->begin;
  size_t n = strlen(key);
  *matches = s->n == n && memcmp(written, key, n) == 0;
  if (!s->escaped) return LM_OK;
  lm_buffer copy = {0};
  uint64_t lone = 0;
  LM_TRY(lm_buffer_append(&copy, written, s->n, j->err));
  *matches = decode_string(copy.data, s->n, &lone) == n && memcmp(copy.data, key, n) == 0;
  lm_buffer_free(&copy);
  return LM_OK;
}

/* A key in the words of an error: bounded, without control characters, never cut inside a character. */
static lm_status name_key(lm_buffer *out, const char *key, size_t n, lm_error *err)
{
  enum { LONGEST = 40 };
  bool cut = n > LONGEST;
  if (cut)
    for (n = LONGEST; n > 0 && ((unsigned char)key[n] & 0xc0) == 0x80;) n--;
  LM_TRY(lm_buffer_append(out, out->size > 0 ? ", \"" : "\"", out->size > 0 ? 3 : 1, err));
  LM_TRY(lm_buffer_append(out, key, n, err));
  return lm_buffer_append(out, cut ? "...\"" : "\"", cut ? 4 : 1, err);
}

typedef struct found {
  json_string text;
  bool is_there, is_string;
  size_t keys;
} found;

static lm_status scan_member(parser *j, const char *key, found *f, lm_buffer *names)
{
  enum { NAMED = 8 };
  json_string name = {0};
  bool matches;
  LM_TRY(take_key(j, &name));
  LM_TRY(key_matches(j, &name, key, &matches));
  if (names != NULL && f->keys++ < NAMED) LM_TRY(name_key(names, j->start + name.begin, name.n, j->err));
  if (!matches) return skip_value(j);
  f->is_there = true;
  f->is_string = take(j, '"');
  return f->is_string ? scan_string(j, &f->text) : skip_value(j);
}

static lm_status scan_object(parser *j, const char *key, found *f, lm_buffer *names)
{
  *f = (found){.keys = 0};
  skip_blanks(j);
  if (!take(j, '{')) return broken(j, "'{' was wanted; JSON Lines expects one object per line");
  skip_blanks(j);
  if (!take(j, '}')) {
    do LM_TRY(scan_member(j, key, f, names));
    while (skip_blanks(j), take(j, ','));
    if (!take(j, '}')) return broken(j, "',' or '}' was wanted");
  }
  skip_blanks(j);
  if (j->p < j->end) return broken(j, "more follows the object; JSON Lines expects one object per line");
  return LM_OK;
}

/* The line is whole, but the text is not in it: read it again for the names of its keys. */
static lm_status fail_missing(parser *j, const char *key)
{
  found f;
  lm_buffer names = {0};
  j->p = j->start;
  lm_status s = scan_object(j, key, &f, &names);
  if (s == LM_OK)
    s = lm_fail(j->err, LM_EINVAL, "has no key \"%s\"; its keys are %s%s (--text-key names the one to read)", key,
                names.size > 0 ? names.data : "none", f.keys > 8 ? ", ..." : "");
  lm_buffer_free(&names);
  return s;
}

lm_status lm_json_line_text(char *line, size_t n, const char *key, const char **text, size_t *size,
                            uint64_t *lone_surrogates, lm_error *err)
{
  parser j = {.start = line, .p = line, .end = line + n, .err = err};
  found f;
  *text = NULL;
  *size = 0;
  lm_status s = scan_object(&j, key, &f, NULL);
  if (s == LM_OK && !f.is_there) s = fail_missing(&j, key);
  if (s == LM_OK && !f.is_string)
    s = lm_fail(err, LM_EINVAL, "the value of \"%s\" is not a string, a string was wanted", key);
  lm_buffer_free(&j.open);
  if (s != LM_OK) return s;
  *size = f.text.escaped ? decode_string(line + f.text.begin, f.text.n, lone_surrogates) : f.text.n;
  *text = line + f.text.begin;
  return LM_OK;
}
