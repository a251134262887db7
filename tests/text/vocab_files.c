/* tests/text/vocab_files.c - small vocabulary files for tests. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/text/vocab_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void write_file(const char *path, const char *text, size_t n)
{
  FILE *f = fopen(path, "wb");
  if (f == NULL || fwrite(text, 1, n, f) != n || fclose(f) != 0) {
    printf("Bail out! cannot write %s\n", path);
    exit(99);
  }
}

void remove_file(const char *path)
{
  unlink(path);
}

const char *ids_of(const lm_vocab *v, const char *text, size_t n, bool specials)
{
  static char words[4096];
  lm_encoder *e;
  lm_ids ids = {0};
  lm_error err = {0};
  size_t at = 0;
  words[0] = '\0';
  lm_status s = lm_encoder_new(&e, v, &err);
  if (s == LM_OK) s = lm_encode(e, text, n, specials, &ids, &err);
  if (s != LM_OK) snprintf(words, sizeof words, "error: %s", err.text);
  for (size_t i = 0; s == LM_OK && i < ids.size && at + 12 < sizeof words; i++)
    at += (size_t)snprintf(words + at, sizeof words - at, i > 0 ? " %u" : "%u", ids.data[i]);
  lm_ids_free(&ids);
  lm_encoder_free(e);
  return words;
}

bool decodes_to(const lm_vocab *v, const lm_ids *ids, const char *text, size_t n)
{
  size_t at = 0, length;
  for (size_t i = 0; i < ids->size; i++) {
    const char *bytes = lm_vocab_bytes(v, ids->data[i], &length);
    if (bytes == NULL || length > n - at || memcmp(bytes, text + at, length) != 0) return false;
    at += length;
  }
  return at == n;
}
