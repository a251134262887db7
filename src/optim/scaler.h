/* src/optim/scaler.h - overflows -> the scale of the loss: keeps the gradients of fp16 in range. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_OPTIM_SCALER_H
#define LM_OPTIM_SCALER_H

#include <stdbool.h>
#include <stdint.h>

/** How a scale moves. Plain data. */
typedef struct lm_scaler_config {
  double init, min, max; /* 0 < min <= init <= max */
  int64_t growth_steps;  /* >= 1: so many steps in a row without overflow double the scale */
  int64_t hysteresis; /* >= 1: the so-manieth overflow since the last doubling halves it, and so does each after it */
} lm_scaler_config;

/** Where a scale stands. Plain data; a checkpoint keeps it, field by field, at /scaler. */
typedef struct lm_scaler {
  float scale;             /* what the mean loss is multiplied by before the backward */
  uint64_t good_steps;     /* without overflow, in a row */
  uint64_t overflows_left; /* until the next one halves the scale: 1 is the least */
} lm_scaler;

/** The scale before the first step. Local. */
lm_scaler lm_scaler_start(const lm_scaler_config *cfg);

/** What a step does to the scale. Local; all ranks call it with the same `overflow`. Micikevicius et al.,
 * arXiv:1710.03740, section 3.2: halved after an overflow, doubled after growth_steps without one, within [min, max].
 */
void lm_scaler_update(lm_scaler *s, const lm_scaler_config *cfg, bool overflow);

#endif
