/* kernels/cpu/widen.c - tiles of bf16 matrices to f32 and back. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cpu/loop_files.h"

void LM_LEVEL(lm_widen)(float *restrict y, const lm_bf16 *restrict x, size_t x_row, size_t rows, size_t n)
{
  for (size_t r = 0; r < rows; r++, y += n, x += x_row) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) y[i] = lm_bf16_to_f32(x[i]);
  }
}

void LM_LEVEL(lm_narrow)(lm_bf16 *restrict y, size_t y_row, const float *restrict x, const lm_bf16 *restrict bias,
                         size_t rows, size_t n)
{
  for (size_t r = 0; r < rows; r++, y += y_row, x += n) {
    if (bias == NULL) {
#pragma omp simd
      for (size_t i = 0; i < n; i++) y[i] = lm_bf16_from_f32(x[i]);
    } else {
#pragma omp simd
      for (size_t i = 0; i < n; i++) y[i] = lm_bf16_from_f32(x[i] + lm_bf16_to_f32(bias[i]));
    }
  }
}
