/* src/text/split_regex.c - text -> pieces by a regular expression that a tokenizer.json brings, matched by PCRE2. */
/* SPDX-License-Identifier: BSD-3-Clause */
#define PCRE2_CODE_UNIT_WIDTH 8

#include "text/split_regex.h"
#include "base/memory.h"

#include <pcre2.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct lm_regex {
  char *text;
  pcre2_code *code;
};

struct lm_regex_walk {
  const lm_regex *r;
  pcre2_match_data *match;
  const char *text;
  size_t n;
  size_t begin, end; /* the next match; begin n: there is none */
};

/* White_Space (Unicode, PropList.txt), to stand in brackets. */
static const char white_space[] = "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
                                  "\\x{205f}\\x{3000}";

/* What PCRE2 would take and mean something else by. */
static const char *foreign_syntax(const char *c, bool in_brackets)
{
  if (c[0] == '\\' && c[1] == 'S' && in_brackets) return "\\S in brackets";
  if (c[0] == '\\' && (c[1] == 'h' || c[1] == 'H')) return "\\h, a hexadecimal digit to some and white space to PCRE2,";
  if (c[0] == '&' && c[1] == '&' && in_brackets) return "an intersection of classes (&&)";
  return NULL;
}

static lm_status translate(const char *regex, lm_buffer *out, lm_error *err)
{
  bool in_brackets = false;
  for (const char *c = regex; *c != '\0'; c++) {
    const char *foreign = foreign_syntax(c, in_brackets);
    if (foreign != NULL) return lm_fail(err, LM_EINVAL, "%s cannot be honoured", foreign);
    if (*c != '\\' || c[1] == '\0') {
      in_brackets = *c == '[' || (in_brackets && *c != ']');
      LM_TRY(lm_buffer_append(out, c, 1, err));
    } else if (c[1] == 's' || c[1] == 'S') {
      LM_TRY(lm_buffer_printf(out, err, in_brackets ? "%s%s" : "[%s%s]", c[1] == 'S' ? "^" : "", white_space));
      c++;
    } else {
      LM_TRY(lm_buffer_append(out, c++, 2, err));
    }
  }
  return lm_buffer_append(out, "", 0, err);
}

static lm_status compile(lm_regex *r, const char *regex, lm_error *err)
{
  lm_buffer translated = {0};
  PCRE2_UCHAR words[128] = "";
  int code = 0;
  PCRE2_SIZE at = 0;
  LM_TRY(lm_alloc(&r->text, strlen(regex) + 1, 1, "a regular expression", err));
  strcpy(r->text, regex);
  lm_status s = translate(regex, &translated, err);
  if (s == LM_OK)
    r->code = pcre2_compile((PCRE2_SPTR)translated.data, translated.size,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &code, &at, NULL);
  lm_buffer_free(&translated);
  if (s != LM_OK || r->code != NULL) return s;
  pcre2_get_error_message(code, words, sizeof words);
  return lm_fail(err, LM_EINVAL, "PCRE2 does not compile it: %s", (const char *)words);
}

lm_status lm_regex_new(lm_regex **out, const char *regex, lm_error *err)
{
  LM_TRY(lm_alloc(out, 1, sizeof **out, "a regular expression", err));
  lm_status s = compile(*out, regex, err);
  if (s == LM_OK) {
    pcre2_jit_compile((*out)->code, PCRE2_JIT_COMPLETE); /* where it cannot, matching is slower */
    return LM_OK;
  }
  lm_regex_free(*out);
  *out = NULL;
  return s;
}

void lm_regex_free(lm_regex *r)
{
  if (r == NULL) return;
  pcre2_code_free(r->code);
  free(r->text);
  free(r);
}

const char *lm_regex_text(const lm_regex *r)
{
  return r->text;
}

lm_status lm_regex_walk_new(lm_regex_walk **out, const lm_regex *r, lm_error *err)
{
  LM_TRY(lm_alloc(out, 1, sizeof **out, "a regular expression", err));
  (*out)->r = r;
  (*out)->match = pcre2_match_data_create(1, NULL);
  if ((*out)->match != NULL) return LM_OK;
  lm_regex_walk_free(*out);
  *out = NULL;
  return lm_fail(err, LM_ENOMEM, "no memory to match a regular expression");
}

void lm_regex_walk_free(lm_regex_walk *w)
{
  if (w == NULL) return;
  pcre2_match_data_free(w->match);
  free(w);
}

void lm_regex_walk_begin(lm_regex_walk *w, const char *text, size_t n)
{
  w->text = text;
  w->n = n;
  w->begin = w->end = 0;
}

/* The next match at or behind `at` that is not empty. */
static lm_status find(lm_regex_walk *w, size_t at, lm_error *err)
{
  PCRE2_SPTR text = (PCRE2_SPTR)w->text;
  uint32_t options = PCRE2_NOTEMPTY;
  int found = pcre2_match(w->r->code, text, w->n, at, options, w->match, NULL);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter takes its memory from the heap */
    found = pcre2_match(w->r->code, text, w->n, at, options | PCRE2_NO_JIT, w->match, NULL);
  w->begin = w->end = w->n;
  if (found == PCRE2_ERROR_NOMATCH) return LM_OK;
  if (found < 0) {
    PCRE2_UCHAR words[128] = "";
    pcre2_get_error_message(found, words, sizeof words);
    return lm_fail(err, LM_EINVAL, "the split expression '%.200s' fails at byte %zu of a text of %zu: %s", w->r->text,
                   at, w->n, (const char *)words);
  }
  const PCRE2_SIZE *span = pcre2_get_ovector_pointer(w->match);
  w->begin = span[0];
  w->end = span[1];
  return LM_OK;
}

lm_status lm_regex_walk_next(lm_regex_walk *w, size_t at, size_t *piece, lm_error *err)
{
  LM_ASSERT(at < w->n);
  if (at >= w->end) LM_TRY(find(w, at, err));
  *piece = (at < w->begin ? w->begin : w->end) - at;
  return LM_OK;
}
