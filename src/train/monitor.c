/* src/train/monitor.c - is the loss of a step far above those before it: a z-score over a window. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/monitor.h"

#include "base/status.h"

#include <math.h>

double lm_monitor_z(const lm_monitor *m, int64_t window, double loss, double *mean)
{
  LM_ASSERT(2 <= window && window <= LM_MONITOR_MOST);
  double sum = 0, squares = 0, n = (double)window;
  *mean = NAN;
  if (m->count < (uint64_t)window) return NAN;
  for (uint64_t i = m->count - (uint64_t)window; i < m->count; i++) sum += (double)m->losses[i % LM_MONITOR_MOST];
  *mean = sum / n;
  for (uint64_t i = m->count - (uint64_t)window; i < m->count; i++) {
    double d = (double)m->losses[i % LM_MONITOR_MOST] - *mean;
    squares += d * d;
  }
  double deviation = sqrt(squares / (n - 1)), least = 1e-3 * fabs(*mean);
  return (loss - *mean) / (deviation > least ? deviation : least);
}

void lm_monitor_add(lm_monitor *m, double loss)
{
  m->losses[m->count++ % LM_MONITOR_MOST] = (float)loss;
}
