/* kernels/ref/optimizer.c - sums, the norm of a gradient, AdamW, SGD. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/ref/ref.h"

#include <math.h>

void lm_sum_ref(double *sum, const float *x, size_t n)
{
  *sum = 0;
  for (size_t i = 0; i < n; i++) *sum += (double)x[i];
}

void lm_sum_squares_ref(double *sum, const float *x, size_t n)
{
  *sum = 0;
  for (size_t i = 0; i < n; i++) *sum += (double)x[i] * (double)x[i];
}

void lm_scale_ref(float *x, float a, size_t n)
{
  for (size_t i = 0; i < n; i++) x[i] *= a;
}

void lm_add_ref(float *x, const float *y, size_t n)
{
  for (size_t i = 0; i < n; i++) x[i] += y[i];
}

void lm_adamw_ref(lm_dtype t, float *w, float *m, float *v, const float *g, void *w16, size_t n,
                  const lm_adamw_config *cfg, float lr, float scale, int64_t step)
{
  double beta1 = (double)cfg->beta1, beta2 = (double)cfg->beta2, eps = (double)cfg->eps, decay = (double)cfg->decay;
  double bias1 = 1 - pow(beta1, (double)step), bias2 = 1 - pow(beta2, (double)step);
  for (size_t i = 0; i < n; i++) {
    double gradient = (double)scale * (double)g[i];
    m[i] = (float)(beta1 * (double)m[i] + (1 - beta1) * gradient);
    v[i] = (float)(beta2 * (double)v[i] + (1 - beta2) * gradient * gradient);
    double mhat = (double)m[i] / bias1, vhat = (double)v[i] / bias2;
    w[i] = (float)((double)w[i] - (double)lr * (mhat / (sqrt(vhat) + eps) + decay * (double)w[i]));
    if (w16 != NULL) lm_ref_store(t, w16, i, (double)w[i]);
  }
}

void lm_sgd_ref(lm_dtype t, float *w, float *m, const float *g, void *w16, size_t n, const lm_sgd_config *cfg, float lr,
                float scale)
{
  double momentum = (double)cfg->momentum, decay = (double)cfg->decay;
  for (size_t i = 0; i < n; i++) {
    double gradient = (double)scale * (double)g[i], update = gradient;
    if (m != NULL) {
      m[i] = (float)(momentum * (double)m[i] + gradient);
      update = cfg->nesterov ? gradient + momentum * (double)m[i] : (double)m[i];
    }
    w[i] = (float)((double)w[i] - (double)lr * (update + decay * (double)w[i]));
    if (w16 != NULL) lm_ref_store(t, w16, i, (double)w[i]);
  }
}
