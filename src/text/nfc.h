/* src/text/nfc.h - Unicode Normalization Form C, for vocabularies that ask for it. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TEXT_NFC_H
#define LM_TEXT_NFC_H

#include "base/memory.h"
#include <stdbool.h>

/* Scratch of one thread; zero-initialise; free with lm_nfc_free(). */
typedef struct lm_nfc {
  uint32_t *chars; /* decomposed: what lies between two characters that nothing can change */
  uint64_t *marks; /* to sort */
  size_t n, capacity, marks_capacity;
} lm_nfc;

/** Is a text in NFC, as far as its characters say one by one (UAX #15, section 9)? Local. false: it may be. */
bool lm_nfc_quick(const char *text, size_t n);

/** Append a text in NFC (Unicode Standard Annex #15, of lm_unicode_version). Local. Bytes that are not UTF-8 stay, and
 *  nothing composes across them. Time n log n on every input. LM_ENOMEM */
lm_status lm_nfc_append(lm_nfc *s, const char *text, size_t n, lm_buffer *out, lm_error *err) LM_NODISCARD;
void lm_nfc_free(lm_nfc *s);

#endif
