/* src/batch/loader.h - tokens -> batches: the samples of a step, whoever asks for them. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_BATCH_LOADER_H
#define LM_BATCH_LOADER_H

#include "batch/sampler.h"
#include "batch/sources.h"

typedef struct lm_loader lm_loader; /* opaque: no state but what was given to lm_loader_new(); for one thread */

/** Make a loader of global batches. Local.
 *  @param sources, mixture  kept; the mixture has at least one era
 *  @param T  tokens of a sample, as lm_sources_open() had it
 *  @param global_batch  the most samples of a step over all ranks, >= 1
 *  @return LM_ENOMEM */
lm_status lm_loader_new(lm_loader **out, const lm_sources *sources, const lm_mixture *mixture, uint64_t seed, int T,
                        uint64_t global_batch, int rank, int size, lm_error *err) LM_NODISCARD;
void lm_loader_free(lm_loader *l);

/** A window of a source: what a sample is. */
typedef struct lm_sample {
  const lm_source *source; /* NULL: the list of sources does not name it any more */
  size_t column;           /* of the mixture */
  uint64_t window;
} lm_sample;

/** Which sample stands at a position of the endless sequence: the mixture says of which source and the how manyth, and
 *  each source has its own shuffled epochs. Local; allocates nothing. */
lm_sample lm_loader_sample(lm_loader *l, uint64_t position);

/** The samples of a global batch of `batch` samples that this rank takes: [*first, *first + *count). Local.
 *  @param batch  at most global_batch */
void lm_loader_slice(const lm_loader *l, uint64_t batch, uint64_t *first, uint64_t *count);

/** Fill samples [first, first + count) of the global batch that begins at position `start` of the endless sequence; an
 *  epoch may end anywhere inside. Local; reads the file, allocates nothing.
 *  @param start   step * global_batch in a run whose batch never changed
 *  @param first, count  within [0, global_batch): lm_loader_slice() or a micro-batch of it
 *  @param[out] inputs, targets  [count, T]
 *  @return LM_EDAMAGED naming sample and position of an id that is out of range; LM_EINVAL: of a source that is not
 *          there; LM_EIO */
lm_status lm_loader_fetch(lm_loader *l, uint64_t start, uint64_t first, uint64_t count, int32_t *inputs,
                          int32_t *targets, lm_error *err) LM_NODISCARD;

#endif
