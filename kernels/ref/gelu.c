/* kernels/ref/gelu.c - GELU in its tanh form. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/ref/ref.h"

#include <math.h>

static const double ROOT_2_OVER_PI = 0.79788456080286535588;

void lm_gelu_fwd_ref(lm_dtype t, void *y, const void *x, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    double v = lm_ref_load(t, x, i), u = ROOT_2_OVER_PI * (v + 0.044715 * v * v * v);
    lm_ref_store(t, y, i, v / 2 * (1 + tanh(u)));
  }
}

void lm_gelu_bwd_ref(lm_dtype t, void *dx, const void *dy, const void *x, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    double v = lm_ref_load(t, x, i), u = ROOT_2_OVER_PI * (v + 0.044715 * v * v * v);
    double du = ROOT_2_OVER_PI * (1 + 3 * 0.044715 * v * v), sech2 = 1 / pow(cosh(u), 2);
    lm_ref_store(t, dx, i, lm_ref_load(t, dy, i) * ((1 + tanh(u)) / 2 + v / 2 * sech2 * du));
  }
}
