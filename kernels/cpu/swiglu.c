/* kernels/cpu/swiglu.c - the gated unit with SiLU. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cpu/loop_files.h"
#include "kernels/cpu/vector.h"

enum { SMALL = 1 << 14 /* elements that do not pay for a second thread */ };

/* 1 / (1 + exp(-x)); exp may be infinite, which gives 0. */
LM_INLINE float logistic(float x)
{
  return 1 / (1 + lm_exp(-x));
}

LM_INLINE void forward_row(lm_dtype t, void *y, const void *x, size_t r, size_t F)
{
#pragma omp simd
  for (size_t f = 0; f < F; f++) {
    float gate = lm_load(t, x, 2 * r * F + f);
    lm_store(t, y, r * F + f, gate * logistic(gate) * lm_load(t, x, (2 * r + 1) * F + f));
  }
}

LM_INLINE void backward_row(lm_dtype t, void *dx, const void *dy, const void *x, size_t r, size_t F)
{
  size_t at = 2 * r * F;
#pragma omp simd
  for (size_t f = 0; f < F; f++) {
    float gate = lm_load(t, x, at + f), up = lm_load(t, x, at + F + f), g = lm_load(t, dy, r * F + f);
    float s = logistic(gate);
    lm_store(t, dx, at + f, g * up * s * (1 + gate * (1 - s)));
    lm_store(t, dx, at + F + f, g * gate * s);
  }
}

void LM_LEVEL(lm_swiglu_fwd)(lm_dtype t, void *y, const void *x, size_t rows, int F)
{
#pragma omp parallel for schedule(static) if (rows * (size_t)F > SMALL)
  for (size_t r = 0; r < rows; r++) {
    LM_FOR_TYPE(t, forward_row(LM_TYPE, y, x, r, (size_t)F));
  }
}

void LM_LEVEL(lm_swiglu_bwd)(lm_dtype t, void *dx, const void *dy, const void *x, size_t rows, int F)
{
#pragma omp parallel for schedule(static) if (rows * (size_t)F > SMALL)
  for (size_t r = 0; r < rows; r++) {
    LM_FOR_TYPE(t, backward_row(LM_TYPE, dx, dy, x, r, (size_t)F));
  }
}
