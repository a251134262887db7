/* src/text/split.h - text -> pieces: inside them tokens are merged, across them never. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TEXT_SPLIT_H
#define LM_TEXT_SPLIT_H

#include "text/vocab.h"

/** Bytes of the piece that begins at text, 1 <= result <= n. Local. Pieces follow each other without gaps, so that
 *  `for (size_t i = 0; i < n; i += lm_split_next(p, text + i, n - i))` walks all of a text; the whole rest of the text
 *  must be given, for a piece may depend on what follows it. A walk takes time linear in n.
 *  Bytes that are not UTF-8 count as characters that are neither letter nor number nor white space.
 *  @param text n >= 1 bytes */
size_t lm_split_next(lm_pattern pattern, const char *text, size_t n);

/** "gpt2", "cl100k", "o200k", "llama3". Local. */
const char *lm_pattern_name(lm_pattern pattern);

/** The regular expression that lm_split_next() does by hand, as a tokenizer.json spells it. Local. */
const char *lm_pattern_regex(lm_pattern pattern);

/** Find the pattern of a regular expression in any of its known spellings. Local. false where it is unknown. */
bool lm_pattern_of_regex(const char *regex, lm_pattern *pattern);

#endif
