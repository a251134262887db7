/* src/batch/prefetch.h - a thread that reads the next micro-batches while the model computes. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_BATCH_PREFETCH_H
#define LM_BATCH_PREFETCH_H

#include "batch/loader.h"
#include <stdbool.h>

/** Which samples: those of lm_loader_fetch(). Plain data. */
typedef struct lm_samples {
  uint64_t start, first, count;
} lm_samples;

typedef struct lm_prefetch lm_prefetch; /* opaque: a ring of micro-batches, and the thread that fills it */

/** Make a ring and its thread. Local; the thread calls neither MPI nor a backend.
 *  @param loader  kept
 *  @param depth   micro-batches read ahead; 0: no thread, lm_prefetch_take() reads itself
 *  @param most    samples of the largest micro-batch
 *  @param T       tokens of a sample
 *  @return LM_ENOMEM */
lm_status lm_prefetch_new(lm_prefetch **out, lm_loader *loader, int depth, size_t most, int T,
                          lm_error *err) LM_NODISCARD;
void lm_prefetch_free(lm_prefetch *p);

/** Ask for a micro-batch to be read. Local; returns at once. @return false: the ring is full, nothing was asked */
bool lm_prefetch_ask(lm_prefetch *p, const lm_samples *what);

/** The oldest micro-batch that was asked for; waits until it is read. Local.
 *  What was asked for and is not `what` is dropped: after a change of course the samples are still the right ones.
 *  @param[out] tokens, targets  [count, T], valid until the next call
 *  @return what lm_loader_fetch() said */
lm_status lm_prefetch_take(lm_prefetch *p, const lm_samples *what, const int32_t **tokens, const int32_t **targets,
                           lm_error *err) LM_NODISCARD;

#endif
