/* src/train/evaluate.h - the mean loss of a model over a dataset. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TRAIN_EVALUATE_H
#define LM_TRAIN_EVALUATE_H

#include "batch/dataset.h"
#include "comm/watchdog.h"
#include "model/model.h"

/** Who watches that an evaluation goes on, and as which step. */
typedef struct lm_watched {
  lm_watchdog *watchdog;
  uint64_t step;
} lm_watched;

/** Sum of losses and count of scored targets over the first windows of a dataset. Collective: ranks share the windows.
 *  Every target is scored once: without a limit count is tokens - 1, the partial last window included. The sum does not
 *  depend on the ranks but for rounding in double.
 *  @param limit  windows; 0: all
 *  @param micro  sequences at a time, at most the model's max_B
 *  @param tokens, targets  [micro, n_ctx] scratch
 *  @param watched  whom to tell of each micro-batch; NULL: nobody
 *  @param[out] out  the same on all ranks; count 0 where a stop request interrupted it
 *  @return LM_EDAMAGED where an id is not below the dataset's vocabulary */
lm_status lm_evaluate(const lm_comm *comm, lm_model *m, const lm_dataset *data, uint64_t limit, int micro,
                      int32_t *tokens, int32_t *targets, const lm_watched *watched, lm_loss *out,
                      lm_error *err) LM_NODISCARD;

#endif
