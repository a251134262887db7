/* src/command/input_options.h - the options of every subcommand that reads documents. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_COMMAND_INPUT_OPTIONS_H
#define LM_COMMAND_INPUT_OPTIONS_H

#include "base/options.h"
#include "text/documents.h"

typedef struct lm_input_options {
  const char *text_key, *separator;
  int64_t max_bad, first_bytes;
  int format, on_bad, invalid_utf8;
} lm_input_options;

/* Their rows in the option table of a subcommand. @param at  offset of its lm_input_options */
#define LM_INPUT_AT(at, field) (at) + offsetof(lm_input_options, field)
/* clang-format off */
#define LM_INPUT_ROWS(at)                                                                                              \
  {"format", LM_OPT_CHOICE, LM_INPUT_AT(at, format), "auto", LM_FORMAT_WORDS, NULL,                                    \
   "what the input holds; auto goes by the names of the files"},                                                       \
  {"text-key", LM_OPT_STRING, LM_INPUT_AT(at, text_key), "text", NULL, NULL, "the key of a JSON line's text"},         \
  {"document-separator", LM_OPT_STRING, LM_INPUT_AT(at, separator), "", NULL, NULL,                                    \
   "splits a text file into documents; \\n, \\t, \\r and \\\\ are understood; empty: a file is one document"},         \
  {"invalid-utf8", LM_OPT_CHOICE, LM_INPUT_AT(at, invalid_utf8), "keep", LM_INVALID_WORDS, NULL,                       \
   "bytes that are not UTF-8 stay, become U+FFFD, or make a document a broken one"},                                   \
  {"on-bad", LM_OPT_CHOICE, LM_INPUT_AT(at, on_bad), "stop", "stop|skip", NULL,                                        \
   "what to do with a broken JSON line or document"},                                                                  \
  {"max-bad", LM_OPT_INT, LM_INPUT_AT(at, max_bad), "1000", "[0, inf)", "records",                                     \
   "stop all the same after so many skipped ones"},                                                                    \
  {"first-bytes", LM_OPT_INT, LM_INPUT_AT(at, first_bytes), "0", "[0, inf)", "bytes",                                  \
   "the document that reaches this much text is the last; 0: all"}
/* clang-format on */

/** What lm_documents_open() wants. Local.
 *  @param[out] separator  holds the separator's bytes; out points into it and into o; the caller's to free
 *  @return LM_EINVAL where a backslash in the separator starts no known escape; LM_ENOMEM */
lm_status lm_input_config(const lm_input_options *o, lm_buffer *separator, lm_documents_config *out,
                          lm_error *err) LM_NODISCARD;

/** Warn, on rank 0, of what reading had to leave out or change. Local.
 *  @param first_bad  lm_documents_first_bad() */
void lm_input_warn(const lm_documents_counts *c, const char *first_bad);

#endif
