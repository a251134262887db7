/* src/command/input_options.h - the options of every subcommand that reads documents. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_COMMAND_INPUT_OPTIONS_H
#define LM_COMMAND_INPUT_OPTIONS_H

#include "base/options.h"
#include "text/documents.h"

typedef struct lm_input_options {
  const char *text_key, *separator;
  int64_t max_bad, first_bytes;
  int format, on_bad;
} lm_input_options;

/* Their rows in the option table of a subcommand. @param at  offset of its lm_input_options */
#define LM_INPUT_ROWS(at)                                                                                              \
  {"format",                                                                                                           \
   LM_OPT_CHOICE,                                                                                                      \
   (at) + offsetof(lm_input_options, format),                                                                          \
   "auto",                                                                                                             \
   LM_FORMAT_WORDS,                                                                                                    \
   NULL,                                                                                                               \
   "what the input holds; auto goes by the names of the files"},                                                       \
      {"text-key",                                                                                                     \
       LM_OPT_STRING,                                                                                                  \
       (at) + offsetof(lm_input_options, text_key),                                                                    \
       "text",                                                                                                         \
       NULL,                                                                                                           \
       NULL,                                                                                                           \
       "the key of a JSON line's text"},                                                                               \
      {"document-separator",                                                                                           \
       LM_OPT_STRING,                                                                                                  \
       (at) + offsetof(lm_input_options, separator),                                                                   \
       "",                                                                                                             \
       NULL,                                                                                                           \
       NULL,                                                                                                           \
       "splits a text file into documents; \\n, \\t, \\r and \\\\ are understood; empty: a file is one document"},     \
      {"on-bad",    LM_OPT_CHOICE, (at) + offsetof(lm_input_options, on_bad), "stop",                                  \
       "stop|skip", NULL,          "what to do with a broken JSON line"},                                              \
      {"max-bad",  LM_OPT_INT, (at) + offsetof(lm_input_options, max_bad),     "1000",                                 \
       "[0, inf)", "lines",    "stop all the same after so many skipped lines"},                                       \
  {                                                                                                                    \
    "first-bytes", LM_OPT_INT, (at) + offsetof(lm_input_options, first_bytes), "0", "[0, inf)", "bytes",               \
        "the document that reaches this much text is the last; 0: all"                                                 \
  }

/** What lm_documents_open() wants. Local.
 *  @param[out] separator  holds the separator's bytes; out points into it and into o; the caller's to free
 *  @return LM_EINVAL where a backslash in the separator starts no known escape; LM_ENOMEM */
lm_status lm_input_config(const lm_input_options *o, lm_buffer *separator, lm_documents_config *out,
                          lm_error *err) LM_NODISCARD;

#endif
