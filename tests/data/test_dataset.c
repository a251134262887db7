/* tests/data/test_dataset.c - windows of a dataset against slices of the ids that it was made from; batches of windows.
 */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "batch/loader.h"
#include "tests/data/single_source.h"
#include "tests/data/token_data.h"

static lm_comm comm;
static char folder[64], path[128];

/* The definition: pair k of window i is (ids[i T + k], ids[i T + k + 1]) where both exist, else (0, -1). */
static bool window_is_slice(const lm_dataset *d, const uint32_t *ids, size_t n, uint64_t i, int T)
{
  int32_t *inputs = malloc((size_t)T * 4), *targets = malloc((size_t)T * 4);
  lm_error err = {0};
  bool good = lm_dataset_window(d, i, T, inputs, targets, &err) == LM_OK;
  for (size_t k = 0; good && k < (size_t)T; k++) {
    size_t at = (size_t)i * (size_t)T + k;
    bool pair = at + 1 < n;
    good = inputs[k] == (pair ? (int32_t)ids[at] : 0) && targets[k] == (pair ? (int32_t)ids[at + 1] : -1);
  }
  free(inputs);
  free(targets);
  return good;
}

static void check_windows(size_t n, uint64_t vocab_size)
{
  static const int lengths[] = {1, 2, 3, 16, 1000, 2047, 2048, 5000};
  lm_error err = {0};
  lm_token_info info = {.vocab_size = vocab_size, .end_of_text = 0};
  uint32_t *ids = malloc(n * 4);
  for (size_t i = 0; i < n; i++) ids[i] = i + 1 == n ? 0 : (uint32_t)((i * 2654435761u + 12345) % vocab_size);
  lm_dataset *d = NULL;
  tap_ok(write_tokens(&comm, path, ids, n, &info, &err) == LM_OK && lm_dataset_open(&d, path, &err) == LM_OK &&
             lm_dataset_verify(d, &err) == LM_OK,
         "%d tokens, %d ids%s", (int)n, (int)vocab_size, err.text);
  for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
    int T = lengths[l];
    uint64_t windows = lm_dataset_windows(d, T);
    bool good = windows == (n - 1) / (uint64_t)T;
    for (uint64_t i = 0; good && i <= windows; i++) good = window_is_slice(d, ids, n, i, T);
    tap_ok(good, "%d windows of %d, and the partial one", (int)windows, T);
  }
  lm_dataset_close(d);
  free(ids);
}

static lm_dataset *make(const uint32_t *ids, size_t n)
{
  lm_error err = {0};
  lm_token_info info = {.vocab_size = 500, .end_of_text = 499};
  lm_dataset *d = NULL;
  tap_ok(write_tokens(&comm, path, ids, n, &info, &err) == LM_OK && lm_dataset_open(&d, path, &err) == LM_OK,
         "%d tokens%s", (int)n, err.text);
  return d;
}

/* Context 16: 16 tokens are too few, 17 make one sample. */
static void check_too_short(void)
{
  uint32_t ids[17] = {0};
  lm_error err = {0};
  lm_sources s;
  const lm_list one = {1, (const char *[]){path}};
  lm_dataset_close(make(ids, 16));
  tap_ok(lm_sources_open(&s, &one, 16, &err) == LM_EINVAL && s.n == 0 && strstr(err.text, "16 + 1 = 17") != NULL, "%s",
         err.text);
  lm_dataset_close(make(ids, 17));
  tap_ok(lm_sources_open(&s, &one, 16, &err) == LM_OK && s.items[0].windows == 1, "17 tokens are one sample");
  lm_sources_close(&s);
}

/* Ranks together see the samples that one rank alone sees, in its order. */
static void check_batches(void)
{
  enum { T = 4, WINDOWS = 10, G = 7, TOKENS = T * WINDOWS + 1 };
  uint32_t ids[TOKENS];
  for (uint32_t i = 0; i < TOKENS; i++) ids[i] = i;
  lm_error err = {0};
  lm_dataset_close(make(ids, TOKENS));
  struct single_source d;
  tap_ok(single_source_open(&d, path, T, &err) == LM_OK, "opened%s", err.text);
  for (int size = 1; size <= 9; size++) {
    bool good = true;
    for (uint64_t step = 0; step < 12 && good; step++)
      for (int rank = 0; rank < size && good; rank++) {
        lm_loader *l;
        int32_t inputs[G * T], targets[G * T];
        uint64_t first, count;
        good = lm_loader_new(&l, &d.sources, &d.mixture, 99, T, G, rank, size, &err) == LM_OK;
        lm_loader_slice(l, G, &first, &count);
        good = good && lm_loader_fetch(l, step * G, first, count, inputs, targets, &err) == LM_OK;
        for (uint64_t k = 0; good && k < count; k++) {
          int32_t want = (int32_t)(lm_sample_window(99, 0, WINDOWS, step * G + first + k) * T);
          good = inputs[k * T] == want && targets[k * T + T - 1] == want + T;
        }
        lm_loader_free(l);
      }
    tap_ok(good, "%d ranks share the samples of 12 steps%s", size, err.text);
  }
  single_source_close(&d);
}

static void check_bad_id(void)
{
  uint32_t ids[41] = {0};
  lm_error err = {0};
  lm_loader *l = NULL;
  int32_t inputs[4], targets[4];
  ids[18] = 60000;
  lm_dataset_close(make(ids, 41));
  struct single_source d;
  lm_status s = single_source_open(&d, path, 4, &err);
  if (s == LM_OK) s = lm_loader_new(&l, &d.sources, &d.mixture, 99, 4, 1, 0, 1, &err);
  uint64_t failed = 0;
  for (uint64_t step = 0; step < 10 && s == LM_OK; step++) {
    lm_status fetched = lm_loader_fetch(l, step, 0, 1, inputs, targets, &err);
    if (fetched == LM_OK) continue;
    failed |= UINT64_C(1) << lm_sample_window(99, 0, 10, step);
    if (fetched != LM_EDAMAGED) s = fetched;
  }
  tap_ok(s == LM_OK && failed == 1 << 4, "the window with the bad id is refused, the others are not");
  tap_ok(strstr(err.text, "token 18 is id 60000") != NULL && strstr(err.text, "sample ") != NULL, "%s", err.text);
  lm_loader_free(l);
  single_source_close(&d);
}

/* 2^31 + 100 tokens in a sparse file: the last window is reachable, and no index is negative. */
static void check_many_tokens(void)
{
  enum { T = 64 };
  uint64_t n = (UINT64_C(1) << 31) + 100;
  lm_token_info info = {.vocab_size = 500, .end_of_text = 499, .tokens = n, .documents = 1};
  lm_error err = {0};
  char part[4096];
  lm_status s = lm_token_file_create(&comm, path, &info, part, &err);
  uint16_t last[T + 1];
  uint64_t begin = (n - 1) / T * T - T;
  for (uint16_t i = 0; i <= T; i++) last[i] = i + 100;
  if (s == LM_OK && comm.rank == 0) {
    int fd = open(part, O_WRONLY);
    s = lm_pwrite_all(fd, part, last, sizeof last, info.offset + (off_t)(begin * 2), &err);
    close(fd);
  }
  s = lm_agree(&comm, s, &err);
  if (s == LM_OK) s = lm_token_file_commit(&comm, part, path, &info, &err);
  lm_dataset *d = NULL;
  int32_t inputs[T] = {0}, targets[T] = {0};
  if (s == LM_OK) s = lm_dataset_open(&d, path, &err);
  if (s == LM_OK) s = lm_dataset_window(d, lm_dataset_windows(d, T) - 1, T, inputs, targets, &err);
  tap_ok(s == LM_OK && inputs[0] == 100 && targets[T - 1] == 100 + T, "the last window beyond 2^31 tokens%s", err.text);
  lm_dataset_close(d);
}

int main(int argc, char **argv)
{
  tap_begin(&comm, argc, argv);
  scratch_folder(&comm, folder);
  snprintf(path, sizeof path, "%s/tokens.h5", folder);
  check_windows(10007, 500);
  check_windows(4096, 100000);
  check_windows(2, 500);
  check_too_short();
  check_batches();
  check_bad_id();
  check_many_tokens();
  lm_barrier(&comm);
  if (comm.rank == 0) unlink(path);
  tap_ok(comm.rank != 0 || rmdir(folder) == 0, "no file is left behind");
  return tap_end();
}
