/* src/train/monitor.h - is the loss of a step far above those before it: a z-score over a window. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TRAIN_MONITOR_H
#define LM_TRAIN_MONITOR_H

#include <stdint.h>

enum { LM_MONITOR_MOST = 1024 };

/** The losses of the last updates that were applied. Plain data, the same on all ranks; /monitor of a checkpoint. As
 * many are kept whatever the window, so that it may change between two starts. */
typedef struct lm_monitor {
  float losses[LM_MONITOR_MOST]; /* a circle: the n-th, from 0, is at n % LM_MONITOR_MOST */
  uint64_t count;                /* of all added so far */
} lm_monitor;

/** (loss - mean) / deviation, of the last `window` losses; NaN while there are fewer. Local; the order of the sums does
 * not depend on when the window was filled. The deviation is that of a sample (n - 1), and no less than a thousandth of
 *  the mean, so that losses that hardly differ make no spike of a trifle.
 *  @param window  in [2, LM_MONITOR_MOST] */
double lm_monitor_z(const lm_monitor *m, int64_t window, double loss, double *mean);

/** A step's loss, once its update is applied: a spike does not raise the mean that the next is compared with. Local. */
void lm_monitor_add(lm_monitor *m, double loss);

#endif
