/* kernels/cpu/widen.c - tiles of 16-bit matrices to f32 and back. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cpu/loop_files.h"
#include "kernels/cpu/vector.h"

LM_INLINE void widen(lm_dtype t, float *restrict y, const uint16_t *restrict x, size_t n)
{
#pragma omp simd
  for (size_t i = 0; i < n; i++) y[i] = lm_half_to_f32(t, x[i]);
}

void LM_LEVEL(lm_widen)(lm_dtype t, float *restrict y, const uint16_t *restrict x, size_t x_row, size_t rows, size_t n)
{
  for (size_t r = 0; r < rows; r++, y += n, x += x_row) {
    if (t == LM_F16)
      widen(LM_F16, y, x, n);
    else
      widen(LM_BF16, y, x, n);
  }
}

LM_INLINE void narrow(lm_dtype t, uint16_t *restrict y, const float *restrict x, const uint16_t *restrict bias,
                      size_t n)
{
  if (bias == NULL) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) y[i] = lm_half_from_f32(t, x[i]);
  } else {
#pragma omp simd
    for (size_t i = 0; i < n; i++) y[i] = lm_half_from_f32(t, x[i] + lm_half_to_f32(t, bias[i]));
  }
}

void LM_LEVEL(lm_narrow)(lm_dtype t, uint16_t *restrict y, size_t y_row, const float *restrict x,
                         const uint16_t *restrict bias, size_t rows, size_t n)
{
  for (size_t r = 0; r < rows; r++, y += y_row, x += n) {
    if (t == LM_F16)
      narrow(LM_F16, y, x, bias, n);
    else
      narrow(LM_BF16, y, x, bias, n);
  }
}
