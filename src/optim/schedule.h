/* src/optim/schedule.h - applied step -> learning rate. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_OPTIM_SCHEDULE_H
#define LM_OPTIM_SCHEDULE_H

#include <stdint.h>

/** Linear warm-up, then half a cosine down to a floor. Plain data. */
typedef struct lm_schedule {
  double peak, floor; /* learning rates, peak >= floor >= 0 */
  int64_t warmup;     /* steps >= 0 */
  int64_t end;        /* the step at which the floor is reached, >= warmup; from there on it stays */
} lm_schedule;

/** Learning rate of the update after `applied` updates. Local; a pure function.
 *  peak (applied + 1) / warmup while applied < warmup; then floor + (1 + cos(pi r)) / 2 (peak - floor) with
 *  r = (applied - warmup) / (end - warmup). Loshchilov & Hutter, arXiv:1608.03983, eq. 5 with one cycle. */
double lm_schedule_lr(const lm_schedule *s, int64_t applied);

#endif
