/* kernels/cpu/rmsnorm.c - RMSNorm, of rows with the residual's sum in front of it, and of heads. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cpu/loop_files.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/scratch.h"

/* The n elements that begin at `at`; returns rstd. */
LM_INLINE float forward_row(lm_dtype t, void *y, const void *x, size_t at, const void *gain, size_t n, float eps)
{
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (size_t c = 0; c < n; c++) squares += lm_load(t, x, at + c) * lm_load(t, x, at + c);
  float rstd = 1 / sqrtf(squares / (float)n + eps);
#pragma omp simd
  for (size_t c = 0; c < n; c++) lm_store(t, y, at + c, lm_load(t, x, at + c) * rstd * lm_load(t, gain, c));
  return rstd;
}

/* mean(a xhat), a = gain dy. */
LM_INLINE float mean_a_xhat(lm_dtype t, const void *dy, const void *x, size_t at, float rstd, const void *gain,
                            size_t n)
{
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (size_t c = 0; c < n; c++) sum += lm_load(t, gain, c) * lm_load(t, dy, at + c) * lm_load(t, x, at + c);
  return sum * rstd / (float)n;
}

void LM_LEVEL(lm_rmsnorm_fwd)(lm_dtype t, void *y, float *rstd, void *sum, const void *x, const void *branch,
                              const void *gain, size_t rows, int C, float eps)
{
  size_t C_ = (size_t)C;
  const void *in = branch != NULL ? sum : x;
#pragma omp parallel for schedule(static) if (rows * C_ > SMALL)
  for (size_t r = 0; r < rows; r++) {
    if (branch != NULL) LM_FOR_TYPE(t, add_branch(LM_TYPE, sum, x, branch, r * C_, C_));
    LM_FOR_TYPE(t, rstd[r] = forward_row(LM_TYPE, y, in, r * C_, gain, C_, eps));
  }
}

LM_INLINE void input_gradient(lm_dtype t, void *dx, const void *dy, const void *x, size_t at, float rstd,
                              const void *gain, size_t C)
{
  float mean = mean_a_xhat(t, dy, x, at, rstd, gain, C);
#pragma omp simd
  for (size_t c = 0; c < C; c++) {
    float xhat = lm_load(t, x, at + c) * rstd, a = lm_load(t, gain, c) * lm_load(t, dy, at + c);
    lm_store(t, dx, at + c, lm_load(t, dx, at + c) + rstd * (a - xhat * mean));
  }
}

/* dgain of columns [c, c + n), n <= COLUMNS, from rows [r, end). */
LM_INLINE void gain_gradient(lm_dtype t, float *dgain, const void *dy, const void *x, const float *rstd, size_t r,
                             size_t end, size_t C, size_t c, size_t n)
{
  float sum[COLUMNS] = {0};
  for (; r < end; r++) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) sum[i] += lm_load(t, dy, r * C + c + i) * lm_load(t, x, r * C + c + i) * rstd[r];
  }
  for (size_t i = 0; i < n; i++) dgain[c + i] += sum[i];
}

/* All of one block of rows, called by each thread: as LayerNorm's. */
LM_INLINE void backward_block(lm_dtype t, void *dx, float *dgain, const void *dy, const void *x, const float *rstd,
                              const void *gain, size_t begin, size_t end, size_t C)
{
#pragma omp for schedule(static) nowait
  for (size_t r = begin; r < end; r++) input_gradient(t, dx, dy, x, r * C, rstd[r], gain, C);
#pragma omp for schedule(static) nowait
  for (size_t c = 0; c < C; c += COLUMNS) {
    if (C - c >= COLUMNS)
      gain_gradient(t, dgain, dy, x, rstd, begin, end, C, c, COLUMNS);
    else
      gain_gradient(t, dgain, dy, x, rstd, begin, end, C, c, C - c);
  }
}

void LM_LEVEL(lm_rmsnorm_bwd)(lm_dtype t, void *dx, float *dgain, const void *dy, const void *x, const float *rstd,
                              const void *gain, size_t rows, int C)
{
  size_t C_ = (size_t)C;
#pragma omp parallel if (rows * C_ > SMALL)
  for (size_t r = 0; r < rows; r += ROWS) {
    size_t end = rows - r < ROWS ? rows : r + ROWS;
    LM_FOR_TYPE(t, backward_block(LM_TYPE, dx, dgain, dy, x, rstd, gain, r, end, C_));
  }
}

/* ---- heads ---- */

/* A row of qkv: H query heads, then key heads to `normed`, then value heads to `heads`. */
typedef struct row_of_heads {
  size_t H, normed, heads, D;
} row_of_heads;

static row_of_heads describe(int H, int H_kv, int D)
{
  return (row_of_heads){.H = (size_t)H, .normed = (size_t)(H + H_kv), .heads = (size_t)(H + 2 * H_kv), .D = (size_t)D};
}

LM_INLINE void forward_heads(lm_dtype t, void *y, float *rstd, const void *x, const void *q_gain, const void *k_gain,
                             const row_of_heads *s, size_t r, float eps)
{
  size_t at = r * s->heads * s->D, values = (s->heads - s->normed) * s->D;
  for (size_t h = 0; h < s->normed; h++, at += s->D)
    rstd[r * s->normed + h] = forward_row(t, y, x, at, h < s->H ? q_gain : k_gain, s->D, eps);
  memcpy((char *)y + at * lm_dtype_size(t), (const char *)x + at * lm_dtype_size(t), values * lm_dtype_size(t));
}

void LM_LEVEL(lm_qk_norm_fwd)(lm_dtype t, void *y, float *rstd, const void *x, const void *q_gain, const void *k_gain,
                              size_t rows, int H, int H_kv, int D, float eps)
{
  const row_of_heads s = describe(H, H_kv, D);
#pragma omp parallel for schedule(static) if (rows * s.heads * s.D > SMALL)
  for (size_t r = 0; r < rows; r++) {
    LM_FOR_TYPE(t, forward_heads(LM_TYPE, y, rstd, x, q_gain, k_gain, &s, r, eps));
  }
}

LM_INLINE void backward_head(lm_dtype t, void *dqkv, float *dgain, const void *x, size_t at, float rstd,
                             const void *gain, size_t D)
{
  float mean = mean_a_xhat(t, dqkv, x, at, rstd, gain, D);
#pragma omp simd
  for (size_t d = 0; d < D; d++) {
    float xhat = lm_load(t, x, at + d) * rstd, g = lm_load(t, dqkv, at + d);
    dgain[d] += g * xhat;
    lm_store(t, dqkv, at + d, rstd * (lm_load(t, gain, d) * g - xhat * mean));
  }
}

/* dgain [2,D]: of the queries, then of the keys, summed over rows [r, end). */
LM_INLINE void backward_heads(lm_dtype t, void *dqkv, float *dgain, const void *x, const float *rstd,
                              const void *q_gain, const void *k_gain, const row_of_heads *s, size_t r, size_t end)
{
  memset(dgain, 0, 2 * s->D * sizeof *dgain);
  for (; r < end; r++)
    for (size_t h = 0; h < s->normed; h++) {
      bool query = h < s->H;
      backward_head(t, dqkv, query ? dgain : dgain + s->D, x, (r * s->heads + h) * s->D, rstd[r * s->normed + h],
                    query ? q_gain : k_gain, s->D);
    }
}

void LM_LEVEL(lm_qk_norm_bwd)(lm_dtype t, void *dqkv, float *dq_gain, float *dk_gain, const void *x, const float *rstd,
                              const void *q_gain, const void *k_gain, size_t rows, int H, int H_kv, int D)
{
  const row_of_heads s = describe(H, H_kv, D);
  size_t blocks = (rows + ROWS - 1) / ROWS;
  float *dgain = lm_cpu_scratch(blocks * 2 * s.D);
#pragma omp parallel for schedule(static) if (rows * s.heads * s.D > SMALL)
  for (size_t i = 0; i < blocks; i++) {
    size_t r = i * ROWS, end = rows - r < ROWS ? rows : r + ROWS;
    LM_FOR_TYPE(t, backward_heads(LM_TYPE, dqkv, dgain + i * 2 * s.D, x, rstd, q_gain, k_gain, &s, r, end));
  }
  for (size_t i = 0; i < blocks; i++, dgain += 2 * s.D)
    for (size_t d = 0; d < s.D; d++) dq_gain[d] += dgain[d], dk_gain[d] += dgain[s.D + d];
}
