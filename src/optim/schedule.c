/* src/optim/schedule.c - applied step -> learning rate. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "optim/schedule.h"

#include <math.h>

static const double PI = 3.141592653589793238463;

/* How far `at` is on the way from `begin` to `end`, in [0, 1]. Where that way has no length, its end comes after it. */
static double progress(int64_t at, int64_t begin, int64_t end)
{
  if (at <= begin) return 0;
  return at < end ? (double)(at - begin) / (double)(end - begin) : 1;
}

static double cosine(const lm_schedule *s, double r)
{
  if (!s->restarts) return 0.5 * (1 + cos(PI * 2 * s->cycles * r));
  return r < 1 ? 0.5 * (1 + cos(PI * fmod(s->cycles * r, 1))) : 0;
}

static double wsd(const lm_schedule *s, int64_t applied)
{
  double q = progress(applied, s->decay_from, s->end);
  return 1 - (s->decay == LM_DECAY_SQRT ? sqrt(q) : q);
}

/* The share of the way from the floor to the peak, after the warm-up. */
static double height(const lm_schedule *s, int64_t applied)
{
  double r = progress(applied, s->warmup, s->end);
  switch (s->kind) {
  case LM_SCHEDULE_COSINE: return cosine(s, r);
  case LM_SCHEDULE_LINEAR: return 1 - r;
  case LM_SCHEDULE_CONSTANT: return 1;
  case LM_SCHEDULE_WSD: return wsd(s, applied);
  case LM_SCHEDULE_INVERSE_SQRT: return sqrt((double)(s->warmup > 0 ? s->warmup : 1) / (double)(applied + 1));
  }
  return 1;
}

double lm_schedule_lr(const lm_schedule *s, int64_t applied)
{
  if (applied < s->warmup) return s->peak * (double)(applied + 1) / (double)s->warmup;
  return s->floor + height(s, applied) * (s->peak - s->floor);
}
