/* src/optim/schedule.h - applied step -> learning rate. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_OPTIM_SCHEDULE_H
#define LM_OPTIM_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum lm_schedule_kind {
  LM_SCHEDULE_COSINE,       /* Loshchilov & Hutter, arXiv:1608.03983, eq. 5 */
  LM_SCHEDULE_LINEAR,       /* straight down */
  LM_SCHEDULE_CONSTANT,     /* the peak for ever */
  LM_SCHEDULE_WSD,          /* warm-up, stable, decay. Hu et al., arXiv:2404.06395, section 4 */
  LM_SCHEDULE_INVERSE_SQRT, /* Vaswani et al., arXiv:1706.03762, eq. 3 */
} lm_schedule_kind;

typedef enum lm_decay { LM_DECAY_LINEAR, LM_DECAY_SQRT } lm_decay;

/** Linear warm-up to a peak, then down to a floor, as `kind` says. Plain data. */
typedef struct lm_schedule {
  lm_schedule_kind kind;
  double peak, floor; /* learning rates, peak >= floor >= 0 */
  int64_t warmup;     /* steps >= 0 */
  int64_t end;        /* the step at which the last rate is reached, >= warmup; from there on it stays */
  double cycles;      /* cosine: whole waves, > 0; 0.5 is the usual half, from the peak down to the floor */
  bool restarts;      /* cosine: each cycle is a half wave that begins at the peak again; cycles >= 1 */
  int64_t decay_from; /* wsd: the step at which the decay begins */
  lm_decay decay;     /* wsd: 1 - r or 1 - sqrt(r). Hägele et al., arXiv:2405.18392, section 3 */
} lm_schedule;

/** Learning rate of the update after `applied` updates. Local; a pure function.
 *  peak (applied + 1) / warmup while applied < warmup; then floor + f (peak - floor), where with
 *  r = (applied - warmup) / (end - warmup), at most 1, f is
 *    cosine        (1 + cos(2 pi cycles r)) / 2; with restarts (1 + cos(pi (cycles r mod 1))) / 2, and 0 from r = 1 on
 *    linear        1 - r
 *    constant      1
 *    wsd           1 until decay_from; then, with q = (applied - decay_from) / (end - decay_from), 1 - q or 1 - sqrt(q)
 *    inverse_sqrt  sqrt(w / (applied + 1)) with w = max(1, warmup): it has no end */
double lm_schedule_lr(const lm_schedule *s, int64_t applied);

#endif
