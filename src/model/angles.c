/* src/model/angles.c - the angles of rotary positions. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "model/parts.h"

#include <math.h>

static const double TWO_PI = 6.283185307179586476925;

/* Radians a position, of pair d. */
static double speed(const lm_rope_config *r, int64_t d, int64_t D)
{
  double plain = pow(r->base, -2.0 * (double)d / (double)D), turns = (double)r->ctx * plain / TWO_PI;
  if (r->scaling == LM_ROPE_PLAIN || turns > r->high) return plain; /* turns within the context it was trained on */
  if (turns < r->low) return plain / r->factor;
  double share = (turns - r->low) / (r->high - r->low);
  return (1 - share) * plain / r->factor + share * plain;
}

void lm_model_angles(const lm_model_config *cfg, float *angles)
{
  int64_t D = cfg->n_embd / cfg->n_head, half = D / 2;
  for (int64_t t = 0; t < cfg->n_ctx; t++, angles += D)
    for (int64_t d = 0; d < half; d++) {
      double angle = (double)t * speed(&cfg->rope, d, D);
      angles[d] = (float)cos(angle);
      angles[half + d] = (float)sin(angle);
    }
}
