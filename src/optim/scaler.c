/* src/optim/scaler.c - overflows -> the scale of the loss. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "optim/scaler.h"

#include <math.h>

lm_scaler lm_scaler_start(const lm_scaler_config *cfg)
{
  return (lm_scaler){.scale = (float)cfg->init, .overflows_left = (uint64_t)cfg->hysteresis};
}

static void overflowed(lm_scaler *s, const lm_scaler_config *cfg)
{
  s->good_steps = 0;
  if (s->overflows_left > 1)
    s->overflows_left--;
  else
    s->scale = (float)fmax((double)s->scale / 2, cfg->min);
}

void lm_scaler_update(lm_scaler *s, const lm_scaler_config *cfg, bool overflow)
{
  if (overflow) {
    overflowed(s, cfg);
    return;
  }
  s->good_steps++;
  if (s->good_steps < (uint64_t)cfg->growth_steps) return;
  s->good_steps = 0;
  s->overflows_left = (uint64_t)cfg->hysteresis;
  s->scale = (float)fmin((double)s->scale * 2, cfg->max);
}
