/* kernels/ref/rmsnorm.c - RMSNorm, of rows with the residual's sum in front of it, and of heads. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/ref/ref.h"

#include <math.h>

/* y[i, i + n) = x rstd gain; returns rstd. */
static double forward_row(lm_dtype t, void *y, const void *x, const void *gain, size_t i, size_t n, double eps)
{
  double squares = 0;
  for (size_t c = 0; c < n; c++) squares += pow(lm_ref_load(t, x, i + c), 2) / (double)n;
  double rstd = 1 / sqrt(squares + eps);
  for (size_t c = 0; c < n; c++) lm_ref_store(t, y, i + c, lm_ref_load(t, x, i + c) * rstd * lm_ref_load(t, gain, c));
  return rstd;
}

/* dx[i, i + n) = from dx, or 0 where add is not set, + rstd (a - xhat mean(a xhat)). dx may be dy. */
static void backward_row(lm_dtype t, void *dx, const void *dy, const void *x, double rstd, const void *gain, size_t i,
                         size_t n, bool add)
{
  double mean = 0;
  for (size_t c = 0; c < n; c++)
    mean += lm_ref_load(t, gain, c) * lm_ref_load(t, dy, i + c) * lm_ref_load(t, x, i + c) * rstd / (double)n;
  for (size_t c = 0; c < n; c++) {
    double a = lm_ref_load(t, gain, c) * lm_ref_load(t, dy, i + c), xhat = lm_ref_load(t, x, i + c) * rstd;
    lm_ref_store(t, dx, i + c, (add ? lm_ref_load(t, dx, i + c) : 0) + rstd * (a - xhat * mean));
  }
}

void lm_rmsnorm_fwd_ref(lm_dtype t, void *y, float *rstd, void *sum, const void *x, const void *branch,
                        const void *gain, size_t rows, int C, float eps)
{
  size_t C_ = (size_t)C;
  for (size_t i = 0; branch != NULL && i < rows * C_; i++)
    lm_ref_store(t, sum, i, lm_ref_load(t, x, i) + lm_ref_load(t, branch, i));
  const void *in = branch != NULL ? sum : x; /* as stored: the backward sees the same values */
  for (size_t r = 0; r < rows; r++) rstd[r] = (float)forward_row(t, y, in, gain, r * C_, C_, (double)eps);
}

void lm_rmsnorm_bwd_ref(lm_dtype t, void *dx, float *dgain, const void *dy, const void *x, const float *rstd,
                        const void *gain, size_t rows, int C)
{
  size_t C_ = (size_t)C;
  for (size_t r = 0; r < rows; r++) backward_row(t, dx, dy, x, (double)rstd[r], gain, r * C_, C_, true);
  for (size_t c = 0; c < C_; c++) {
    double sum = 0;
    for (size_t r = 0; r < rows; r++)
      sum += lm_ref_load(t, dy, r * C_ + c) * lm_ref_load(t, x, r * C_ + c) * (double)rstd[r];
    dgain[c] = (float)(dgain[c] + sum);
  }
}

void lm_qk_norm_fwd_ref(lm_dtype t, void *y, float *rstd, const void *x, const void *q_gain, const void *k_gain,
                        size_t rows, int H, int H_kv, int D, float eps)
{
  size_t D_ = (size_t)D, normed = (size_t)H + (size_t)H_kv, heads = normed + (size_t)H_kv;
  for (size_t r = 0; r < rows; r++)
    for (size_t h = 0; h < heads; h++) {
      size_t i = (r * heads + h) * D_;
      if (h < normed)
        rstd[r * normed + h] = (float)forward_row(t, y, x, h < (size_t)H ? q_gain : k_gain, i, D_, (double)eps);
      else
        for (size_t d = 0; d < D_; d++) lm_ref_store(t, y, i + d, lm_ref_load(t, x, i + d));
    }
}

void lm_qk_norm_bwd_ref(lm_dtype t, void *dqkv, float *dq_gain, float *dk_gain, const void *x, const float *rstd,
                        const void *q_gain, const void *k_gain, size_t rows, int H, int H_kv, int D)
{
  size_t D_ = (size_t)D, normed = (size_t)H + (size_t)H_kv, heads = normed + (size_t)H_kv;
  for (size_t h = 0; h < normed; h += h == 0 ? (size_t)H : (size_t)H_kv) /* the queries, then the keys */
    for (size_t d = 0; d < D_; d++) {
      size_t end = h == 0 ? (size_t)H : normed;
      float *dgain = h == 0 ? dq_gain : dk_gain;
      double sum = 0;
      for (size_t r = 0; r < rows; r++)
        for (size_t g = h; g < end; g++) {
          size_t i = (r * heads + g) * D_ + d;
          sum += lm_ref_load(t, dqkv, i) * lm_ref_load(t, x, i) * (double)rstd[r * normed + g];
        }
      dgain[d] = (float)(dgain[d] + sum);
    }
  for (size_t r = 0; r < rows; r++)
    for (size_t h = 0; h < normed; h++)
      backward_row(t, dqkv, dqkv, x, (double)rstd[r * normed + h], h < (size_t)H ? q_gain : k_gain,
                   (r * heads + h) * D_, D_, false);
}
