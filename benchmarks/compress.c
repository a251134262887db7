/* benchmarks/compress.c - would a checkpoint be smaller, or sooner written, with its slabs shuffled and compressed? */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/clock.h"
#include "base/memory.h"
#include "hdf5/state_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum { SLAB = 8 << 20 };

static lm_error err;

static void must(lm_status s)
{
  if (s == LM_OK) return;
  fprintf(stderr, "%s\n", err.text);
  exit(1);
}

/* What tensors of one folder take. */
struct sum {
  char folder[LM_STATE_NAME];
  size_t bytes, packed;
  double seconds;
};

/* Byte b of every element together: exponents, which are alike, lie side by side then. */
static void shuffle(char *to, const char *from, size_t n, size_t width)
{
  for (size_t b = 0; b < width; b++)
    for (size_t i = 0; i < n; i++) to[b * n + i] = from[i * width + b];
}

static void pack(struct sum *s, const char *data, size_t bytes, size_t width, int level)
{
  static char shuffled[SLAB], packed[SLAB + SLAB / 128 + 64];
  for (size_t at = 0; at < bytes; at += SLAB) {
    size_t n = bytes - at < SLAB ? bytes - at : SLAB;
    double begin = lm_clock();
    shuffle(shuffled, data + at, n / width, width);
    size_t got = ZSTD_compress(packed, sizeof packed, shuffled, n, level);
    s->seconds += lm_clock() - begin;
    s->packed += ZSTD_isError(got) ? n : got;
    s->bytes += n;
  }
}

/* "/optimizer/exp_avg" of "/optimizer/exp_avg/layers/0/...", "/model" of "/model/...". */
static void folder_of(const char *name, char out[LM_STATE_NAME])
{
  size_t n = strncmp(name, "/optimizer/", 11) == 0 ? 11 + strcspn(name + 11, "/") : 1 + strcspn(name + 1, "/");
  snprintf(out, LM_STATE_NAME, "%.*s%s", (int)n, name, strstr(name, "embedding") != NULL ? ", embeddings" : "");
}

static struct sum *sum_of(struct sum sums[32], const char *folder)
{
  int i = 0;
  while (i < 31 && sums[i].folder[0] != '\0' && strcmp(sums[i].folder, folder) != 0) i++;
  snprintf(sums[i].folder, sizeof sums[i].folder, "%s", folder);
  return &sums[i];
}

int main(int argc, char **argv)
{
  lm_comm self;
  lm_state_entry *entries;
  size_t n;
  static struct sum sums[32];
  char folder[LM_STATE_NAME];
  if (argc != 3) return fprintf(stderr, "compress CHECKPOINT LEVEL\n"), 2;
  lm_comm_self(&self);
  must(lm_state_list(argv[1], &entries, &n, &err));
  for (size_t i = 0; i < n; i++) {
    const lm_state_entry *e = &entries[i];
    lm_state_slice s = {.dtype = e->dtype, .ndim = e->ndim, .count = 1};
    memcpy(s.name, e->name, sizeof s.name);
    memcpy(s.shape, e->shape, sizeof s.shape);
    for (int d = 0; d < e->ndim; d++) s.count *= e->shape[d];
    if (s.count * lm_dtype_size(e->dtype) < 4096) continue;
    must(lm_alloc(&s.data, s.count, lm_dtype_size(e->dtype), "a tensor", &err));
    must(lm_state_read(&self, argv[1], &s, 1, &err));
    folder_of(e->name, folder);
    pack(sum_of(sums, folder), s.data, s.count * lm_dtype_size(e->dtype), lm_dtype_size(e->dtype), atoi(argv[2]));
    free(s.data);
  }
  for (int i = 0; sums[i].folder[0] != '\0'; i++)
    printf("%-34s %8.1f MB -> %5.1f %%  %6.0f MB/s by one thread\n", sums[i].folder, (double)sums[i].bytes * 1e-6,
           100 * (double)sums[i].packed / (double)sums[i].bytes, (double)sums[i].bytes * 1e-6 / sums[i].seconds);
  free(entries);
  return 0;
}
