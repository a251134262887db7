/* tests/reader/test_parts.c - parts of the input, read in any order by anybody: every record once. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/tap.h"
#include "text/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static lm_comm comm;
static char folder[64];

static const char *in_folder(const char *name)
{
  static char paths[8][160];
  static int next;
  next = (next + 1) % 8;
  snprintf(paths[next], sizeof paths[next], "%s/%s", folder, name);
  return paths[next];
}

static void put(const char *path, const char *bytes, size_t n, bool packed)
{
  if (packed) {
    gzFile f = gzopen(path, "wb");
    if (f == NULL || gzwrite(f, bytes, (unsigned)n) != (int)n || gzclose(f) != Z_OK) abort();
    return;
  }
  FILE *f = fopen(path, "wb");
  if (f == NULL || fwrite(bytes, 1, n, f) != n || fclose(f) != 0) abort();
}

/* Append '|' and the text of each document until the part is over. */
static bool read_on(lm_documents *d, lm_buffer *out, lm_error *err)
{
  const char *text = "";
  size_t n;
  for (;;) {
    if (lm_documents_next(d, &text, &n, err) != LM_OK) return false;
    if (text == NULL) return true;
    if (lm_buffer_append(out, "|", 1, err) != LM_OK || lm_buffer_append(out, text, n, err) != LM_OK) abort();
  }
}

static void read_whole(const char *path, const lm_documents_config *cfg, lm_buffer *out)
{
  lm_error err;
  lm_documents *d;
  out->size = 0;
  if (lm_buffer_append(out, "", 0, &err) != LM_OK || lm_documents_open(&d, &path, 1, cfg, &err) != LM_OK) abort();
  if (!read_on(d, out, &err)) abort();
  lm_documents_close(d);
}

/* Every `step`-th part by a reader of its own, as ranks that take turns do; the documents in the order of parts. */
static bool read_in_turn(const char *path, const lm_documents_config *cfg, uint64_t part_bytes, uint64_t step,
                         lm_buffer *out)
{
  enum { MOST = 4096 };
  lm_error err = {0};
  lm_buffer *parts = calloc(MOST, sizeof *parts);
  uint64_t end = MOST;
  for (uint64_t first = 0; first < step; first++) {
    lm_documents *d;
    if (lm_documents_open(&d, &path, 1, cfg, &err) != LM_OK) abort();
    for (uint64_t k = first; k < MOST; k += step) {
      if (lm_documents_part(d, 0, 1, k, part_bytes, &err) != LM_OK || !read_on(d, &parts[k], &err)) abort();
      if (!lm_documents_ended(d)) continue;
      if (k < end) end = k;
      break;
    }
    lm_documents_close(d);
  }
  out->size = 0;
  bool empty_behind = true;
  for (uint64_t k = 0; k < MOST; k++) {
    empty_behind &= k <= end || parts[k].size == 0;
    if (parts[k].size > 0 && lm_buffer_append(out, parts[k].data, parts[k].size, &err) != LM_OK) abort();
    lm_buffer_free(&parts[k]);
  }
  free(parts);
  return empty_behind && end < MOST;
}

static void test_cuts(void)
{
  static const struct {
    const char *name, *text, *separator;
  } rows[] = {
      {"lines.jsonl",
       "{\"text\":\"a\"}\n\n{\"text\":\"bc\"}\r\n{\"text\":\"\"}\n{\"text\":\"a longer one\"}\n{\"text\":\"z\"}", ""},
      {"bom.jsonl", "\xef\xbb\xbf{\"text\":\"a\"}\n{\"text\":\"bc\"}\n", ""},
      {"two.txt", "one\n\ntwo\n\n\n\n\nthree\n\n\nfour\nfive\n\n\n\n\n\n\n\n\n\n\n\n\nsix\n\n", "\n\n"},
      {"aba.txt", "xababayabababazabaabaQababababababababab", "aba"},
      {"one.txt", "a|bb||ccc|", "|"},
      {"none.txt", "no separator at all", "<>"},
      {"only.txt", "\n\n\n\n\n\n\n", "\n\n"},
      {"nothing.txt", "", "\n\n"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    for (int packed = 0; packed < 2; packed++) {
      lm_documents_config cfg = {.text_key = "text", .separator = rows[i].separator};
      const char *path = in_folder(rows[i].name);
      lm_buffer want = {0}, got = {0};
      int same = 0, tried = 0;
      put(path, rows[i].text, strlen(rows[i].text), packed);
      read_whole(path, &cfg, &want);
      for (uint64_t bytes = 1; bytes <= 40; bytes++)
        for (uint64_t step = 1; step <= 5; step++, tried++)
          same += read_in_turn(path, &cfg, bytes, step, &got) && got.size == want.size &&
                  (got.size == 0 || memcmp(got.data, want.data, got.size) == 0);
      tap_ok(same == tried, "%s%s: parts of 1 to 40 bytes, 1 to 5 readers (%d of %d)", rows[i].name,
             packed ? ", packed" : "", same, tried);
      lm_buffer_free(&want);
      lm_buffer_free(&got);
      unlink(path);
    }
}

/* A reader that came in the middle still names the line. */
static void test_numbers(void)
{
  lm_documents_config cfg = {.text_key = "text"};
  const char *path = in_folder("broken.jsonl");
  char text[2048] = "";
  int right = 0;
  for (int bad = 1; bad <= 40; bad++) {
    size_t n = 0;
    for (int k = 1; k <= 40; k++)
      n += (size_t)snprintf(text + n, sizeof text - n, k == bad ? "{\"text\":\"bad\n" : "{\"text\":\"%d\"}\n", k);
    put(path, text, n, bad % 2 == 0);
    lm_documents *d;
    lm_error err = {0};
    lm_buffer out = {0};
    if (lm_documents_open(&d, &path, 1, &cfg, &err) != LM_OK) abort();
    bool good = true;
    for (uint64_t k = 0; k < 20 && good; k++) {
      lm_documents *fresh;
      if (lm_documents_open(&fresh, &path, 1, &cfg, &err) != LM_OK) abort();
      good = lm_documents_part(fresh, 0, 1, k, 50, &err) == LM_OK && read_on(fresh, &out, &err);
      lm_documents_close(fresh);
    }
    char want[32];
    snprintf(want, sizeof want, "broken.jsonl:%d:", bad);
    right += !good && strstr(err.text, want) != NULL;
    lm_documents_close(d);
    lm_buffer_free(&out);
  }
  tap_ok(right == 40, "a broken line is named by its number from any part (%d of 40)", right);
  unlink(path);
}

/* Files of all kinds: the ranks together read every record once. */
static void test_plan(uint64_t part_bytes)
{
  static const char *const names[] = {"a.jsonl", "b.jsonl.gz", "c.txt", "d.jsonl", "e.jsonl"};
  enum { N = sizeof names / sizeof names[0] };
  const char *paths[N];
  char text[4096];
  int records = 0;
  for (int i = 0; i < N; i++) {
    size_t n = 0;
    for (int k = 0; k < (i == 1 ? 60 : i == 0 ? 90 : 2); k++)
      n += (size_t)snprintf(text + n, sizeof text - n, "{\"text\":\"file %d line %d\"}\n", i, k);
    records += i == 1 ? 60 : i == 0 ? 90 : i == 2 ? 1 : 2; /* a text file is one document */
    paths[i] = in_folder(names[i]);
    if (comm.rank == 0) put(paths[i], text, n, i == 1);
  }
  lm_barrier(&comm);
  lm_documents_config cfg = {.text_key = "text"};
  lm_documents *d;
  lm_parts *p;
  lm_error err = {0};
  lm_buffer out = {0};
  lm_part_id id;
  bool more = true, good = true;
  uint64_t units = 0;
  if (lm_documents_open(&d, paths, N, &cfg, &err) != LM_OK) abort();
  tap_ok(lm_parts_plan(&p, &comm, d, &cfg, part_bytes, &err) == LM_OK && lm_parts_repeatable(p), "a plan");
  while (good && more) {
    good = lm_parts_next(p, &id, &more, &err) == LM_OK;
    if (good && more) good = read_on(d, &out, &err);
    units += more;
  }
  tap_ok(good, "all is read%s", err.text);
  uint64_t sums[3] = {lm_documents_count(d)->documents, lm_documents_count(d)->bytes, units > 0};
  uint64_t mine = sums[1];
  lm_allreduce_sum_u64(&comm, sums, 3);
  tap_ok(sums[0] == (uint64_t)records, "%d records by %d ranks in parts of %d bytes, got %d", records, comm.size,
         (int)part_bytes, (int)sums[0]);
  if (part_bytes < 1000)
    tap_ok(sums[2] == (uint64_t)comm.size && mine * (uint64_t)comm.size * 2 > sums[1] * 1,
           "every rank reads its share");
  double done, all;
  lm_parts_progress(p, &done, &all);
  tap_ok(done == all, "and is at the end");
  lm_parts_free(p);
  lm_documents_close(d);
  lm_buffer_free(&out);
  lm_barrier(&comm);
  for (int i = 0; i < N && comm.rank == 0; i++) unlink(in_folder(names[i]));
  lm_barrier(&comm);
}

/* One rank alone is given other files: all hear it. */
static void test_other_files(void)
{
  lm_documents_config cfg = {.text_key = "text"};
  if (comm.rank == 0) put(in_folder("x.txt"), "x", 1, false);
  if (comm.rank == 0) put(in_folder("y.txt"), "y", 1, false);
  lm_barrier(&comm);
  for (int bad = 1; bad < comm.size; bad++) {
    const char *path = in_folder(comm.rank == bad ? "y.txt" : "x.txt");
    lm_documents *d;
    lm_parts *p;
    lm_error err = {0};
    if (lm_documents_open(&d, &path, 1, &cfg, &err) != LM_OK) abort();
    tap_alone(lm_parts_plan, bad, lm_parts_plan(&p, &comm, d, &cfg, 0, &err), LM_EINVAL, &err, "not those of rank 0");
    tap_ok(p == NULL, "no plan");
    lm_documents_close(d);
  }
  lm_barrier(&comm);
  if (comm.rank == 0) unlink(in_folder("x.txt"));
  if (comm.rank == 0) unlink(in_folder("y.txt"));
}

int main(int argc, char **argv)
{
  tap_begin(&comm, argc, argv);
  snprintf(folder, sizeof folder, "/tmp/mpilm-parts.XXXXXX");
  if (comm.rank == 0 && mkdtemp(folder) == NULL) abort();
  lm_bcast(&comm, folder, sizeof folder, 0);
  if (comm.size == 1) {
    test_cuts();
    test_numbers();
  }
  test_plan(100);
  test_plan(1000);
  test_plan(1000000);
  test_other_files();
  tap_ok(comm.rank != 0 || rmdir(folder) == 0, "no file is left behind");
  return tap_end();
}
