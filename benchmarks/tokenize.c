/* benchmarks/tokenize.c - MiB/s of encoding on one core, by text, and of pieces of 1 to 8 MB. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "text/vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zlib.h>

/* usage: tokenize [VOCAB [FILE...]]: a vocabulary file (else a small one of pairs) on the named texts, on the English
 * of Debian's dict-gcide and on text made here. Documents of 4 KiB; the best of REPEATS passes over at most MOST bytes.
 */

enum { MOST = 16 << 20, DOCUMENT = 4096, REPEATS = 3 };

struct text {
  char name[64];
  lm_buffer bytes;
};

static uint32_t state = 1;

static uint32_t draw(uint32_t below)
{
  state = state * 1664525u + 1013904223u;
  return (uint32_t)((uint64_t)state * below >> 32);
}

static void add(lm_buffer *b, const char *bytes, size_t n)
{
  lm_error err;
  if (lm_buffer_append(b, bytes, n, &err) != LM_OK) abort();
}

static void add_character(lm_buffer *b, uint32_t c)
{
  char utf8[3] = {(char)(0xe0 | c >> 12), (char)(0x80 | (c >> 6 & 63)), (char)(0x80 | (c & 63))};
  add(b, utf8, 3);
}

/* Runs of ideographs and kana, in about the shares that prose has, from a few thousand words used as Zipf would. */
static void make_japanese(lm_buffer *b)
{
  while (b->size < MOST / 2) {
    uint32_t word = draw(1 + draw(4000)), saved = state;
    state = word * 2654435761u;
    for (uint32_t k = 1 + draw(2); k > 0; k--) add_character(b, 0x4e00 + draw(3000));
    for (uint32_t k = draw(4); k > 0; k--) add_character(b, 0x3041 + draw(83));
    state = saved;
    if (draw(9) == 0) add_character(b, draw(2) ? 0x3001 : 0x3002);
    if (draw(60) == 0) add(b, "\n", 1);
  }
}

static void make_code(lm_buffer *b)
{
  static const char *const words[] = {"int", "static", "return", "size_t", "for",
                                      "if",  "err",    "NULL",   "buffer", "lm_status"};
  static const char *const marks[] = {" ",        " = ", "(",   ");\n", ";\n  ",   ", ",
                                      " {\n    ", "->",  "[i]", " + ",  "\n}\n\n", " /* "};
  while (b->size < MOST / 2) {
    const char *word = words[draw(10)], *mark = marks[draw(12)];
    add(b, word, strlen(word));
    if (draw(4) == 0) add(b, "_x1", 3);
    add(b, mark, strlen(mark));
  }
}

/* gzip of any kind, or plain. */
static bool read_text(lm_buffer *b, const char *path)
{
  static char chunk[1 << 16];
  gzFile f = gzopen(path, "rb");
  int n;
  if (f == NULL) return false;
  while (b->size < MOST && (n = gzread(f, chunk, sizeof chunk)) > 0) add(b, chunk, (size_t)n);
  gzclose(f);
  return b->size > 0;
}

/* Processor time of this thread: on a busy machine closer to the truth than the clock on the wall. */
static double now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void encode_text(lm_encoder *e, const struct text *t, size_t document)
{
  lm_ids ids = {0};
  lm_error err;
  double best = 0;
  size_t count = 0;
  for (int k = 0; k < REPEATS; k++) {
    double begin = now();
    count = 0;
    for (size_t at = 0; at < t->bytes.size; at += document) {
      size_t n = t->bytes.size - at < document ? t->bytes.size - at : document;
      ids.size = 0;
      if (lm_encode(e, t->bytes.data + at, n, false, &ids, &err) != LM_OK) abort();
      count += ids.size;
    }
    double seconds = now() - begin;
    best = best == 0 || seconds < best ? seconds : best;
  }
  printf("%-24s %8.1f MiB/s  %6.3f bytes a token\n", t->name, (double)t->bytes.size / (1 << 20) / best,
         (double)t->bytes.size / (double)count);
  lm_ids_free(&ids);
}

static void encode_one_piece(lm_encoder *e, const char *name, char first, uint32_t letters, size_t n)
{
  struct text t = {.bytes = {0}};
  snprintf(t.name, sizeof t.name, "%s, %zu kB", name, n / 1000);
  for (size_t i = 0; i < n; i++) add(&t.bytes, &(char){(char)(first + (char)draw(letters))}, 1);
  encode_text(e, &t, n);
  lm_buffer_free(&t.bytes);
}

static void bench(lm_encoder *e, int argc, char **argv)
{
  struct text t = {.name = "English (dict-gcide)"};
  if (read_text(&t.bytes, "/usr/share/dictd/gcide.dict.dz")) encode_text(e, &t, DOCUMENT);
  lm_buffer_free(&t.bytes);
  make_japanese(&t.bytes);
  snprintf(t.name, sizeof t.name, "Japanese, made here");
  encode_text(e, &t, DOCUMENT);
  lm_buffer_free(&t.bytes);
  make_code(&t.bytes);
  snprintf(t.name, sizeof t.name, "C, made here");
  encode_text(e, &t, DOCUMENT);
  lm_buffer_free(&t.bytes);
  for (int i = 2; i < argc; i++) {
    snprintf(t.name, sizeof t.name, "%.60s", argv[i]);
    if (read_text(&t.bytes, argv[i])) encode_text(e, &t, DOCUMENT);
    lm_buffer_free(&t.bytes);
  }
  for (size_t n = 1000000; n <= 8000000; n *= 2) {
    encode_one_piece(e, "one letter", 'a', 1, n);
    encode_one_piece(e, "random letters", 'a', 26, n);
  }
}

int main(int argc, char **argv)
{
  lm_vocab *v;
  lm_encoder *e;
  lm_error err = {0};
  const char *path = argc > 1 ? argv[1] : "bytes";
  if (lm_vocab_load(&v, path, LM_PATTERN_AUTO, &err) != LM_OK || lm_encoder_new(&e, v, &err) != LM_OK) {
    fprintf(stderr, "%s\n", err.text);
    return 2;
  }
  printf("vocabulary %s, %u ids; one thread, processor time, the best of %d passes\n", path, lm_vocab_size(v), REPEATS);
  bench(e, argc, argv);
  lm_encoder_free(e);
  lm_vocab_free(v);
  return 0;
}
