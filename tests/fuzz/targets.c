/* tests/fuzz/targets.c - the readers of files that others make, each fed with bytes that may be anything. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/fuzz/targets.h"

#include "batch/import.h"
#include "text/decompress.h"
#include "text/json_line.h"
#include "text/split_regex.h"
#include "text/vocab_build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SEED(text)                                                                                                     \
  {                                                                                                                    \
    text, sizeof text - 1                                                                                              \
  }

static void copy(lm_buffer *b, const uint8_t *bytes, size_t n)
{
  lm_error err;
  if (lm_buffer_append(b, bytes != NULL ? (const char *)bytes : "", n, &err) != LM_OK) abort();
}

static void run_json_line(const uint8_t *bytes, size_t n)
{
  lm_buffer line = {0};
  lm_error err;
  const char *text;
  size_t size;
  uint64_t lone = 0;
  copy(&line, bytes, n);
  lm_json_line_is_blank(line.data, n);
  lm_status s = lm_json_line_text(line.data, n, "text", &text, &size, &lone, &err);
  if (s == LM_OK && (text < line.data || text + size > line.data + n)) abort();
  lm_buffer_free(&line);
}

/* What was loaded is used: encoding must not fall over what loading let pass. */
static void use_vocab(const lm_vocab *v)
{
  static const char text[] = "the hen's 12345 abab  \n\xe6\x97\xa5\xff <|endoftext|>";
  lm_encoder *e;
  lm_ids ids = {0};
  lm_error err;
  if (lm_encoder_new(&e, v, &err) != LM_OK) abort();
  if (lm_encode(e, text, sizeof text - 1, true, &ids, &err) == LM_OK)
    for (size_t i = 0; i < ids.size; i++)
      if (ids.data[i] >= lm_vocab_size(v)) abort();
  lm_ids_free(&ids);
  lm_encoder_free(e);
}

static void run_vocab(const uint8_t *bytes, size_t n, int reader)
{
  lm_buffer text = {0};
  lm_vocab *v = NULL;
  lm_error err;
  copy(&text, bytes, n);
  lm_status s = reader == 0   ? lm_vocab_read_json(&v, "x", &text, &err)
                : reader == 1 ? lm_vocab_read_ranks(&v, "x", &text, LM_PATTERN_CL100K, &err)
                              : lm_vocab_read_bpe(&v, "x", &text, LM_PATTERN_GPT2, &err);
  if (s == LM_OK) use_vocab(v);
  lm_vocab_free(v);
  lm_buffer_free(&text);
}

static void run_json(const uint8_t *bytes, size_t n)
{
  run_vocab(bytes, n, 0);
}

static void run_ranks(const uint8_t *bytes, size_t n)
{
  run_vocab(bytes, n, 1);
}

static void run_bpe(const uint8_t *bytes, size_t n)
{
  run_vocab(bytes, n, 2);
}

static void run_packed(const uint8_t *bytes, size_t n)
{
  enum { MOST = 1 << 24 }; /* a few bytes can stand for gigabytes */
  char path[64], out[4096];
  lm_source *s;
  lm_error err;
  size_t got, total = 0;
  int fd = memfd_create("fuzz", 0);
  if (fd < 0 || write(fd, bytes, n) != (ssize_t)n) abort();
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  if (lm_source_open(&s, path, &err) == LM_OK)
    while (lm_source_read(s, out, sizeof out, &got, &err) == LM_OK && got > 0 && (total += got) < MOST) continue;
  lm_source_close(s);
  close(fd);
}

static void run_megatron(const uint8_t *bytes, size_t n)
{
  lm_megatron m;
  lm_error err;
  char *exact = malloc(n + 1); /* so that a sanitizer sees a read behind the end */
  if (n > 0) memcpy(exact, bytes, n);
  if (lm_megatron_read(&m, exact, n, 1 << 20, &err) == LM_OK && m.sequences > 0) {
    uint64_t last;
    memcpy(&last, m.ends + 8 * m.documents, sizeof last);
    if (last > m.sequences) abort();
  }
  free(exact);
}

static const fuzz_seed json_lines[] = {
    SEED("{\"text\":\"a\\u00e9\\ud83d\\ude00\\n\",\"x\":[1,-2.5e3,{\"y\":null}],\"z\":NaN}"),
    SEED(" {\"meta\": {\"text\": true}, \"text\" : \"\\\"\\\\\\/\\b\" } "),
    {NULL, 0}};
static const fuzz_seed jsons[] = {
    SEED("{\"added_tokens\":[{\"id\":5,\"content\":\"<|endoftext|>\",\"special\":true}],\"pre_tokenizer\":{\"type\":"
         "\"ByteLevel\",\"add_prefix_space\":false},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,"
         "\"\xc4\xa0\":3,\"t\":4},\"merges\":[\"a b\"]}}"),
    SEED("{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
         "\"b\\\\w*|\\\\s+\"},\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
         "\"use_regex\":false}]},\"model\":{\"ignore_merges\":true,\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},"
         "\"merges\":[[\"a\",\"b\"]]}}"),
    {NULL, 0}};
static const fuzz_seed ranks[] = {SEED("YQ== 0\nYg== 1\nYWI= 2\nIA== 3\nYWJhYg== 4\n"), {NULL, 0}};
static const fuzz_seed bpes[] = {SEED("#version: 0.2\n\xc4\xa0 t\nh e\n\xc4\xa0t he\na b\nab ab\n"), {NULL, 0}};
static const fuzz_seed packeds[] = {
    SEED("\x1f\x8b\x08\0\0\0\0\0\0\x03\x4b\x04\0\x43\xbe\xb7\xe8\x01\0\0\0"), /* gzip of "a" */
    SEED("\x28\xb5\x2f\xfd\x20\x01\x09\0\0\x61"),                             /* zstd of "a" */
    SEED("\x50\x2a\x4d\x18\x04\0\0\0abcd\x28\xb5\x2f\xfd\x20\x01\x09\0\0\x61"),
    SEED("plain"),
    {NULL, 0}};
static const fuzz_seed megatrons[] = {
    SEED("MMIDIDX\0\0\x01\0\0\0\0\0\0\0\x08\x02\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0" /* u16, 2 sequences, 1 document */
         "\x03\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0"),
    {NULL, 0}};

const fuzz_target fuzz_targets[] = {{"json_line", run_json_line, json_lines},
                                    {"tokenizer_json", run_json, jsons},
                                    {"tiktoken", run_ranks, ranks},
                                    {"vocab_bpe", run_bpe, bpes},
                                    {"packed", run_packed, packeds},
                                    {"megatron_idx", run_megatron, megatrons},
                                    {NULL, NULL, NULL}};
