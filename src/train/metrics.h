/* src/train/metrics.h - RUN/metrics.jsonl: one JSON object a step, unique over restarts. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TRAIN_METRICS_H
#define LM_TRAIN_METRICS_H

#include "base/memory.h"
#include <stdbool.h>
#include <stdint.h>

/** What a step tells. A number that does not exist (no evaluation, a non-finite loss) is NaN, and null in the file. */
typedef struct lm_metrics_row {
  uint64_t step, applied_step, tokens; /* tokens seen so far, over all ranks */
  double loss, grad_norm, lr, val_loss;
  uint64_t batch;    /* samples of this step, over all ranks */
  double loss_scale; /* 1 but in fp16 */
  bool skipped;      /* the update was not applied: a gradient was not finite, or the loss a spike */
  double loss_z;     /* lm_monitor_z(); NaN: no detector, or too few losses */
  double tokens_per_s, mfu;
  struct {
    double data, compute, reduce, update, eval, checkpoint;
  } seconds;               /* data, compute, reduce: of the slowest rank; the others of rank 0 */
  uint64_t memory;         /* peak resident bytes of rank 0 */
  const uint64_t *samples; /* windows of the global batch, in order; NULL: not asked for */
  const uint64_t *sources; /* which source each is of; NULL: there is one */
  size_t n_samples;
} lm_metrics_row;

typedef struct lm_metrics lm_metrics; /* opaque */

/** Open the file for appending. Local, rank 0. Rows after `step`, and a torn last row, are cut: they will come again.
 *  @return LM_EIO, LM_ENOMEM */
lm_status lm_metrics_open(lm_metrics **out, const char *path, uint64_t step, lm_error *err) LM_NODISCARD;

/** Append a row with one write: a killed run leaves whole rows. Local. */
lm_status lm_metrics_write(lm_metrics *m, const lm_metrics_row *row, lm_error *err) LM_NODISCARD;
void lm_metrics_close(lm_metrics *m);

#endif
