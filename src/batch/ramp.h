/* src/batch/ramp.h - how many samples a step has, in a run whose batch grows. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_BATCH_RAMP_H
#define LM_BATCH_RAMP_H

#include <stdint.h>

/** A global batch that grows from `start` to `full` in equal rises, each of which trains on about as many samples as
 * the others, over the first `samples` samples of the run. Plain data. Brown et al., arXiv:2005.14165, appendix B. */
typedef struct lm_ramp {
  uint64_t start, full; /* 1 <= start <= full */
  uint64_t samples;     /* 0: full from the first step on */
} lm_ramp;

/** Samples of the global batch after `step` steps. Local; a pure function, never falling with `step`. */
uint64_t lm_ramp_batch(const lm_ramp *r, uint64_t step);

/** Samples of the first `step` steps: where the data of the next one begins. Local; the sum of the batches, in closed
 * form. */
uint64_t lm_ramp_position(const lm_ramp *r, uint64_t step);

/** The least number of steps that have at least `samples` samples. Local. */
uint64_t lm_ramp_steps(const lm_ramp *r, uint64_t samples);

#endif
