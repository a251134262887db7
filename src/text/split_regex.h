/* src/text/split_regex.h - text -> pieces by a regular expression that a tokenizer.json brings, matched by PCRE2. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TEXT_SPLIT_REGEX_H
#define LM_TEXT_SPLIT_REGEX_H

#include "base/status.h"

typedef struct lm_regex lm_regex; /* opaque, immutable: threads may share it */

/** Compile an expression. Local. \s and \S are White_Space and the rest, in and outside brackets, as in the libraries
 *  that such files are written for (PCRE2's own \s has U+180E too); classes of characters are those of PCRE2's Unicode.
 *  @param regex  0-terminated UTF-8 @return LM_EINVAL with PCRE2's words, or for \S in brackets; LM_ENOMEM */
lm_status lm_regex_new(lm_regex **out, const char *regex, lm_error *err) LM_NODISCARD;
void lm_regex_free(lm_regex *r);
const char *lm_regex_text(const lm_regex *r);

typedef struct lm_regex_walk lm_regex_walk; /* opaque: one walk through a text at a time */
lm_status lm_regex_walk_new(lm_regex_walk **out, const lm_regex *r, lm_error *err) LM_NODISCARD;
void lm_regex_walk_free(lm_regex_walk *w);

/** Begin to walk a text of n bytes. Local. Bytes that are not UTF-8 match nothing. */
void lm_regex_walk_begin(lm_regex_walk *w, const char *text, size_t n);

/** Bytes of the piece that begins at byte `at`, the end of the one before: a match, or what lies before the next one.
 *  Local. at < n. @return LM_EINVAL where the expression needs more than PCRE2's limits on this text */
lm_status lm_regex_walk_next(lm_regex_walk *w, size_t at, size_t *piece, lm_error *err) LM_NODISCARD;

#endif
