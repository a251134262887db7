/* src/text/json_line.h - one line of JSON Lines -> the text under one key. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TEXT_JSON_LINE_H
#define LM_TEXT_JSON_LINE_H

#include "base/memory.h"
#include <stdbool.h>

/** Blanks only? Local. Such a line is no record. */
bool lm_json_line_is_blank(const char *line, size_t n);

/** The string under `key` of the object that a line holds. Local. Linear in n, whatever the bytes are.
 *  The whole line is checked (RFC 8259), with two allowances: NaN, Infinity and -Infinity are values, as Python writes
 *  them, and bytes that are not UTF-8 pass through strings unchanged. Of equal keys the last one counts. A \u escape
 * that is half a surrogate pair becomes U+FFFD; \u0000 is a NUL byte of the text.
 *  @param line  [n], without its line end; the string is decoded in place, so the line is used up
 *  @param[out] text  [size] inside the line
 *  @param[in,out] lone_surrogates  the halves found are added
 *  @return LM_EINVAL says what is wrong at which byte of the line (from 1), or which keys there are; LM_ENOMEM */
lm_status lm_json_line_text(char *line, size_t n, const char *key, const char **text, size_t *size,
                            uint64_t *lone_surrogates, lm_error *err) LM_NODISCARD;

#endif
