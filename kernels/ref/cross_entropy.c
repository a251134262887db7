/* kernels/ref/cross_entropy.c - softmax and negative log-likelihood. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/ref/ref.h"

#include <math.h>

/* log sum_v exp(z[i + v]); the largest term is taken out, so nothing overflows. A NaN in z gives NaN. */
static double log_sum_exp(lm_dtype t, const void *z, size_t i, int V)
{
  double largest = -INFINITY, sum = 0;
  for (int v = 0; v < V; v++) largest = fmax(largest, lm_ref_load(t, z, i + (size_t)v));
  for (int v = 0; v < V; v++) sum += exp(lm_ref_load(t, z, i + (size_t)v) - largest);
  return largest + log(sum);
}

void lm_cross_entropy_ref(lm_dtype t, float *loss, void *z, const int32_t *target, size_t rows, int V, int Vp,
                          float scale)
{
  for (size_t r = 0; r < rows; r++) {
    bool ignored = target[r] < 0;
    size_t row = r * (size_t)Vp;
    double lse = ignored ? 0 : log_sum_exp(t, z, row, V);
    loss[r] = ignored ? 0 : (float)(lse - lm_ref_load(t, z, row + (size_t)target[r]));
    for (int v = 0; scale != 0 && v < Vp; v++) {
      size_t i = row + (size_t)v;
      bool zero = ignored || v >= V;
      lm_ref_store(t, z, i, zero ? 0 : (double)scale * (exp(lm_ref_load(t, z, i) - lse) - (v == target[r])));
    }
  }
}
