/* kernels/cpu/gelu.c - GELU in its tanh form. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cpu/loop_files.h"
#include "kernels/cpu/vector.h"

enum { BLOCK = 1 << 12 };

/* (1 + tanh u) / 2 = 1 / (1 + exp(-2u)), and 2u = x (A + B x^2). */
static const float A = 1.59576912f, B = 0.0713548163f;

/* With e = exp(-|2u|), which cannot overflow: 1 / (1 + e) for x >= 0, e / (1 + e) below. */
LM_INLINE void forward(lm_dtype t, void *y, const void *x, size_t begin, size_t end)
{
#pragma omp simd
  for (size_t i = begin; i < end; i++) {
    float v = lm_load(t, x, i), e = lm_exp(-fabsf(v * (A + B * v * v)));
    lm_store(t, y, i, v * (v >= 0 ? 1 : e) / (1 + e));
  }
}

/* With s = 1 / (1 + exp(-2u)): gelu' = s + x s (1 - s) (A + 3 B x^2), and s (1 - s) = e / (1 + e)^2. That is 0 long
 * before x^2 reaches its limit here, which keeps infinity out of the product. */
LM_INLINE void backward(lm_dtype t, void *dx, const void *dy, const void *x, size_t begin, size_t end)
{
#pragma omp simd
  for (size_t i = begin; i < end; i++) {
    float v = lm_load(t, x, i), e = lm_exp(-fabsf(v * (A + B * v * v))), q = 1 / (1 + e);
    float v2 = v * v, s = (v >= 0 ? 1 : e) * q;
    v2 = v2 > 1000 ? 1000 : v2;
    lm_store(t, dx, i, lm_load(t, dy, i) * (s + v * (e * q * q * (A + 3 * B * v2))));
  }
}

void LM_LEVEL(lm_gelu_fwd)(lm_dtype t, void *y, const void *x, size_t n)
{
#pragma omp parallel for schedule(static) if (n > 2 * BLOCK)
  for (size_t i = 0; i < n; i += BLOCK) {
    size_t end = n - i < BLOCK ? n : i + BLOCK;
    LM_FOR_TYPE(t, forward(LM_TYPE, y, x, i, end));
  }
}

void LM_LEVEL(lm_gelu_bwd)(lm_dtype t, void *dx, const void *dy, const void *x, size_t n)
{
#pragma omp parallel for schedule(static) if (n > 2 * BLOCK)
  for (size_t i = 0; i < n; i += BLOCK) {
    size_t end = n - i < BLOCK ? n : i + BLOCK;
    LM_FOR_TYPE(t, backward(LM_TYPE, dx, dy, x, i, end));
  }
}
