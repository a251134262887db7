/* src/text/utf8.h - where bytes stop being UTF-8, and how much of them is bad. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TEXT_UTF8_H
#define LM_TEXT_UTF8_H

#include <stddef.h>

/** How many of n bytes, from the first on, are valid UTF-8 (Unicode 15, table 3-7). Local. */
size_t lm_utf8_valid(const char *text, size_t n);

/** Length of the bad sequence at text, 1 to 3: a maximal subpart of an ill-formed one (Unicode 15, section 3.9), which
 *  is what a decoder replaces by one U+FFFD. Local. @param text n >= 1 bytes that are not valid from the first on */
size_t lm_utf8_bad(const char *text, size_t n);

#endif
