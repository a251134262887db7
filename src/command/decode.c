/* src/command/decode.c - mpilm decode: ids on standard input -> the bytes that they stand for. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "command/command.h"

#include "base/file.h"
#include "text/vocab.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

struct decode_options {
  const char *vocab;
  int pattern;
};

static const lm_option options[] = {
    {"vocab", LM_OPT_STRING, offsetof(struct decode_options, vocab), NULL, NULL, NULL,
     "the vocabulary: bytes, tokenizer.json, *.tiktoken or vocab.bpe"},
    {"pattern", LM_OPT_CHOICE, offsetof(struct decode_options, pattern), "auto", LM_PATTERN_WORDS_OR_AUTO, NULL,
     "the pattern that a rank file was made for: it decides the special tokens"},
};

/* The id that a word spells, and its bytes. */
static lm_status read_id(const lm_vocab *v, const char *word, size_t length, const char **bytes, size_t *n,
                         lm_error *err)
{
  uint64_t id = 0;
  int shown = length < 40 ? (int)length : 40;
  for (size_t i = 0; i < length; i++) {
    if (!isdigit((unsigned char)word[i]))
      return lm_fail(err, LM_EINVAL, "'%.*s' is no id, a number was wanted", shown, word);
    if (id < UINT32_MAX) id = id * 10 + (uint64_t)(word[i] - '0');
  }
  if (id >= lm_vocab_size(v))
    return lm_fail(err, LM_EINVAL, "id %.*s is not in the vocabulary, whose ids are [0, %u)", shown, word,
                   lm_vocab_size(v));
  *bytes = lm_vocab_bytes(v, (uint32_t)id, n);
  if (*bytes == NULL) return lm_fail(err, LM_EINVAL, "id %.*s stands for nothing in this vocabulary", shown, word);
  return LM_OK;
}

static lm_status decode(const lm_vocab *v, const lm_buffer *text, lm_error *err)
{
  size_t line = 1, n, length;
  const char *bytes;
  for (size_t i = 0; i < text->size; i += length) {
    const char *word = text->data + i;
    length = 1;
    if (*word == '\n') line++;
    if (isspace((unsigned char)*word)) continue;
    while (i + length < text->size && !isspace((unsigned char)word[length])) length++;
    lm_status s = read_id(v, word, length, &bytes, &n, err);
    if (s != LM_OK) return lm_fail_in(err, s, "line %zu", line);
    if (fwrite(bytes, 1, n, stdout) != n) return lm_fail(err, LM_EIO, "cannot write to stdout");
  }
  return LM_OK;
}

static lm_status run(const lm_comm *comm, int argc, char **argv, lm_error *err)
{
  (void)comm;
  struct decode_options o;
  lm_options *parsed;
  lm_vocab *v;
  lm_buffer text = {0};
  LM_TRY(lm_command_options(&parsed, &lm_command_decode, &o, argc, argv, 0, 0, err));
  lm_status s = lm_vocab_load(&v, o.vocab, (lm_pattern)o.pattern, err);
  if (s == LM_OK) s = lm_file_read("-", &text, err);
  if (s == LM_OK) s = decode(v, &text, err);
  lm_buffer_free(&text);
  lm_vocab_free(v);
  lm_options_free(parsed);
  return s;
}

const lm_command lm_command_decode = {
    .name = "decode",
    .usage = "decode --vocab V [--pattern P] < IDS",
    .summary = "token ids on standard input to the bytes they stand for",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .run = run,
};
