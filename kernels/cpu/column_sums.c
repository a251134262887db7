/* kernels/cpu/column_sums.c - gradients of biases: sums down the columns. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cpu/loop_files.h"
#include "kernels/cpu/vector.h"

/* A thread takes whole blocks of columns, so that each sum is made by one thread, row after row. A block of 16 bits
 * fills two cache lines. */
enum { BLOCK = 64 };

LM_INLINE void block(lm_dtype t, float *restrict sum, const void *x, size_t at, size_t rows, size_t C, size_t n)
{
  float s[BLOCK] = {0};
  for (size_t r = 0; r < rows; r++, at += C) {
#pragma omp simd
    for (size_t c = 0; c < n; c++) s[c] += lm_load(t, x, at + c);
  }
  for (size_t c = 0; c < n; c++) sum[c] += s[c];
}

void LM_LEVEL(lm_column_sums)(lm_dtype t, float *sum, const void *x, size_t rows, int C)
{
#pragma omp parallel for schedule(static)
  for (int c = 0; c < C; c += BLOCK) {
    int n = C - c < BLOCK ? C - c : BLOCK;
    LM_FOR_TYPE(t, block(LM_TYPE, sum + c, x, (size_t)c, rows, (size_t)C, (size_t)n));
  }
}
