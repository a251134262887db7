/* tests/reader/test_vocab_train.c - one vocabulary, however the text is spread over ranks and files. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/rng.h"
#include "tests/tap.h"
#include "text/piece_counts.h"
#include "text/vocab_train.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char scratch[PATH_MAX];
static const lm_documents_config by_blank_line = {.text_key = "text", .separator = "\n\n"};

/* A megabyte of words that repeat unevenly, a document a line pair, cut into n files between documents. */
static void write_corpus(const char *name, int n)
{
  enum { DOCUMENTS = 20000 };
  FILE *f = NULL;
  for (uint64_t i = 0; i < DOCUMENTS; i++) {
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s%d.txt", scratch, name, (int)(i * (uint64_t)n / DOCUMENTS));
    if (i == 0 || i * (uint64_t)n / DOCUMENTS != (i - 1) * (uint64_t)n / DOCUMENTS) {
      if (f != NULL) fclose(f);
      f = fopen(path, "wb");
    }
    for (uint64_t k = 0; k < 10; k++) {
      uint32_t w[4];
      lm_random_words(9, LM_STREAM_SAMPLE, i, k, w);
      for (uint32_t c = 0; c < 2 + w[0] % 5; c++) fputc('a' + (int)((w[1] >> (4 * c) & 15) * (w[2] >> c & 1)), f);
      fputc(k % 4 == 3 ? '\n' : ' ', f);
    }
    fputs("\n\n", f);
  }
  fclose(f);
}

static uint64_t train(const lm_comm *comm, const char *name, int n, int64_t size, lm_vocab_report *report)
{
  static char paths[5][PATH_MAX + 64];
  const char *list[5];
  for (int i = 0; i < n; i++) {
    snprintf(paths[i], sizeof paths[i], "%s/%s%d.txt", scratch, name, i);
    list[i] = paths[i];
  }
  lm_vocab *v;
  lm_error err = {0};
  lm_status s = lm_vocab_train(&v, comm, list, (size_t)n, &by_blank_line, size, LM_PATTERN_GPT2, report, &err);
  if (s != LM_OK) fprintf(stderr, "# %s\n", err.text);
  uint64_t fingerprint = s == LM_OK && lm_vocab_size(v) == size ? lm_vocab_fingerprint(v) : 0;
  lm_vocab_free(v);
  return fingerprint;
}

static void check_same(const lm_comm *comm)
{
  enum { SIZE = 1000 };
  lm_comm self;
  lm_comm_self(&self);
  lm_vocab_report alone, together, split;
  uint64_t want = train(&self, "one", 1, SIZE, &alone);
  tap_ok(want != 0 && alone.read.documents == 20000 && alone.merges == SIZE - 257, "one rank, one file");
  tap_ok(train(comm, "one", 1, SIZE, &together) == want, "%d ranks: the same vocabulary", comm->size);
  tap_ok(together.pieces == alone.pieces && together.read.bytes == alone.read.bytes, "the report is of all text");
  tap_ok(train(comm, "five", 5, SIZE, &split) == want && split.pieces == alone.pieces, "five files: the same");
  tap_ok(train(comm, "one", 1, SIZE + 1, NULL) != want, "another size: another vocabulary");
}

static const char *put(const char *name, const char *text)
{
  static char path[PATH_MAX + 64];
  snprintf(path, sizeof path, "%s/%s", scratch, name);
  FILE *f = fopen(path, "wb");
  if (f == NULL || fputs(text, f) < 0 || fclose(f) != 0) abort();
  return path;
}

static void refused(const lm_comm *comm, const char *path, int64_t size, const char *words)
{
  lm_vocab *v;
  lm_error err = {0};
  lm_status s = lm_vocab_train(&v, comm, &path, 1, &by_blank_line, size, LM_PATTERN_GPT2, NULL, &err);
  tap_ok(s == LM_EINVAL && v == NULL && strstr(err.text, words) != NULL, "refused: %s", err.text);
}

/* All ranks read the file that one of them writes, once nobody reads what was there before. */
static const char *put_once(const lm_comm *comm, const char *name, const char *text)
{
  static char path[PATH_MAX + 64];
  lm_barrier(comm);
  snprintf(path, sizeof path, "%s/%s", scratch, name);
  if (comm->rank == 0) put(name, text);
  lm_barrier(comm);
  return path;
}

static void check_too_little(const lm_comm *comm)
{
  refused(comm, put_once(comm, "little.txt", "\n\n\n\n"), 300, "no training text");
  refused(comm, put_once(comm, "little.txt", "text"), 256, "257 (256 bytes and the end of text)");
  refused(comm, put_once(comm, "little.txt", "text"), INT64_MAX, "257 (256 bytes and the end of text)");
  const char *path = put_once(comm, "little.txt", "ab");
  lm_vocab *v = NULL;
  lm_error err;
  lm_status s = lm_vocab_train(&v, comm, &path, 1, &by_blank_line, 1000, LM_PATTERN_GPT2, NULL, &err);
  tap_ok(s == LM_OK && lm_vocab_size(v) == 258 && lm_vocab_end_of_text(v) == 257, "a text with one pair: 258 ids");
  lm_vocab_free(v);
}

/* Each rank in turn has no file; all learn of it, and of which rank it was. */
static void check_one_fails(const lm_comm *comm)
{
  char name[32];
  for (int bad = 0; bad < comm->size; bad++) {
    snprintf(name, sizeof name, "text%d.txt", comm->rank);
    const char *path = comm->rank == bad ? "/nowhere/at/all.txt" : put(name, "some text");
    lm_vocab *v;
    lm_error err = {0};
    lm_status s = lm_vocab_train(&v, comm, &path, 1, &by_blank_line, 300, LM_PATTERN_GPT2, NULL, &err);
    tap_alone(lm_vocab_train, bad, s, LM_EINVAL, &err, "/nowhere/at/all.txt");
    tap_ok(v == NULL, "no vocabulary");
  }
}

static lm_status train_once(void *comm, lm_error *err)
{
  lm_vocab *v;
  const char *path = put_once(comm, "memory.txt", "some text of some words");
  lm_status s = lm_vocab_train(&v, comm, &path, 1, &by_blank_line, 260, LM_PATTERN_GPT2, NULL, err);
  lm_vocab_free(v);
  return s;
}

static lm_status reduce_once(void *comm, lm_error *err)
{
  lm_piece_counts c = {0};
  lm_status s = lm_agree(comm, lm_piece_counts_add_text(&c, LM_PATTERN_GPT2, "some text of words", 18, err), err);
  if (s == LM_OK) s = lm_piece_counts_reduce(&c, comm, err);
  lm_piece_counts_free(&c);
  return s;
}

static void check_memory(lm_comm *comm)
{
  for (int bad = 0; bad < comm->size; bad++) {
    tap_alone_no_memory(lm_piece_counts_reduce, comm, bad, reduce_once, comm);
    tap_alone_no_memory(lm_vocab_train, comm, bad, train_once, comm);
  }
}

/* What rank r counts, r + 1 times "both" and once a piece of its own, arrives on rank 0. */
static void check_reduce(const lm_comm *comm)
{
  lm_piece_counts c = {0};
  lm_error err = {0};
  char own[16];
  int n = snprintf(own, sizeof own, "own%d", comm->rank);
  lm_status s = lm_piece_counts_add(&c, "both", 4, (uint64_t)comm->rank + 1, &err);
  if (s == LM_OK) s = lm_piece_counts_add(&c, own, (size_t)n, 1, &err);
  if (s == LM_OK) s = lm_piece_counts_reduce(&c, comm, &err);
  uint64_t want = (uint64_t)comm->size * ((uint64_t)comm->size + 1) / 2;
  bool summed = comm->rank != 0 || (c.n == (size_t)comm->size + 1 && c.pieces[0].count == want);
  tap_ok(s == LM_OK && summed && (comm->rank == 0 || c.n == 0), "counts of %d ranks add up on rank 0", comm->size);
  lm_piece_counts_free(&c);
}

int main(int argc, char **argv)
{
  lm_comm comm;
  tap_begin(&comm, argc, argv);
  const char *tmp = getenv("TMPDIR");
  snprintf(scratch, sizeof scratch, "%s/mpilm-vocab.XXXXXX", tmp != NULL ? tmp : "/tmp");
  if (comm.rank == 0 && mkdtemp(scratch) == NULL) scratch[0] = '\0';
  lm_bcast(&comm, scratch, sizeof scratch, 0);
  if (scratch[0] == '\0') tap_skip_all("no folder for temporary files");
  if (comm.rank == 0) write_corpus("one", 1), write_corpus("five", 5);
  lm_barrier(&comm);
  check_reduce(&comm);
  check_same(&comm);
  check_too_little(&comm);
  check_one_fails(&comm);
  check_memory(&comm);
  lm_barrier(&comm);
  char command[PATH_MAX + 16];
  snprintf(command, sizeof command, "rm -rf '%s'", scratch);
  if (comm.rank == 0 && system(command) != 0) fprintf(stderr, "# %s stays\n", scratch);
  return tap_end();
}
