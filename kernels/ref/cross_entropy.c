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

static double mean(lm_dtype t, const void *z, size_t i, int V)
{
  double sum = 0;
  for (int v = 0; v < V; v++) sum += lm_ref_load(t, z, i + (size_t)v);
  return sum / V;
}

void lm_cross_entropy_ref(lm_dtype t, float *loss, void *z, const int32_t *target, const lm_objective *objective,
                          size_t rows, int V, int Vp, float scale)
{
  double smoothing = objective ? (double)objective->label_smoothing : 0;
  double z_loss = objective ? (double)objective->z_loss : 0;
  for (size_t r = 0; r < rows; r++) {
    bool ignored = target[r] < 0;
    size_t row = r * (size_t)Vp;
    double lse = ignored ? 0 : log_sum_exp(t, z, row, V), others = smoothing > 0 ? smoothing * mean(t, z, row, V) : 0;
    double at_target = ignored ? 0 : (1 - smoothing) * lm_ref_load(t, z, row + (size_t)target[r]);
    loss[r] = ignored ? 0 : (float)(lse - at_target - others + z_loss * lse * lse);
    for (int v = 0; scale != 0 && v < Vp; v++) {
      size_t i = row + (size_t)v;
      bool zero = ignored || v >= V;
      double p = exp(lm_ref_load(t, z, i) - lse) * (1 + 2 * z_loss * lse);
      double g = (double)scale * (p - (v == target[r] ? 1 - smoothing : 0) - smoothing / V);
      lm_ref_store(t, z, i, zero ? 0 : g);
    }
  }
}
