/* src/batch/loader.h - tokens -> batches: the samples of a step, whoever asks for them. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_BATCH_LOADER_H
#define LM_BATCH_LOADER_H

#include "batch/dataset.h"
#include "batch/sampler.h"

typedef struct lm_loader lm_loader; /* opaque: no state but what was given to lm_loader_new() */

/** Make a loader of global batches. Local.
 *  @param dataset  kept
 *  @param T  tokens of a sample, >= 1
 *  @param global_batch  the most samples of a step over all ranks, >= 1
 *  @return LM_EINVAL where the dataset has no window of T inputs and targets (T + 1 tokens are needed), LM_ENOMEM */
lm_status lm_loader_new(lm_loader **out, const lm_dataset *dataset, uint64_t seed, int T, uint64_t global_batch,
                        int rank, int size, lm_error *err) LM_NODISCARD;
void lm_loader_free(lm_loader *l);

/** How many samples one epoch has: W of lm_sample_window(). Local. */
uint64_t lm_loader_windows(const lm_loader *l);

/** The samples of a global batch of `batch` samples that this rank takes: [*first, *first + *count). Local.
 *  @param batch  at most global_batch */
void lm_loader_slice(const lm_loader *l, uint64_t batch, uint64_t *first, uint64_t *count);

/** Fill samples [first, first + count) of the global batch that begins at position `start` of the endless sequence; an
 *  epoch may end anywhere inside. Local; reads the file, allocates nothing.
 *  @param start   step * global_batch in a run whose batch never changed
 *  @param first, count  within [0, global_batch): lm_loader_slice() or a micro-batch of it
 *  @param[out] inputs, targets  [count, T]
 *  @return LM_EDAMAGED naming sample and position of an id that is out of range; LM_EIO */
lm_status lm_loader_fetch(lm_loader *l, uint64_t start, uint64_t first, uint64_t count, int32_t *inputs,
                          int32_t *targets, lm_error *err) LM_NODISCARD;

#endif
