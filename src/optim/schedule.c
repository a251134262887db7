/* src/optim/schedule.c - applied step -> learning rate. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "optim/schedule.h"

#include <math.h>

double lm_schedule_lr(const lm_schedule *s, int64_t applied)
{
  if (applied < s->warmup) return s->peak * (double)(applied + 1) / (double)s->warmup;
  if (applied >= s->end) return s->end > s->warmup || applied > s->end ? s->floor : s->peak;
  double r = (double)(applied - s->warmup) / (double)(s->end - s->warmup);
  return s->floor + 0.5 * (1 + cos(3.141592653589793238463 * r)) * (s->peak - s->floor);
}
