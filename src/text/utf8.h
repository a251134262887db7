/* src/text/utf8.h - where bytes stop being UTF-8, and how much of them is bad. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TEXT_UTF8_H
#define LM_TEXT_UTF8_H

#include "base/memory.h"

/** How many of n bytes, from the first on, are valid UTF-8 (Unicode 15, table 3-7). Local. */
size_t lm_utf8_valid(const char *text, size_t n);

/** Length of the bad sequence at text, 1 to 3: a maximal subpart of an ill-formed one (Unicode 15, section 3.9), which
 *  is what a decoder replaces by one U+FFFD. Local. @param text n >= 1 bytes that are not valid from the first on */
size_t lm_utf8_bad(const char *text, size_t n);

/** Count the bad sequences of a text, and append the text with U+FFFD in the place of each. Local.
 *  @param out  NULL: only count @param[in,out] bad  they are added @return LM_ENOMEM */
lm_status lm_utf8_replace(const char *text, size_t n, lm_buffer *out, uint64_t *bad, lm_error *err) LM_NODISCARD;

/* What becomes of bytes that are not UTF-8: they stay; each bad sequence becomes U+FFFD; the document is broken. */
typedef enum lm_invalid_utf8 { LM_INVALID_KEEP, LM_INVALID_REPLACE, LM_INVALID_REJECT } lm_invalid_utf8;
#define LM_INVALID_WORDS "keep|replace|reject" /* for option tables, in the order of the enum */

/** The words for a text whose first bad byte is at `at`. Local. */
lm_status lm_utf8_reject(const char *text, size_t at, lm_error *err);

#endif
