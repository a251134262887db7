/* src/batch/loader.c - tokens -> batches. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "batch/loader.h"

#include <inttypes.h>
#include <stdlib.h>

struct lm_loader {
  const lm_dataset *dataset;
  uint64_t seed, windows, global_batch;
  int T, rank, size;
};

lm_status lm_loader_new(lm_loader **out, const lm_dataset *dataset, uint64_t seed, int T, uint64_t global_batch,
                        int rank, int size, lm_error *err)
{
  *out = NULL;
  LM_ASSERT(T >= 1 && global_batch >= 1 && 0 <= rank && rank < size);
  uint64_t windows = lm_dataset_windows(dataset, T);
  if (windows == 0)
    return lm_fail(err, LM_EINVAL, "%s: has %" PRIu64 " tokens; one sample of context %d needs at least %d + 1 = %lld",
                   lm_dataset_path(dataset), lm_dataset_info(dataset)->tokens, T, T, (long long)T + 1);
  LM_TRY(lm_alloc(out, 1, sizeof **out, "the loader", err));
  **out = (lm_loader){dataset, seed, windows, global_batch, T, rank, size};
  return LM_OK;
}

void lm_loader_free(lm_loader *l)
{
  free(l);
}

uint64_t lm_loader_windows(const lm_loader *l)
{
  return l->windows;
}

void lm_loader_slice(const lm_loader *l, uint64_t batch, uint64_t *first, uint64_t *count)
{
  LM_ASSERT(batch <= l->global_batch);
  lm_sample_slice(batch, l->rank, l->size, first, count);
}

lm_status lm_loader_fetch(lm_loader *l, uint64_t start, uint64_t first, uint64_t count, int32_t *inputs,
                          int32_t *targets, lm_error *err)
{
  LM_ASSERT(first <= l->global_batch && count <= l->global_batch - first);
  for (uint64_t k = 0; k < count; k++) {
    uint64_t position = start + first + k, window = lm_sample_window(l->seed, l->windows, position);
    size_t at = (size_t)k * (size_t)l->T;
    lm_status s = lm_dataset_window(l->dataset, window, l->T, inputs + at, targets + at, err);
    if (s != LM_OK) return lm_fail_in(err, s, "sample %" PRIu64 ", window %" PRIu64, position, window);
  }
  return LM_OK;
}
