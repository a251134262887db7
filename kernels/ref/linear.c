/* kernels/ref/linear.c - matrix products. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/ref/ref.h"

void lm_linear_fwd_ref(lm_dtype t, void *y, const void *x, const void *w, const void *bias, size_t M, int N, int K)
{
  size_t N_ = (size_t)N, K_ = (size_t)K;
  for (size_t m = 0; m < M; m++)
    for (size_t n = 0; n < N_; n++) {
      double sum = bias == NULL ? 0 : lm_ref_load(t, bias, n);
      for (size_t k = 0; k < K_; k++) sum += lm_ref_load(t, x, m * K_ + k) * lm_ref_load(t, w, n * K_ + k);
      lm_ref_store(t, y, m * N_ + n, sum);
    }
}

void lm_linear_bwd_input_ref(lm_dtype t, void *dx, const void *dy, const void *w, size_t M, int N, int K)
{
  size_t N_ = (size_t)N, K_ = (size_t)K;
  for (size_t m = 0; m < M; m++)
    for (size_t k = 0; k < K_; k++) {
      double sum = 0;
      for (size_t n = 0; n < N_; n++) sum += lm_ref_load(t, dy, m * N_ + n) * lm_ref_load(t, w, n * K_ + k);
      lm_ref_store(t, dx, m * K_ + k, sum);
    }
}

void lm_linear_bwd_weight_ref(lm_dtype t, bool add, float *dw, float *dbias, const void *dy, const void *x, size_t M,
                              int N, int K)
{
  size_t N_ = (size_t)N, K_ = (size_t)K;
  for (size_t n = 0; n < N_; n++)
    for (size_t k = 0; k < K_; k++) {
      double sum = 0;
      for (size_t m = 0; m < M; m++) sum += lm_ref_load(t, dy, m * N_ + n) * lm_ref_load(t, x, m * K_ + k);
      dw[n * K_ + k] = (float)((add ? dw[n * K_ + k] : 0) + sum);
    }
  for (size_t n = 0; dbias != NULL && n < N_; n++) {
    double sum = 0;
    for (size_t m = 0; m < M; m++) sum += lm_ref_load(t, dy, m * N_ + n);
    dbias[n] = (float)((add ? dbias[n] : 0) + sum);
  }
}
