/* tests/model/fixture.c - models with known weights, and a measure of how far two tensors are apart. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/model/fixture.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

lm_model_config fixture_llama(void)
{
  return (lm_model_config){
      .vocab_size = 257,
      .n_layer = 2,
      .n_head = 4,
      .n_kv_head = 2,
      .n_embd = 32,
      .n_ff = 44,
      .n_ctx = 16,
      .norm = LM_NORM_RMSNORM,
      .mlp = LM_MLP_SWIGLU,
      .position = LM_POSITION_ROPE,
      .norm_eps = 1e-6,
      .rope = {.base = 50, .scaling = LM_ROPE_LLAMA3, .factor = 4, .low = 1, .high = 4, .ctx = 40}};
}

lm_model *fixture_loaded(const lm_model_config *cfg, const lm_kernels *k, lm_dtype compute, int max_B, bool training)
{
  lm_model *m = fixture_model(cfg, k, compute, max_B, training);
  float *w = fixture_weights(lm_model_params(m), 1);
  fixture_set(m, k, w);
  free(w);
  return m;
}

/* The derivative of the loss along a vector of random signs in one parameter, and what the gradient says of it. */
static double directional_error(const lm_param *p, float *w, const float *g, uint64_t direction, lm_model *m,
                                const int32_t *tokens, const int32_t *targets, int B, int T, const lm_train_args *args)
{
  const float step = 0x1p-10f;
  double along = 0, norm = 0, loss[2];
  float *keep = malloc(p->count * sizeof *keep), *x = w + p->offset;
  memcpy(keep, x, p->count * sizeof *keep);
  for (int side = 0; side < 2; side++) {
    for (size_t i = 0; i < p->count; i++) {
      uint32_t r[4];
      lm_random_words(direction, LM_STREAM_INIT, 7, i, r);
      float sign = r[0] & 1 ? 1 : -1;
      x[i] = keep[i] + (side == 0 ? sign : -sign) * step;
      along += side == 0 ? sign * g[p->offset + i] : 0;
      norm += side == 0 ? (double)g[p->offset + i] * g[p->offset + i] : 0;
    }
    fixture_set(m, &lm_kernels_ref, w);
    loss[side] = lm_model_train(m, tokens, targets, B, T, args).sum;
  }
  memcpy(x, keep, p->count * sizeof *keep);
  free(keep);
  return fabs((loss[0] - loss[1]) / (2 * step) - along) / sqrt(norm);
}

double fixture_finite_differences(lm_model *m, float *w, const float *g, const int32_t *tokens, const int32_t *targets,
                                  int B, int T, const lm_train_args *args, const char **name)
{
  const lm_param_table *t = lm_model_params(m);
  double worst = -1;
  for (size_t i = 0; i < t->n; i++)
    for (uint64_t direction = 0; direction < 3; direction++) {
      double e = directional_error(&t->params[i], w, g, direction, m, tokens, targets, B, T, args);
      if (e > worst) *name = t->params[i].name;
      worst = fmax(worst, isnan(e) ? INFINITY : e);
    }
  return worst;
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
