/* src/text/split.c - the split patterns of GPT-2, cl100k, Llama 3, Qwen 2 and o200k by hand. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "text/split.h"
#include "text/unicode.h"

#include <string.h>

enum {
  L = LM_CLASS_LETTER,
  N = LM_CLASS_NUMBER,
  S = LM_CLASS_SPACE,
  UPPER = LM_CLASS_UPPER,
  LOWER = LM_CLASS_LOWER,
  NEWLINE = LM_CLASS_NEWLINE
};

/* The end of the run from byte i on of characters that have (some, true) or lack (some, false) all classes of `set`. */
static inline size_t run(const uint8_t *s, size_t i, size_t n, unsigned set, bool some)
{
  size_t length;
  while (i < n && ((lm_utf8_class(s + i, n - i, &length) & set) != 0) == some) i += length;
  return i;
}

static inline unsigned class_at(const uint8_t *s, size_t i, size_t n, size_t *length)
{
  *length = 0;
  return i < n ? lm_utf8_class(s + i, n - i, length) : 0;
}

/* \s+(?!\S)|\s+ : a run of white space leaves its last character to the word behind it, unless it is all there is. */
static size_t spaces(const uint8_t *s, size_t n)
{
  size_t end = 0, last = 0, length;
  while (end < n && (lm_utf8_class(s + end, n - end, &length) & S) != 0) {
    last = end;
    end += length;
  }
  return end == n || last == 0 ? end : last;
}

/* 's 't 're 've 'm 'll 'd at s; 0 where there is none. In any case, the long s (U+017F) is an s too. */
static size_t contraction(const uint8_t *s, size_t n, bool any_case)
{
  if (n < 2 || s[0] != '\'') return 0;
  uint8_t fold = any_case ? 0x20 : 0, a = s[1] | fold, b = n > 2 ? s[2] | fold : 0;
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
  return any_case && n > 2 && s[1] == 0xc5 && s[2] == 0xbf ? 3 : 0;
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static size_t next_gpt2(const uint8_t *s, size_t n)
{
  size_t length, i = 0, apostrophe = contraction(s, n, false);
  if (apostrophe > 0) return apostrophe;
  unsigned class = lm_utf8_class(s, n, &length);
  if (s[0] == ' ' && n > 1) {
    class = lm_utf8_class(s + 1, n - 1, &length);
    i = 1;
  }
  if ((class & L) != 0) return run(s, i + length, n, L, true);
  if ((class & N) != 0) return run(s, i + length, n, N, true);
  if ((class & S) == 0) return run(s, i + length, n, L | N | S, false);
  return spaces(s, n);
}

/* \p{N}{1,3} from byte 0, which is a number. */
static size_t three_numbers(const uint8_t *s, size_t n)
{
  size_t i = 0, length;
  for (int k = 0; k < 3 && (class_at(s, i, n, &length) & N) != 0; k++) i += length;
  return i;
}

/* ` ?[^\s\p{L}\p{N}]+[\r\n]*`, with a slash in the last brackets for o200k; 0 where it does not match. */
static size_t punctuation(const uint8_t *s, size_t n, bool slash)
{
  size_t start = s[0] == ' ', i = run(s, start, n, L | N | S, false);
  if (i == start) return 0;
  while (i < n && (s[i] == '\r' || s[i] == '\n' || (slash && s[i] == '/'))) i++;
  return i;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ : up to the last line end in a run of white space, else as in GPT-2. */
static size_t lines_or_spaces(const uint8_t *s, size_t n)
{
  size_t lines = 0, length;
  for (size_t i = 0; i < n; i += length) {
    unsigned class = lm_utf8_class(s + i, n - i, &length);
    if ((class & S) == 0) break;
    if ((class & NEWLINE) != 0) lines = i + length;
  }
  return lines > 0 ? lines : spaces(s, n);
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 */
static inline size_t next_cl100k(const uint8_t *s, size_t n, bool one_number)
{
  size_t length, second, i = contraction(s, n, true);
  if (i > 0) return i;
  unsigned class = lm_utf8_class(s, n, &length);
  if ((class & L) != 0) return run(s, length, n, L, true);
  if ((class & N) != 0) return one_number ? length : three_numbers(s, n);
  if ((class & NEWLINE) == 0 && (class_at(s, length, n, &second) & L) != 0) return run(s, length + second, n, L, true);
  i = punctuation(s, n, false);
  return i > 0 ? i : lines_or_spaces(s, n);
}

/* The word of o200k from byte i on, 0 where there is none: [upper]*[lower]+ or [upper]+[lower]*, where the two sets
 * share the letters without case and the marks. The regular expression gives back what the first set took until a
 * character of the second follows, so a word of the first form ends either behind a run of [lower], or behind the last
 * shared character that the first set took. */
static size_t word_o200k(const uint8_t *s, size_t i, size_t n, bool first_form)
{
  size_t end = i, shared = 0, length;
  for (; end < n; end += length) {
    unsigned class = lm_utf8_class(s + end, n - end, &length);
    if ((class & UPPER) == 0) break;
    if ((class & LOWER) != 0) shared = end + length;
  }
  size_t lower = run(s, end, n, LOWER, true);
  if (lower > end) return lower;
  return first_form ? shared : end > i ? end : 0;
}

/* Both forms of a word, each with and without a character [^\r\n\p{L}\p{N}] in front, then a contraction. */
static size_t words_o200k(const uint8_t *s, size_t n)
{
  size_t length;
  bool front = (lm_utf8_class(s, n, &length) & (L | N | NEWLINE)) == 0;
  for (int form = 0; form < 2; form++) {
    size_t end = front ? word_o200k(s, length, n, form == 0) : 0;
    if (end == 0) end = word_o200k(s, 0, n, form == 0);
    if (end > 0) return end + contraction(s + end, n - end, true);
  }
  return 0;
}

/* The expression is lm_pattern_regex(LM_PATTERN_O200K). */
static size_t next_o200k(const uint8_t *s, size_t n)
{
  size_t length, i = words_o200k(s, n);
  if (i > 0) return i;
  if ((lm_utf8_class(s, n, &length) & N) != 0) return three_numbers(s, n);
  i = punctuation(s, n, true);
  return i > 0 ? i : lines_or_spaces(s, n);
}

size_t lm_split_next(lm_pattern pattern, const char *text, size_t n)
{
  const uint8_t *s = (const uint8_t *)text;
  switch (pattern) {
  case LM_PATTERN_GPT2: return next_gpt2(s, n);
  case LM_PATTERN_O200K: return next_o200k(s, n);
  case LM_PATTERN_QWEN2: return next_cl100k(s, n, true);
  default: return next_cl100k(s, n, false); /* Llama 3 took the pattern of cl100k */
  }
}

/* The spellings of the patterns that files in use have; the first of each pattern is the one that we write. */
static const struct {
  lm_pattern pattern;
  const char *regex;
} spellings[] = {
    {LM_PATTERN_GPT2, "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
    {LM_PATTERN_GPT2, "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
    {LM_PATTERN_LLAMA3, "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
                        "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    {LM_PATTERN_QWEN2, "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
                       "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    {LM_PATTERN_O200K, "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
                       "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
                       "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
                       "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
                       "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
};
enum { N_SPELLINGS = sizeof spellings / sizeof spellings[0] };

const char *lm_pattern_name(lm_pattern pattern)
{
  static const char *const names[] = {"gpt2", "cl100k", "o200k", "llama3", "qwen2", "auto", "other"};
  return names[pattern];
}

const char *lm_pattern_regex(lm_pattern pattern)
{
  if (pattern == LM_PATTERN_CL100K) pattern = LM_PATTERN_LLAMA3;
  int i = 0;
  while (spellings[i].pattern != pattern) i++;
  return spellings[i].regex;
}

bool lm_pattern_of_regex(const char *regex, lm_pattern *pattern)
{
  for (int i = 0; i < N_SPELLINGS; i++) {
    if (strcmp(regex, spellings[i].regex) != 0) continue;
    *pattern = spellings[i].pattern;
    return true;
  }
  return false;
}
