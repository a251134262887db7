/* kernels/cpu/optimizer.c - sums, the norm of a gradient, AdamW, SGD: loops that memory limits. */
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

/* The losses of a micro-batch: a few, in their order. */
void LM_LEVEL(lm_sum)(double *sum, const float *x, size_t n)
{
  *sum = 0;
  for (size_t i = 0; i < n; i++) *sum += (double)x[i];
}

/* The parts depend on n alone, and are added in their order. */
void LM_LEVEL(lm_sum_squares)(double *sum, const float *x, size_t n)
{
  enum { PARTS = 256 };
  double part[PARTS];
#pragma omp parallel for schedule(static) if (n > SMALL)
  for (size_t p = 0; p < PARTS; p++) {
    size_t begin = n / PARTS * p + n % PARTS * p / PARTS, end = n / PARTS * (p + 1) + n % PARTS * (p + 1) / PARTS;
    part[p] = block_squares(x + begin, end - begin);
  }
  *sum = 0;
  for (size_t p = 0; p < PARTS; p++) *sum += part[p];
}

void LM_LEVEL(lm_scale)(float *x, float a, size_t n)
{
#pragma omp parallel for simd schedule(static) if (n > SMALL)
  for (size_t i = 0; i < n; i++) x[i] *= a;
}

void LM_LEVEL(lm_add)(float *x, const float *y, size_t n)
{
#pragma omp parallel for simd schedule(static) if (n > SMALL)
  for (size_t i = 0; i < n; i++) x[i] += y[i];
}

/* What is the same for all parameters of a step. */
typedef struct step_constants {
  float beta1, beta2, rest1, rest2; /* rest = 1 - beta */
  float inverse1, inverse2;         /* 1 / (1 - beta^step) */
  float eps, decay, lr, scale;
} step_constants;

LM_INLINE void adamw_block(lm_dtype t, float *w, float *m, float *v, const float *g, void *w16, size_t begin,
                           size_t end, const step_constants *s)
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
    if (t != LM_F32) lm_store(t, w16, i, wi);
  }
}

void LM_LEVEL(lm_adamw)(lm_dtype t, float *w, float *m, float *v, const float *g, void *w16, size_t n,
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
    LM_FOR_TYPE(t, adamw_block(LM_TYPE, w, m, v, g, w16, i, end, &s));
  }
}

LM_INLINE void sgd_block(lm_dtype t, float *w, float *m, const float *g, void *w16, size_t begin, size_t end,
                         const lm_sgd_config *cfg, float lr, float scale)
{
  const float momentum = cfg->momentum, decay = cfg->decay, ahead = cfg->nesterov ? cfg->momentum : 1,
              now = cfg->nesterov ? 1 : 0;
#pragma omp simd
  for (size_t i = begin; i < end; i++) {
    float gradient = scale * g[i], mi = m == NULL ? gradient : momentum * m[i] + gradient;
    float update = m == NULL ? gradient : now * gradient + ahead * mi;
    float wi = w[i] - lr * (update + decay * w[i]);
    if (m != NULL) m[i] = mi;
    w[i] = wi;
    if (t != LM_F32) lm_store(t, w16, i, wi);
  }
}

void LM_LEVEL(lm_sgd)(lm_dtype t, float *w, float *m, const float *g, void *w16, size_t n, const lm_sgd_config *cfg,
                      float lr, float scale)
{
#pragma omp parallel for schedule(static) if (n > SMALL)
  for (size_t i = 0; i < n; i += BLOCK) {
    size_t end = n - i < BLOCK ? n : i + BLOCK;
    if (m == NULL)
      LM_FOR_TYPE(t, sgd_block(LM_TYPE, w, NULL, g, w16, i, end, cfg, lr, scale));
    else
      LM_FOR_TYPE(t, sgd_block(LM_TYPE, w, m, g, w16, i, end, cfg, lr, scale));
  }
}
