/* kernels/cpu/dropout.c - elements taken out of rows. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cpu/keep.h"
#include "kernels/cpu/loop_files.h"

enum {
  SMALL = 1 << 12, /* elements that do not pay for a second thread */
  BLOCK = 256,     /* elements whose factors are made at a time */
};

/* What is taken out is 0 even where it was not a number. */
LM_INLINE void apply(lm_dtype t, void *y, const void *x, const float *factor, size_t at, size_t n)
{
#pragma omp simd
  for (size_t i = 0; i < n; i++) lm_store(t, y, at + i, factor[i] == 0 ? 0 : lm_load(t, x, at + i) * factor[i]);
}

LM_INLINE void drop_row(lm_dtype t, void *y, const void *x, const lm_keep *k, size_t row, size_t at, size_t C)
{
  float factor[BLOCK];
  for (size_t c = 0; c < C; c += BLOCK) {
    size_t n = C - c < BLOCK ? C - c : BLOCK;
#pragma omp simd
    for (size_t i = 0; i < (n + 3) / 4; i++)
      lm_keep_factors(k, 0, (uint32_t)row, (uint32_t)(c / 4 + i), factor + 4 * i, 1);
    apply(t, y, x, factor, at + c, n);
  }
}

void LM_LEVEL(lm_dropout)(lm_dtype t, void *y, const void *x, const lm_dropout *how, int B, int T, int C)
{
  size_t rows = (size_t)B * (size_t)T, C_ = (size_t)C;
#pragma omp parallel for schedule(static) if (rows * C_ > SMALL)
  for (size_t r = 0; r < rows; r++) {
    const lm_keep k = lm_keep_of(how, r / (size_t)T);
    LM_FOR_TYPE(t, drop_row(LM_TYPE, y, x, &k, r % (size_t)T, r * C_, C_));
  }
}
