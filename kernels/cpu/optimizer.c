/* kernels/cpu/optimizer.c - the norm of a gradient, and AdamW: loops that memory limits. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cpu/loop_files.h"
#include "kernels/cpu/vector.h"

enum { BLOCK = 1 << 12, SMALL = 1 << 15 /* elements that do not pay for a second thread */ };

static double block_squares(const float *x, size_t n)
{
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
  return sum;
}

/* The parts depend on n alone, and are added in their order. */
double LM_LEVEL(lm_sum_squares)(const float *x, size_t n)
{
  enum { PARTS = 256 };
  double part[PARTS], sum = 0;
#pragma omp parallel for schedule(static) if (n > SMALL)
  for (size_t p = 0; p < PARTS; p++) {
    size_t begin = n / PARTS * p + n % PARTS * p / PARTS, end = n / PARTS * (p + 1) + n % PARTS * (p + 1) / PARTS;
    part[p] = block_squares(x + begin, end - begin);
  }
  for (size_t p = 0; p < PARTS; p++) sum += part[p];
  return sum;
}

void LM_LEVEL(lm_scale)(float *x, float a, size_t n)
{
#pragma omp parallel for simd schedule(static) if (n > SMALL)
  for (size_t i = 0; i < n; i++) x[i] *= a;
}

/* What is the same for all parameters of a step. */
typedef struct step_constants {
  float beta1, beta2, rest1, rest2; /* rest = 1 - beta */
  float inverse1, inverse2;         /* 1 / (1 - beta^step) */
  float eps, decay, lr, scale;
} step_constants;

LM_INLINE void adamw_block(float *w, float *m, float *v, const float *g, lm_bf16 *w16, size_t begin, size_t end,
                           const step_constants *s)
{
  const step_constants k = *s; /* in registers: nothing that is written can change it */
#pragma omp simd
  for (size_t i = begin; i < end; i++) {
    float gradient = k.scale * g[i];
    float mi = k.beta1 * m[i] + k.rest1 * gradient, vi = k.beta2 * v[i] + k.rest2 * gradient * gradient;
    float wi = w[i] - k.lr * (mi * k.inverse1 / (sqrtf(vi * k.inverse2) + k.eps) + k.decay * w[i]);
    m[i] = mi;
    v[i] = vi;
    w[i] = wi;
    if (w16 != NULL) w16[i] = lm_bf16_from_f32(wi);
  }
}

void LM_LEVEL(lm_adamw)(float *w, float *m, float *v, const float *g, lm_bf16 *w16, size_t n,
                        const lm_adamw_config *cfg, float lr, float scale, int64_t step)
{
  double beta1 = (double)cfg->beta1, beta2 = (double)cfg->beta2;
  const step_constants s = {
      .beta1 = cfg->beta1,
      .beta2 = cfg->beta2,
      .rest1 = (float)(1 - beta1),
      .rest2 = (float)(1 - beta2),
      .inverse1 = (float)(1 / (1 - pow(beta1, (double)step))),
      .inverse2 = (float)(1 / (1 - pow(beta2, (double)step))),
      .eps = cfg->eps,
      .decay = cfg->decay,
      .lr = lr,
      .scale = scale,
  };
#pragma omp parallel for schedule(static) if (n > SMALL)
  for (size_t i = 0; i < n; i += BLOCK) {
    size_t end = n - i < BLOCK ? n : i + BLOCK;
    if (w16 != NULL)
      adamw_block(w, m, v, g, w16, i, end, &s);
    else
      adamw_block(w, m, v, g, NULL, i, end, &s);
  }
}
