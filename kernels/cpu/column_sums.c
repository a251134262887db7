/* kernels/cpu/column_sums.c - gradients of biases: sums down the columns. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cpu/loop_files.h"

/* A thread takes whole blocks of columns, so that each sum is made by one thread, row after row. A block of bf16 fills
 * two cache lines. */
enum { BLOCK = 64 };

static void block_f32(float *restrict sum, const float *x, size_t rows, int C, int n)
{
  float s[BLOCK] = {0};
  for (size_t r = 0; r < rows; r++, x += C) {
#pragma omp simd
    for (int c = 0; c < n; c++) s[c] += x[c];
  }
  for (int c = 0; c < n; c++) sum[c] += s[c];
}

static void block_bf16(float *restrict sum, const lm_bf16 *x, size_t rows, int C, int n)
{
  float s[BLOCK] = {0};
  for (size_t r = 0; r < rows; r++, x += C) {
#pragma omp simd
    for (int c = 0; c < n; c++) s[c] += lm_bf16_to_f32(x[c]);
  }
  for (int c = 0; c < n; c++) sum[c] += s[c];
}

void LM_LEVEL(lm_column_sums)(lm_dtype t, float *sum, const void *x, size_t rows, int C)
{
#pragma omp parallel for schedule(static)
  for (int c = 0; c < C; c += BLOCK) {
    int n = C - c < BLOCK ? C - c : BLOCK;
    if (t == LM_F32)
      block_f32(sum + c, (const float *)x + c, rows, C, n);
    else
      block_bf16(sum + c, (const lm_bf16 *)x + c, rows, C, n);
  }
}
