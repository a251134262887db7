/* kernels/ref/swiglu.c - the gated unit with SiLU. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/ref/ref.h"

#include <math.h>

void lm_swiglu_fwd_ref(lm_dtype t, void *y, const void *x, size_t rows, int F)
{
  size_t F_ = (size_t)F;
  for (size_t r = 0; r < rows; r++)
    for (size_t f = 0; f < F_; f++) {
      double gate = lm_ref_load(t, x, 2 * r * F_ + f), up = lm_ref_load(t, x, (2 * r + 1) * F_ + f);
      lm_ref_store(t, y, r * F_ + f, gate / (1 + exp(-gate)) * up);
    }
}

void lm_swiglu_bwd_ref(lm_dtype t, void *dx, const void *dy, const void *x, size_t rows, int F)
{
  size_t F_ = (size_t)F;
  for (size_t r = 0; r < rows; r++)
    for (size_t f = 0; f < F_; f++) {
      size_t i = 2 * r * F_ + f;
      double gate = lm_ref_load(t, x, i), up = lm_ref_load(t, x, i + F_), g = lm_ref_load(t, dy, r * F_ + f);
      double s = 1 / (1 + exp(-gate));
      lm_ref_store(t, dx, i, g * up * s * (1 + gate * (1 - s)));
      lm_ref_store(t, dx, i + F_, g * gate * s);
    }
}
