/* src/batch/loader.c - tokens -> batches. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "batch/loader.h"

#include <inttypes.h>
#include <stdlib.h>

struct lm_loader {
  const lm_sources *sources;
  const lm_mixture *mixture;
  lm_mixture_walk *walk;
  uint64_t seed, global_batch;
  int T, rank, size;
};

lm_status lm_loader_new(lm_loader **out, const lm_sources *sources, const lm_mixture *mixture, uint64_t seed, int T,
                        uint64_t global_batch, int rank, int size, lm_error *err)
{
  LM_ASSERT(T >= 1 && global_batch >= 1 && 0 <= rank && rank < size);
  LM_TRY(lm_alloc(out, 1, sizeof **out, "the loader", err));
  **out = (lm_loader){sources, mixture, NULL, seed, global_batch, T, rank, size};
  lm_status s = lm_mixture_walk_new(&(*out)->walk, mixture, err);
  if (s != LM_OK) {
    free(*out);
    *out = NULL;
  }
  return s;
}

void lm_loader_free(lm_loader *l)
{
  if (l == NULL) return;
  lm_mixture_walk_free(l->walk);
  free(l);
}

lm_sample lm_loader_sample(lm_loader *l, uint64_t position)
{
  lm_draw draw = lm_mixture_draw(l->walk, position);
  lm_sample s = {.source = lm_sources_find(l->sources, l->mixture, draw.source), .column = draw.source};
  if (s.source != NULL) s.window = lm_sample_window(l->seed, draw.source, s.source->windows, draw.index);
  return s;
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
    uint64_t position = start + first + k;
    lm_sample what = lm_loader_sample(l, position);
    size_t at = (size_t)k * (size_t)l->T;
    if (what.source == NULL)
      return lm_fail(err, LM_EINVAL,
                     "sample %" PRIu64 " is of data with checksum %016" PRIx64
                     ", which data.train does not name any more",
                     position, l->mixture->checksum[what.column]);
    lm_status s = lm_dataset_window(what.source->data, what.window, l->T, inputs + at, targets + at, err);
    if (s != LM_OK) return lm_fail_in(err, s, "sample %" PRIu64 ", window %" PRIu64, position, what.window);
  }
  return LM_OK;
}
