/* kernels/ref/layernorm.c - LayerNorm, with the residual's sum in front of it. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/ref/ref.h"

#include <math.h>

void lm_layernorm_fwd_ref(lm_dtype t, void *y, float *mean, float *rstd, void *sum, const void *x, const void *branch,
                          const void *gain, const void *bias, size_t rows, int C, float eps)
{
  size_t C_ = (size_t)C;
  for (size_t i = 0; branch != NULL && i < rows * C_; i++)
    lm_ref_store(t, sum, i, lm_ref_load(t, x, i) + lm_ref_load(t, branch, i));
  const void *in = branch != NULL ? sum : x; /* as stored: the backward sees the same values */
  for (size_t r = 0; r < rows; r++) {
    double m = 0, var = 0;
    for (size_t c = 0; c < C_; c++) m += lm_ref_load(t, in, r * C_ + c) / C;
    for (size_t c = 0; c < C_; c++) var += pow(lm_ref_load(t, in, r * C_ + c) - m, 2) / C;
    double s = 1 / sqrt(var + (double)eps);
    for (size_t c = 0; c < C_; c++) {
      double xhat = (lm_ref_load(t, in, r * C_ + c) - m) * s;
      lm_ref_store(t, y, r * C_ + c, xhat * lm_ref_load(t, gain, c) + (bias == NULL ? 0 : lm_ref_load(t, bias, c)));
    }
    mean[r] = (float)m;
    rstd[r] = (float)s;
  }
}

/* dx of one row of C channels that begins at element i. */
static void input_gradient(lm_dtype t, void *dx, const void *dy, const void *x, double mean, double rstd,
                           const void *gain, size_t i, size_t C)
{
  double mean_a = 0, mean_a_xhat = 0;
  for (size_t c = 0; c < C; c++) {
    double xhat = (lm_ref_load(t, x, i + c) - mean) * rstd, a = lm_ref_load(t, gain, c) * lm_ref_load(t, dy, i + c);
    mean_a += a / (double)C;
    mean_a_xhat += a * xhat / (double)C;
  }
  for (size_t c = 0; c < C; c++) {
    double xhat = (lm_ref_load(t, x, i + c) - mean) * rstd, a = lm_ref_load(t, gain, c) * lm_ref_load(t, dy, i + c);
    lm_ref_store(t, dx, i + c, lm_ref_load(t, dx, i + c) + rstd * (a - mean_a - xhat * mean_a_xhat));
  }
}

void lm_layernorm_bwd_ref(lm_dtype t, void *dx, float *dgain, float *dbias, const void *dy, const void *x,
                          const float *mean, const float *rstd, const void *gain, size_t rows, int C)
{
  size_t C_ = (size_t)C;
  for (size_t r = 0; r < rows; r++) input_gradient(t, dx, dy, x, mean[r], rstd[r], gain, r * C_, C_);
  for (size_t c = 0; c < C_; c++) {
    double sum_gain = 0, sum_bias = 0;
    for (size_t r = 0; r < rows; r++) {
      double g = lm_ref_load(t, dy, r * C_ + c), m = mean[r], s = rstd[r];
      sum_gain += g * (lm_ref_load(t, x, r * C_ + c) - m) * s;
      sum_bias += g;
    }
    dgain[c] = (float)(dgain[c] + sum_gain);
    if (dbias != NULL) dbias[c] = (float)(dbias[c] + sum_bias);
  }
}
