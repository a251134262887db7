/* tests/model/fixture.c - models with known weights, and a measure of how far two tensors are apart. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/model/fixture.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

lm_model *fixture_model(const lm_model_config *cfg, const lm_kernels *k, lm_dtype compute, int max_B, bool training)
{
  lm_model *m;
  lm_error err;
  if (lm_model_new(&m, cfg, k, compute, max_B, training, &err) == LM_OK) return m;
  fprintf(stderr, "%s\n", err.text);
  exit(1);
}

lm_model_config fixture_config(bool tied, bool bias)
{
  return (lm_model_config){
      .vocab_size = 257, .n_layer = 2, .n_head = 2, .n_embd = 32, .n_ctx = 16, .tied = tied, .bias = bias};
}

static double normal(uint64_t seed, uint64_t i)
{
  uint32_t w[4];
  lm_random_words(seed, LM_STREAM_INIT, 12345, i, w);
  return lm_normal(w[0], w[1]);
}

float *fixture_weights(const lm_param_table *t, uint64_t seed)
{
  float *w = calloc(t->elements, sizeof *w);
  for (size_t i = 0; i < t->n; i++) {
    const lm_param *p = &t->params[i];
    double mean = p->init == LM_INIT_ONE, deviation = p->ndim == 1 ? 0.2 : 1 / sqrt((double)p->shape[1]);
    for (size_t j = 0; j < p->count; j++) w[p->offset + j] = (float)(mean + deviation * normal(seed, p->offset + j));
  }
  return w;
}

void fixture_set(lm_model *m, const lm_kernels *k, const float *w)
{
  size_t n = lm_model_params(m)->elements;
  bool f32 = lm_model_compute(m) == LM_F32;
  lm_bf16 *half = calloc(n, sizeof *half);
  for (size_t i = 0; i < n; i++) half[i] = lm_bf16_from_f32(w[i]);
  k->to_device(lm_model_weights(m), f32 ? (const void *)w : half, n * (f32 ? sizeof *w : sizeof *half));
  free(half);
}

float *fixture_gradients(lm_model *m, const lm_kernels *k)
{
  size_t n = lm_model_params(m)->elements;
  float *g = calloc(n, sizeof *g);
  k->to_host(g, lm_model_gradients(m), n * sizeof *g);
  return g;
}

void fixture_tokens(int32_t *tokens, size_t n, int V, uint64_t seed, bool ignore)
{
  for (size_t i = 0; i < n; i++) {
    uint32_t w[4];
    lm_random_words(seed, LM_STREAM_SAMPLE, 0, i, w);
    tokens[i] = ignore && w[1] % 5 == 0 ? -1 : (int32_t)(w[0] % (uint32_t)V);
  }
}

double fixture_distance(const float *a, const float *b, size_t n)
{
  double difference = 0, size = 0;
  for (size_t i = 0; i < n; i++) {
    if (!isfinite(a[i]) || !isfinite(b[i])) return INFINITY;
    difference = fmax(difference, fabs((double)a[i] - b[i]));
    size = fmax(size, fabs((double)b[i]));
  }
  return difference == 0 ? 0 : difference / size;
}

double fixture_distance_l2(const float *a, const float *b, size_t n)
{
  double difference = 0, size = 0;
  for (size_t i = 0; i < n; i++) {
    difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    size += (double)b[i] * b[i];
  }
  return !isfinite(difference) ? INFINITY : difference == 0 ? 0 : sqrt(difference / size);
}

double fixture_worst(const lm_param_table *t, fixture_metric *metric, const float *a, const float *b, const char **name)
{
  double worst = -1;
  for (size_t i = 0; i < t->n; i++) {
    const lm_param *p = &t->params[i];
    double d = metric(a + p->offset, b + p->offset, p->reserved);
    if (d <= worst) continue;
    worst = d;
    *name = p->name;
  }
  return worst;
}
