/* kernels/cpu/layernorm.c - LayerNorm, with the residual's sum in front of it. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cpu/loop_files.h"
#include "kernels/cpu/norm.h"

LM_INLINE void normalise(lm_dtype t, void *y, const void *x, size_t at, float mean, float rstd, const void *gain,
                         const void *bias, size_t C)
{
  if (bias != NULL) {
#pragma omp simd
    for (size_t c = 0; c < C; c++)
      lm_store(t, y, at + c, (lm_load(t, x, at + c) - mean) * rstd * lm_load(t, gain, c) + lm_load(t, bias, c));
  } else {
#pragma omp simd
    for (size_t c = 0; c < C; c++) lm_store(t, y, at + c, (lm_load(t, x, at + c) - mean) * rstd * lm_load(t, gain, c));
  }
}

/* The row that begins at element `at`; it stays in the first cache over the passes. */
LM_INLINE void forward_row(lm_dtype t, void *y, float *mean, float *rstd, const void *x, size_t at, const void *gain,
                           const void *bias, size_t C, float eps)
{
  float sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
  for (size_t c = 0; c < C; c++) sum += lm_load(t, x, at + c);
  float m = sum / (float)C;
#pragma omp simd reduction(+ : squares)
  for (size_t c = 0; c < C; c++) squares += (lm_load(t, x, at + c) - m) * (lm_load(t, x, at + c) - m);
  float s = 1 / sqrtf(squares / (float)C + eps);
  normalise(t, y, x, at, m, s, gain, bias, C);
  *mean = m;
  *rstd = s;
}

void LM_LEVEL(lm_layernorm_fwd)(lm_dtype t, void *y, float *mean, float *rstd, void *sum, const void *x,
                                const void *branch, const void *gain, const void *bias, size_t rows, int C, float eps)
{
  size_t C_ = (size_t)C;
  const void *in = branch != NULL ? sum : x;
#pragma omp parallel for schedule(static) if (rows * C_ > SMALL)
  for (size_t r = 0; r < rows; r++) {
    if (branch != NULL) LM_FOR_TYPE(t, add_branch(LM_TYPE, sum, x, branch, r * C_, C_));
    LM_FOR_TYPE(t, forward_row(LM_TYPE, y, mean + r, rstd + r, in, r * C_, gain, bias, C_, eps));
  }
}

LM_INLINE void input_gradient(lm_dtype t, void *dx, const void *dy, const void *x, size_t at, float mean, float rstd,
                              const void *gain, size_t C)
{
  float sum_a = 0, sum_a_xhat = 0;
#pragma omp simd reduction(+ : sum_a, sum_a_xhat)
  for (size_t c = 0; c < C; c++) {
    float xhat = (lm_load(t, x, at + c) - mean) * rstd, a = lm_load(t, gain, c) * lm_load(t, dy, at + c);
    sum_a += a;
    sum_a_xhat += a * xhat;
  }
  float mean_a = sum_a / (float)C, mean_a_xhat = sum_a_xhat / (float)C;
#pragma omp simd
  for (size_t c = 0; c < C; c++) {
    float xhat = (lm_load(t, x, at + c) - mean) * rstd, a = lm_load(t, gain, c) * lm_load(t, dy, at + c);
    lm_store(t, dx, at + c, lm_load(t, dx, at + c) + rstd * (a - mean_a - xhat * mean_a_xhat));
  }
}

/* dgain and dbias of columns [c, c + n), n <= COLUMNS, from rows [r, end). */
LM_INLINE void parameter_gradients(lm_dtype t, float *dgain, float *dbias, const void *dy, const void *x,
                                   const float *mean, const float *rstd, size_t r, size_t end, size_t C, size_t c,
                                   size_t n)
{
  float sum_gain[COLUMNS] = {0}, sum_bias[COLUMNS] = {0};
  for (; r < end; r++) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
      float g = lm_load(t, dy, r * C + c + i);
      sum_gain[i] += g * (lm_load(t, x, r * C + c + i) - mean[r]) * rstd[r];
      sum_bias[i] += g;
    }
  }
  for (size_t i = 0; i < n; i++) dgain[c + i] += sum_gain[i];
  if (dbias == NULL) return;
  for (size_t i = 0; i < n; i++) dbias[c + i] += sum_bias[i];
}

/* All of one block of rows, called by each thread. A column is summed by one thread, block after block; the schedule is
 * static, so that it is always the same one and none needs to wait. */
LM_INLINE void backward_block(lm_dtype t, void *dx, float *dgain, float *dbias, const void *dy, const void *x,
                              const float *mean, const float *rstd, const void *gain, size_t begin, size_t end,
                              size_t C)
{
#pragma omp for schedule(static) nowait
  for (size_t r = begin; r < end; r++) input_gradient(t, dx, dy, x, r * C, mean[r], rstd[r], gain, C);
#pragma omp for schedule(static) nowait
  for (size_t c = 0; c < C; c += COLUMNS) {
    if (C - c >= COLUMNS)
      parameter_gradients(t, dgain, dbias, dy, x, mean, rstd, begin, end, C, c, COLUMNS);
    else
      parameter_gradients(t, dgain, dbias, dy, x, mean, rstd, begin, end, C, c, C - c);
  }
}

void LM_LEVEL(lm_layernorm_bwd)(lm_dtype t, void *dx, float *dgain, float *dbias, const void *dy, const void *x,
                                const float *mean, const float *rstd, const void *gain, size_t rows, int C)
{
  size_t C_ = (size_t)C;
#pragma omp parallel if (rows * C_ > SMALL)
  for (size_t r = 0; r < rows; r += ROWS) {
    size_t end = rows - r < ROWS ? rows : r + ROWS;
    LM_FOR_TYPE(t, backward_block(LM_TYPE, dx, dgain, dbias, dy, x, mean, rstd, gain, r, end, C_));
  }
}
