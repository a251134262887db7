/* src/text/vocab_ranks.c - readers of .tiktoken rank files and of GPT-2's vocab.bpe. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "text/vocab_build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lines of a text in memory ---- */

typedef struct line {
  const char *text; /* without the line end */
  size_t n, number; /* from 1 */
} line;

static bool next_line(const lm_buffer *text, size_t *at, line *l)
{
  if (*at >= text->size) return false;
  l->text = text->data + *at;
  const char *end = memchr(l->text, '\n', text->size - *at);
  l->n = end != NULL ? (size_t)(end - l->text) : text->size - *at;
  *at += l->n + 1;
  l->number++;
  if (l->n > 0 && l->text[l->n - 1] == '\r') l->n--;
  return true;
}

/* ---- special tokens that rank files leave out ---- */

/* What each known set of ranks adds, by its pattern and number of ranks (0: any other number). */
static const struct {
  lm_pattern pattern;
  uint32_t ranks, id;
  const char *text;
} known_specials[] = {
    {LM_PATTERN_GPT2, 50256, 50256, "<|endoftext|>"},       {LM_PATTERN_GPT2, 50280, 50256, "<|endoftext|>"},
    {LM_PATTERN_CL100K, 100256, 100257, "<|endoftext|>"},   {LM_PATTERN_CL100K, 100256, 100258, "<|fim_prefix|>"},
    {LM_PATTERN_CL100K, 100256, 100259, "<|fim_middle|>"},  {LM_PATTERN_CL100K, 100256, 100260, "<|fim_suffix|>"},
    {LM_PATTERN_CL100K, 100256, 100276, "<|endofprompt|>"}, {LM_PATTERN_O200K, 199998, 199999, "<|endoftext|>"},
    {LM_PATTERN_O200K, 199998, 200018, "<|endofprompt|>"},
};
enum { N_KNOWN = sizeof known_specials / sizeof known_specials[0], LLAMA3_RANKS = 128000, LLAMA3_SPECIALS = 256 };

/* Llama 3: five names, and "reserved" for the rest of 256. */
static lm_status add_llama3_specials(lm_vocab *v, lm_error *err)
{
  static const struct {
    uint32_t place;
    const char *text;
  } named[] = {{0, "<|begin_of_text|>"}, {1, "<|end_of_text|>"}, {6, "<|start_header_id|>"},
               {7, "<|end_header_id|>"}, {9, "<|eot_id|>"},      {LLAMA3_SPECIALS, NULL}};
  uint32_t next = 0, reserved = 0;
  for (uint32_t i = 0; i < LLAMA3_SPECIALS; i++) {
    char text[48];
    if (i == named[next].place)
      snprintf(text, sizeof text, "%s", named[next++].text);
    else
      snprintf(text, sizeof text, "<|reserved_special_token_%u|>", reserved++);
    LM_TRY(lm_vocab_add_special(v, LLAMA3_RANKS + i, text, strlen(text), false, err));
  }
  return LM_OK;
}

static lm_status add_specials(lm_vocab *v, uint32_t ranks, lm_error *err)
{
  if (v->pattern == LM_PATTERN_LLAMA3 && ranks == LLAMA3_RANKS) return add_llama3_specials(v, err);
  size_t before = v->n_specials;
  for (int i = 0; i < N_KNOWN; i++) {
    const char *text = known_specials[i].text;
    if (known_specials[i].pattern == v->pattern && known_specials[i].ranks == ranks)
      LM_TRY(lm_vocab_add_special(v, known_specials[i].id, text, strlen(text), false, err));
  }
  if (v->n_specials > before) return LM_OK;
  return lm_vocab_add_special(v, v->size, "<|endoftext|>", strlen("<|endoftext|>"), false, err);
}

static lm_status settle_pattern(lm_vocab *v, const char *path, uint32_t ranks, lm_error *err)
{
  if (v->pattern != LM_PATTERN_AUTO) return LM_OK;
  for (int i = 0; i < N_KNOWN && v->pattern == LM_PATTERN_AUTO; i++)
    if (known_specials[i].ranks == ranks) v->pattern = known_specials[i].pattern;
  if (ranks == LLAMA3_RANKS) v->pattern = LM_PATTERN_LLAMA3;
  if (v->pattern != LM_PATTERN_AUTO) return LM_OK;
  return lm_fail(err, LM_EINVAL, "%s: %u ranks are of no set whose split pattern is known; name it: --pattern %s", path,
                 ranks, LM_PATTERN_WORDS);
}

/* ---- .tiktoken: a line is "base64 rank" ---- */

static int base64_digit(char c)
{
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* RFC 4648, section 4. */
static bool base64_read(const char *text, size_t n, lm_buffer *out, lm_status *s, lm_error *err)
{
  if (n == 0 || n % 4 != 0) return false;
  size_t padding = (text[n - 1] == '=') + (text[n - 1] == '=' && text[n - 2] == '=');
  out->size = 0;
  for (size_t i = 0; i < n; i += 4) {
    size_t bytes = i + 4 < n ? 3 : 3 - padding;
    uint32_t bits = 0;
    for (size_t k = 0; k < 4; k++) {
      int digit = k <= bytes ? base64_digit(text[i + k]) : 0;
      if (digit < 0) return false;
      bits = bits << 6 | (uint32_t)digit;
    }
    char three[3] = {(char)(bits >> 16), (char)(bits >> 8), (char)bits};
    *s = lm_buffer_append(out, three, bytes, err);
    if (*s != LM_OK) return true;
  }
  return true;
}

static lm_status read_rank(lm_vocab *v, const line *l, lm_buffer *token, lm_error *err)
{
  const char *space = memchr(l->text, ' ', l->n);
  size_t n = space != NULL ? (size_t)(space - l->text) : 0, at = n + 1;
  lm_status s = LM_OK;
  uint32_t rank = 0;
  bool good = space != NULL && at < l->n && l->n - at <= 9;
  for (; good && at < l->n; at++) {
    good = l->text[at] >= '0' && l->text[at] <= '9';
    rank = rank * 10 + (uint32_t)(l->text[at] - '0');
  }
  if (!good || !base64_read(l->text, n, token, &s, err))
    return lm_fail(err, LM_EINVAL, "'%.*s' is not \"base64 rank\"", l->n < 60 ? (int)l->n : 60, l->text);
  return s == LM_OK ? lm_vocab_add(v, rank, token->data, token->size, err) : s;
}

static lm_status fill_from_ranks(lm_vocab *v, const char *path, const lm_buffer *text, lm_error *err)
{
  lm_buffer token = {0};
  lm_status s = LM_OK;
  line l = {0};
  uint32_t ranks = 0;
  for (size_t at = 0; s == LM_OK && next_line(text, &at, &l);) {
    if (l.n == 0) continue;
    s = read_rank(v, &l, &token, err);
    if (s != LM_OK) s = lm_fail_in(err, s, "%s:%zu", path, l.number);
    ranks++;
  }
  lm_buffer_free(&token);
  LM_TRY(s);
  LM_TRY(settle_pattern(v, path, ranks, err));
  s = add_specials(v, ranks, err);
  if (s == LM_OK) s = lm_vocab_finish(v, err);
  return s == LM_OK ? LM_OK : lm_fail_in(err, s, "%s", path);
}

lm_status lm_vocab_read_ranks(lm_vocab **out, const char *path, const lm_buffer *text, lm_pattern pattern,
                              lm_error *err)
{
  LM_TRY(lm_vocab_new(out, pattern, err));
  (*out)->by_rank = (*out)->whole_first = true;
  return fill_from_ranks(*out, path, text, err);
}

/* ---- vocab.bpe: a line is "left right" in the byte alphabet; ids are bytes, then merges by line, then the end of text
 */

/* The two halves of a line as bytes, one behind the other; *cut is where the second begins. */
static lm_status read_merge(const line *l, lm_buffer *joined, size_t *cut, lm_error *err)
{
  const char *space = memchr(l->text, ' ', l->n);
  size_t n = space != NULL ? (size_t)(space - l->text) : 0;
  bool left = false, right = false;
  joined->size = 0;
  if (n > 0 && n + 1 < l->n) {
    LM_TRY(lm_alphabet_read(joined, l->text, n, &left, err));
    *cut = joined->size;
    LM_TRY(lm_alphabet_read(joined, space + 1, l->n - n - 1, &right, err));
  }
  if (left && right) return LM_OK;
  return lm_fail(err, LM_EINVAL, "'%.*s' is not \"left right\" in GPT-2's byte alphabet", l->n < 60 ? (int)l->n : 60,
                 l->text);
}

static lm_status add_joined(lm_vocab *v, const line *l, lm_buffer *joined, lm_error *err)
{
  size_t cut;
  LM_TRY(read_merge(l, joined, &cut, err));
  return lm_vocab_add(v, v->size, joined->data, joined->size, err);
}

static lm_status add_merge(lm_vocab *v, const line *l, lm_buffer *joined, lm_error *err)
{
  size_t cut;
  LM_TRY(read_merge(l, joined, &cut, err));
  lm_merge m = {.left = lm_vocab_find(v, joined->data, cut),
                .right = lm_vocab_find(v, joined->data + cut, joined->size - cut),
                .id = lm_vocab_find(v, joined->data, joined->size)};
  if (m.left == LM_NO_ID || m.right == LM_NO_ID)
    return lm_fail(err, LM_EINVAL, "'%.*s' merges a token that no line makes", (int)l->n, l->text);
  return lm_vocab_add_merge(v, m, err);
}

static lm_status each_merge(lm_vocab *v, const char *path, const lm_buffer *text,
                            lm_status (*add)(lm_vocab *, const line *, lm_buffer *, lm_error *), lm_error *err)
{
  static const char header[] = "#version";
  lm_buffer joined = {0};
  lm_status s = LM_OK;
  line l = {0};
  for (size_t at = 0; s == LM_OK && next_line(text, &at, &l);) {
    bool is_header = l.number == 1 && l.n >= sizeof header - 1 && memcmp(l.text, header, sizeof header - 1) == 0;
    if (l.n == 0 || is_header) continue;
    s = add(v, &l, &joined, err);
    if (s != LM_OK) s = lm_fail_in(err, s, "%s:%zu", path, l.number);
  }
  lm_buffer_free(&joined);
  return s;
}

lm_status lm_vocab_read_bpe(lm_vocab **out, const char *path, const lm_buffer *text, lm_pattern pattern, lm_error *err)
{
  static const char end_of_text[] = "<|endoftext|>";
  LM_TRY(lm_vocab_new(out, pattern == LM_PATTERN_AUTO ? LM_PATTERN_GPT2 : pattern, err));
  lm_vocab *v = *out;
  for (unsigned i = 0; i < 256; i++) LM_TRY(lm_vocab_add(v, i, &(char){(char)lm_alphabet_byte(i)}, 1, err));
  LM_TRY(each_merge(v, path, text, add_joined, err));
  LM_TRY(lm_vocab_add_special(v, v->size, end_of_text, sizeof end_of_text - 1, false, err));
  lm_status s = lm_vocab_index(v, err);
  if (s != LM_OK) return lm_fail_in(err, s, "%s", path);
  LM_TRY(each_merge(v, path, text, add_merge, err));
  s = lm_vocab_finish(v, err);
  return s == LM_OK ? LM_OK : lm_fail_in(err, s, "%s", path);
}
