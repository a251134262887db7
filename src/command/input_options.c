/* src/command/input_options.c - the options of every subcommand that reads documents. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "command/input_options.h"

#include "base/log.h"

#include <inttypes.h>
#include <string.h>

enum { ON_BAD_STOP, ON_BAD_SKIP };

/* "\n" as typed in a shell -> a line feed. */
static lm_status unescape(const char *text, lm_buffer *out, lm_error *err)
{
  static const char letters[] = "ntr\\", bytes[] = "\n\t\r\\";
  LM_TRY(lm_buffer_append(out, "", 0, err));
  for (const char *c = text; *c != '\0'; c++) {
    char byte = *c;
    if (byte == '\\') {
      const char *letter = c[1] != '\0' ? strchr(letters, *++c) : NULL;
      if (letter == NULL)
        return lm_fail(err, LM_EINVAL, "--document-separator '%s': want \\n, \\t, \\r or \\\\ after a backslash", text);
      byte = bytes[letter - letters];
    }
    LM_TRY(lm_buffer_append(out, &byte, 1, err));
  }
  return LM_OK;
}

lm_status lm_input_config(const lm_input_options *o, lm_buffer *separator, lm_documents_config *out, lm_error *err)
{
  separator->size = 0;
  LM_TRY(unescape(o->separator, separator, err));
  *out = (lm_documents_config){
      .text_key = o->text_key,
      .separator = separator->data,
      .skip_bad = o->on_bad == ON_BAD_SKIP,
      .max_bad = o->max_bad,
      .first_bytes = o->first_bytes,
      .format = (lm_format)o->format,
      .invalid_utf8 = (lm_invalid_utf8)o->invalid_utf8,
  };
  return LM_OK;
}

void lm_input_warn(const lm_documents_counts *c, const char *first_bad)
{
  if (c->bad > 0) lm_warn("%" PRIu64 " broken records were skipped; the first: %s", c->bad, first_bad);
  if (c->lone_surrogates > 0)
    lm_warn("%" PRIu64 " halves of surrogate pairs in JSON strings became U+FFFD", c->lone_surrogates);
  if (c->invalid_utf8 > 0)
    lm_warn("%" PRIu64 " byte sequences are not UTF-8 (--invalid-utf8 keep|replace|reject)", c->invalid_utf8);
}
