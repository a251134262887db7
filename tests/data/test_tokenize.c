/* tests/data/test_tokenize.c - documents on any number of ranks against their bytes, one after the other. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "batch/dataset.h"
#include "tests/data/token_data.h"
#include "text/tokenize.h"

#include <math.h>

enum { EOT = 256, DOCUMENTS = 600 }; /* of the vocabulary of bytes */

static lm_comm comm;
static char folder[64];
static lm_vocab *vocab;
static uint64_t part_bytes;
static bool skip_bad;
static int64_t max_bad = 10;

/* What each split must hold. */
struct want {
  uint32_t *ids;
  uint64_t *ends;
  size_t tokens, documents;
};

static const char *in_folder(const char *name)
{
  static char paths[8][160];
  static int next;
  next = (next + 1) % 8;
  snprintf(paths[next], sizeof paths[next], "%s/%s", folder, name);
  return paths[next];
}

static void remove_file(const char *name)
{
  lm_barrier(&comm);
  if (comm.rank == 0) unlink(in_folder(name));
}

/* Documents of 0 to 4000 bytes, and now and then one that fills more than a block of 1 MiB. */
static size_t document_size(unsigned k)
{
  unsigned r = (k * 2654435761u + 99) >> 7;
  return k % 97 == 0 ? 0 : k % 151 == 3 ? 1500000 + r % 1000 : r % 4000;
}

static void add(struct want *w, const char *text, size_t n)
{
  for (size_t i = 0; i < n; i++) w->ids[w->tokens++] = (unsigned char)text[i];
  w->ids[w->tokens++] = EOT;
  w->ends[w->documents++] = w->tokens;
}

/* Fill `name` with the documents, a 0x01 between them, and say what is wanted of each split: of one alone where
 * val_below is 0. */
static void make_corpus(const char *name, uint64_t val_below, struct want want[LM_SPLITS])
{
  size_t total = 0, at = 0;
  for (unsigned k = 0; k < DOCUMENTS; k++) total += document_size(k) + 1;
  char *text = malloc(total);
  for (int i = 0; i < LM_SPLITS; i++)
    want[i] = (struct want){malloc(total * sizeof(uint32_t)), malloc(DOCUMENTS * sizeof(uint64_t)), 0, 0};
  for (unsigned k = 0; k < DOCUMENTS; k++) {
    size_t n = document_size(k);
    for (size_t i = 0; i < n; i++) text[at + i] = (char)(2 + (i * 31 + k * 7 + i / 251) % 254);
    if (n > 0) add(&want[val_below > 0 && lm_hash(text + at, n) < val_below], text + at, n);
    text[at + n] = 1;
    at += n + 1;
  }
  lm_error err;
  if (comm.rank == 0 && lm_file_replace(in_folder(name), text, total, &err) != LM_OK) abort();
  free(text);
  lm_barrier(&comm);
}

static void free_want(struct want want[LM_SPLITS])
{
  for (int i = 0; i < LM_SPLITS; i++) {
    free(want[i].ids);
    free(want[i].ends);
  }
}

static bool holds(const char *path, const struct want *w, const lm_token_info *said)
{
  lm_error err = {0};
  lm_dataset *d;
  lm_status s = lm_dataset_open(&d, path, &err);
  if (s == LM_OK) s = lm_dataset_verify(d, &err);
  if (s != LM_OK) {
    printf("# %s\n", err.text);
    lm_dataset_close(d);
    return false;
  }
  const lm_token_info *info = lm_dataset_info(d);
  bool good = info->tokens == w->tokens && info->documents == w->documents && info->checksum == said->checksum;
  uint64_t *ends = malloc(w->documents * sizeof *ends);
  uint16_t *ids = malloc(w->tokens * sizeof *ids);
  good = good && lm_dataset_ids(d, 0, w->tokens, ids, &err) == LM_OK &&
         lm_dataset_document_ends(d, 0, w->documents, ends, &err) == LM_OK;
  for (size_t i = 0; good && i < w->tokens; i++) good = ids[i] == w->ids[i];
  for (size_t i = 0; good && i < w->documents; i++) good = ends[i] == w->ends[i];
  free(ids);
  free(ends);
  lm_dataset_close(d);
  return good;
}

static lm_status tokenize(const char *const *paths, size_t n, double val_fraction, lm_tokenize_result *r, lm_error *err)
{
  lm_tokenize_config cfg = {
      .paths = paths,
      .n_paths = n,
      .out = in_folder("train.h5"),
      .val_out = val_fraction > 0 ? in_folder("val.h5") : NULL,
      .val_fraction = val_fraction,
      .part_bytes = part_bytes,
      .documents = {.text_key = "text", .separator = "\x01", .skip_bad = skip_bad, .max_bad = max_bad}};
  return lm_tokenize(&comm, vocab, &cfg, r, err);
}

static void check_bytes(void)
{
  lm_error err = {0};
  struct want want[LM_SPLITS];
  lm_tokenize_result r;
  make_corpus("corpus.txt", 0, want);
  const char *path = in_folder("corpus.txt");
  tap_ok(tokenize(&path, 1, 0, &r, &err) == LM_OK, "a corpus is encoded%s", err.text);
  tap_ok(holds(in_folder("train.h5"), &want[0], &r.info[0]), "documents in order, each closed by its end of text");
  tap_ok(r.counts.empty == 7 && r.counts.documents == DOCUMENTS - 7 && r.info[1].tokens == 0, "empty ones are counted");
  tap_ok(r.text_bytes[0] == want[0].tokens - want[0].documents, "and bytes of text");
  free_want(want);
  make_corpus("corpus.txt", UINT64_C(1) << 62, want);
  tap_ok(tokenize(&path, 1, 0.25, &r, &err) == LM_OK, "with a quarter held out%s", err.text);
  tap_ok(holds(in_folder("train.h5"), &want[0], &r.info[0]) && holds(in_folder("val.h5"), &want[1], &r.info[1]),
         "each document is where its hash says");
  tap_ok(fabs((double)want[1].documents / (DOCUMENTS - 7) - 0.25) < 0.1, "about a quarter is");
  free_want(want);
  remove_file("train.h5");
  remove_file("val.h5");
}

static bool nothing_left(void)
{
  lm_barrier(&comm);
  return !lm_file_exists(in_folder("train.h5")) && !lm_file_exists(in_folder("train.h5.part")) &&
         !lm_file_exists(in_folder("val.h5")) && !lm_file_exists(in_folder("val.h5.part"));
}

/* Ids of another split pattern on one rank alone would give a mixture. */
static void check_other_vocab(void)
{
  lm_error err = {0};
  lm_tokenize_result r;
  lm_vocab *usual = vocab, *other;
  const char *path = in_folder("good.jsonl");
  if (lm_vocab_load(&other, "bytes", LM_PATTERN_CL100K, &err) != LM_OK) abort();
  for (int bad = 1; bad < comm.size; bad++) {
    vocab = comm.rank == bad ? other : usual;
    tap_alone(lm_tokenize, bad, tokenize(&path, 1, 0, &r, &err), LM_EINVAL, &err, "fingerprint");
  }
  vocab = usual;
  lm_vocab_free(other);
}

/* A line in the part of one rank alone is broken: all fail with its number, and then skip it. */
static void check_broken_parts(void)
{
  part_bytes = 60;
  for (int bad = 1; bad <= 30; bad += 7) {
    lm_error err = {0};
    lm_tokenize_result r;
    char text[1024], want[32];
    size_t n = 0;
    for (int k = 1; k <= 30; k++)
      n += (size_t)snprintf(text + n, sizeof text - n, k == bad ? "{\"text\":\"b\n" : "{\"text\":\"%d\"}\n", k);
    char name[160];
    const char *path = name;
    snprintf(name, sizeof name, "%s", in_folder("broken.jsonl"));
    if (comm.rank == 0 && lm_file_replace(path, text, n, &err) != LM_OK) abort();
    lm_barrier(&comm);
    snprintf(want, sizeof want, "broken.jsonl:%d:", bad);
    tap_ok(tokenize(&path, 1, 0, &r, &err) == LM_EINVAL && strstr(err.text, want) != NULL, "a broken line: %s",
           err.text);
    tap_ok(nothing_left(), "nothing has a final name");
    skip_bad = true;
    tap_ok(tokenize(&path, 1, 0, &r, &err) == LM_OK && r.counts.bad == 1 && r.counts.documents == 29 &&
               strstr(r.first_bad, want) != NULL,
           "skipped: %s", r.first_bad);
    max_bad = 0;
    tap_ok(tokenize(&path, 1, 0, &r, &err) == LM_EINVAL && strstr(err.text, "more than") != NULL, "or not: %s",
           err.text);
    max_bad = 10;
    tap_ok(tokenize(&path, 1, 0, &r, &err) == LM_OK && r.counts.bad == 1,
           "the finished parts serve a more patient run");
    skip_bad = false;
    remove_file("train.h5");
    remove_file("broken.jsonl");
  }
  part_bytes = 0;
}

/* One rank alone has another input: all fail, with its words, and nothing is left. */
static void check_one_rank_fails(void)
{
  lm_error err = {0};
  lm_tokenize_result r;
  static const char good[] = "{\"text\":\"a\"}\n{\"text\":\"b\"}\n";
  if (comm.rank == 0 && lm_file_replace(in_folder("good.jsonl"), good, sizeof good - 1, &err) != LM_OK) abort();
  lm_barrier(&comm);
  for (int bad = 0; bad < comm.size; bad++) {
    const char *path = in_folder(comm.rank == bad ? "missing.jsonl" : "good.jsonl");
    tap_alone(lm_tokenize, bad, tokenize(&path, 1, 0, &r, &err), LM_EINVAL, &err, "missing.jsonl");
    if (comm.size == 1) continue;
    path = in_folder(comm.rank == bad ? "corpus.txt" : "good.jsonl");
    tap_ok(tokenize(&path, 1, 0, &r, &err) == LM_EINVAL && strstr(err.text, "same input files") != NULL,
           "rank %d alone reads another file: %s", bad, err.text);
    tap_ok(nothing_left(), "nothing is left");
  }
  check_other_vocab();
  check_broken_parts();
  const char *path = in_folder("good.jsonl");
  lm_tokenize_config cfg = {.paths = &path, .n_paths = 1, .documents = {.text_key = "text"}};
  cfg.out = comm.rank == comm.size - 1 ? in_folder("none/x.h5") : in_folder("train.h5");
  tap_ok(lm_tokenize(&comm, vocab, &cfg, &r, &err) == LM_EINVAL && err.rank == comm.size - 1, "no folder: %s",
         err.text);
  tap_ok(tokenize(&path, 1, 1e-9, &r, &err) == LM_EINVAL && strstr(err.text, "none is held out") != NULL, "%s",
         err.text);
  tap_ok(tokenize(&path, 1, 0.999999999, &r, &err) == LM_EINVAL && strstr(err.text, "every one") != NULL, "%s",
         err.text);
  tap_ok(nothing_left(), "nothing is left");
  remove_file("good.jsonl");
}

int main(int argc, char **argv)
{
  tap_begin(&comm, argc, argv);
  lm_error err;
  scratch_folder(&comm, folder);
  if (lm_vocab_load(&vocab, "bytes", LM_PATTERN_GPT2, &err) != LM_OK) abort();
  check_bytes();
  check_one_rank_fails();
  remove_file("corpus.txt");
  lm_vocab_free(vocab);
  tap_ok(comm.rank != 0 || rmdir(folder) == 0, "no file is left behind");
  return tap_end();
}
