/* src/command/encode.c - mpilm encode: text on standard input -> ids, one line a document. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "command/command.h"

#include "base/file.h"
#include "base/log.h"
#include "text/json_line.h"
#include "text/utf8.h"
#include "text/vocab.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct encode_options {
  const char *vocab, *text_key;
  int pattern, invalid_utf8;
  bool specials, jsonl;
};

static const lm_option options[] = {
    {"vocab", LM_OPT_STRING, offsetof(struct encode_options, vocab), NULL, NULL, NULL,
     "the vocabulary: bytes, tokenizer.json, *.tiktoken or vocab.bpe"},
    {"pattern", LM_OPT_CHOICE, offsetof(struct encode_options, pattern), "auto", LM_PATTERN_WORDS_OR_AUTO, NULL,
     "the split pattern of a vocabulary file that does not say its own"},
    {"specials", LM_OPT_BOOL, offsetof(struct encode_options, specials), "false", NULL, NULL,
     "text that spells a special token becomes that token"},
    {"jsonl", LM_OPT_BOOL, offsetof(struct encode_options, jsonl), "false", NULL, NULL,
     "each line is a JSON object with a document in it; else all of the input is one document"},
    {"text-key", LM_OPT_STRING, offsetof(struct encode_options, text_key), "text", NULL, NULL,
     "the key of the document in a JSON object"},
    {"invalid-utf8", LM_OPT_CHOICE, offsetof(struct encode_options, invalid_utf8), "keep", LM_INVALID_WORDS, NULL,
     "bytes that are not UTF-8 stay, become U+FFFD, or are an error"},
};

typedef struct job {
  const struct encode_options *o;
  lm_encoder *encoder;
  lm_ids ids;
  lm_buffer out, mended;
  uint64_t bad; /* sequences that are not UTF-8 */
} job;

/* Write a number below 10^8, and give back where the next character goes; 8 bytes may be written. All its digits at
 * once, without a branch: printf takes longer than the encoding does. */
static char *write_number(char *to, uint32_t x)
{
  static const uint64_t zeros = 0x3030303030303030;
  uint64_t tens, v = x / 10000 | (uint64_t)(x % 10000) << 32; /* halves of four digits, the first one lowest */
  tens = (v * 10486 >> 20) & 0x0000007f0000007f;              /* each / 100 */
  v = tens | (v - tens * 100) << 16;
  tens = (v * 103 >> 10) & 0x000f000f000f000f; /* each / 10 */
  v = tens | (v - tens * 10) << 8;
  int n = 1 + (x > 9) + (x > 99) + (x > 999) + (x > 9999) + (x > 99999) + (x > 999999) + (x > 9999999);
  v = (v | zeros) >> (64 - 8 * n);
  memcpy(to, &v, sizeof v);
  return to + n;
}

/* Bytes that are not UTF-8: counted, replaced or refused. */
static lm_status check_utf8(job *j, const char **text, size_t *n, lm_error *err)
{
  size_t at = lm_utf8_valid(*text, *n);
  if (at == *n) return LM_OK;
  if (j->o->invalid_utf8 == LM_INVALID_REJECT) return lm_utf8_reject(*text, at, err);
  if (j->o->invalid_utf8 == LM_INVALID_KEEP) return lm_utf8_replace(*text, *n, NULL, &j->bad, err);
  j->mended.size = 0;
  LM_TRY(lm_utf8_replace(*text, *n, &j->mended, &j->bad, err));
  *text = j->mended.data;
  *n = j->mended.size;
  return LM_OK;
}

/* Encode a document and print its line. */
static lm_status encode_document(job *j, const char *text, size_t n, lm_error *err)
{
  LM_TRY(check_utf8(j, &text, &n, err));
  j->ids.size = j->out.size = 0;
  LM_TRY(lm_encode(j->encoder, text, n, j->o->specials, &j->ids, err));
  LM_TRY(lm_buffer_reserve(&j->out, 9 * j->ids.size + 8, err));
  char *to = j->out.data;
  for (size_t i = 0; i < j->ids.size; i++) {
    if (i > 0) *to++ = ' ';
    to = write_number(to, j->ids.data[i]);
  }
  *to++ = '\n';
  j->out.size = (size_t)(to - j->out.data);
  if (fwrite(j->out.data, 1, j->out.size, stdout) == j->out.size) return LM_OK;
  return lm_fail(err, LM_EIO, "cannot write to stdout");
}

static lm_status encode_lines(job *j, lm_buffer *text, lm_error *err)
{
  uint64_t surrogates = 0;
  size_t number = 1, length;
  for (size_t at = 0; at < text->size; at += length + 1, number++) {
    char *line = text->data + at;
    const char *document, *end = memchr(line, '\n', text->size - at);
    size_t n;
    length = end != NULL ? (size_t)(end - line) : text->size - at;
    if (lm_json_line_is_blank(line, length)) continue;
    lm_status s = lm_json_line_text(line, length, j->o->text_key, &document, &n, &surrogates, err);
    if (s == LM_OK) s = encode_document(j, document, n, err);
    if (s != LM_OK) return lm_fail_in(err, s, "line %zu", number);
  }
  return LM_OK;
}

static lm_status encode(job *j, const lm_vocab *v, lm_error *err)
{
  lm_buffer text = {0};
  LM_TRY(lm_encoder_new(&j->encoder, v, err));
  lm_status s = lm_file_read("-", &text, err);
  if (s == LM_OK) s = j->o->jsonl ? encode_lines(j, &text, err) : encode_document(j, text.data, text.size, err);
  lm_buffer_free(&text);
  if (s == LM_OK && j->bad > 0)
    lm_warn("%" PRIu64 " byte sequences are not UTF-8 (--invalid-utf8 keep|replace|reject)", j->bad);
  lm_buffer_free(&j->out);
  lm_buffer_free(&j->mended);
  lm_ids_free(&j->ids);
  lm_encoder_free(j->encoder);
  return s;
}

static lm_status run(const lm_comm *comm, int argc, char **argv, lm_error *err)
{
  (void)comm;
  struct encode_options o;
  lm_options *parsed;
  lm_vocab *v;
  LM_TRY(lm_command_options(&parsed, &lm_command_encode, &o, argc, argv, 0, 0, err));
  lm_status s = lm_vocab_load(&v, o.vocab, (lm_pattern)o.pattern, err);
  if (s == LM_OK) s = encode(&(job){.o = &o}, v, err);
  lm_vocab_free(v);
  lm_options_free(parsed);
  return s;
}

const lm_command lm_command_encode = {
    .name = "encode",
    .usage = "encode --vocab V [--pattern P] [--specials] [--jsonl] < TEXT",
    .summary = "text on standard input to token ids, one line a document",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .run = run,
};
