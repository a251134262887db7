/* kernels/ref/attention.c - causal attention, a row of scores at a time. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/memory.h"
#include "kernels/ref/ref.h"

#include <math.h>
#include <stdlib.h>

/* Where things lie. qkv [B,T,(H + 2 H_kv) D]: element (b,t) of query head h, of key and of value head g. */
typedef struct layout {
  size_t T, H, H_kv, D;
  const lm_attention *a;
} layout;

static layout layout_of(const lm_attention *a)
{
  return (layout){.T = (size_t)a->T, .H = (size_t)a->H, .H_kv = (size_t)a->H_kv, .D = (size_t)a->D, .a = a};
}

static size_t query_at(const layout *a, size_t b, size_t i, size_t h)
{
  return ((b * a->T + i) * (a->H + 2 * a->H_kv) + h) * a->D;
}
static size_t key_at(const layout *a, size_t b, size_t j, size_t g)
{
  return query_at(a, b, j, a->H + g);
}
static size_t value_at(const layout *a, size_t b, size_t j, size_t g)
{
  return query_at(a, b, j, a->H + a->H_kv + g);
}
static size_t output_at(const layout *a, size_t b, size_t i, size_t h) /* y, dy [B,T,H D] */
{
  return ((b * a->T + i) * a->H + h) * a->D;
}
static size_t lse_at(const layout *a, size_t b, size_t h, size_t i) /* lse [B,H,T] */
{
  return (b * a->H + h) * a->T + i;
}

/* The first key that query (b,i) sees. */
static size_t first_key(const layout *a, size_t b, size_t i)
{
  return a->a->start == NULL ? 0 : (size_t)a->a->start[b * a->T + i];
}

/* What dropout makes of the probability of key j. */
static double factor(const layout *a, size_t b, size_t h, size_t i, size_t j)
{
  return a->a->dropout == NULL ? 1 : lm_dropout_factor_ref(a->a->dropout, b, h, i, j);
}

static double dot(lm_dtype t, const void *x, size_t i, const void *y, size_t j, size_t D)
{
  double sum = 0;
  for (size_t d = 0; d < D; d++) sum += lm_ref_load(t, x, i + d) * lm_ref_load(t, y, j + d);
  return sum;
}

/* The probabilities of query (b,i,h) over the keys it sees; returns log sum_j exp(score_j). */
static double probabilities(lm_dtype t, double *p, const void *qkv, const layout *a, size_t b, size_t i, size_t h)
{
  size_t g = h * a->H_kv / a->H;
  size_t first = first_key(a, b, i);
  double largest = -INFINITY, sum = 0;
  for (size_t j = first; j <= i; j++) {
    p[j] = dot(t, qkv, query_at(a, b, i, h), qkv, key_at(a, b, j, g), a->D) / sqrt((double)a->D);
    largest = fmax(largest, p[j]);
  }
  for (size_t j = first; j <= i; j++) sum += exp(p[j] - largest);
  double lse = largest + log(sum);
  for (size_t j = first; j <= i; j++) p[j] = exp(p[j] - lse);
  return lse;
}

static double *scratch(size_t n)
{
  double *p;
  lm_error err;
  LM_ASSERT(lm_alloc(&p, n, sizeof *p, "scratch of the reference attention", &err) == LM_OK);
  return p;
}

static void mix(lm_dtype t, void *y, const double *p, const void *qkv, const layout *a, size_t b, size_t i, size_t h)
{
  for (size_t d = 0; d < a->D; d++) {
    double sum = 0;
    for (size_t j = first_key(a, b, i); j <= i; j++)
      sum += p[j] * factor(a, b, h, i, j) * lm_ref_load(t, qkv, value_at(a, b, j, h * a->H_kv / a->H) + d);
    lm_ref_store(t, y, output_at(a, b, i, h) + d, sum);
  }
}

void lm_attention_fwd_ref(lm_dtype t, void *y, float *lse, const void *qkv, const lm_attention *attention)
{
  const layout a = layout_of(attention);
  double *p = scratch(a.T); /* probabilities of a row */
  for (size_t b = 0; b < (size_t)attention->B; b++)
    for (size_t h = 0; h < a.H; h++)
      for (size_t i = 0; i < a.T; i++) {
        lse[lse_at(&a, b, h, i)] = (float)probabilities(t, p, qkv, &a, b, i, h);
        mix(t, y, p, qkv, &a, b, i, h);
      }
  free(p);
}

/* Gradients of one sequence and one key/value head, in double until they are complete. */
typedef struct gradients {
  double *dq; /* [D], of one query */
  double *dk; /* [T,D] */
  double *dv; /* [T,D] */
} gradients;

/* Query (b,i,h), with m_j from dropout: dv_j += p_j m_j dy; dp_j = m_j dy . v_j; ds_j = p_j (dp_j - dy . y) / sqrt(D);
 * dq += ds_j k_j; dk_j += ds_j q */
static void query_gradients(lm_dtype t, gradients *s, const double *p, const void *dy, const void *y, const void *qkv,
                            const layout *a, size_t b, size_t i, size_t h)
{
  size_t g = h * a->H_kv / a->H, q = query_at(a, b, i, h), out = output_at(a, b, i, h), D = a->D;
  double dy_y = dot(t, dy, out, y, out, D);
  for (size_t d = 0; d < D; d++) s->dq[d] = 0;
  for (size_t j = first_key(a, b, i); j <= i; j++) {
    size_t k = key_at(a, b, j, g), v = value_at(a, b, j, g);
    double m = factor(a, b, h, i, j), ds = p[j] * (m * dot(t, dy, out, qkv, v, D) - dy_y) / sqrt((double)D);
    for (size_t d = 0; d < D; d++) {
      s->dv[j * D + d] += p[j] * m * lm_ref_load(t, dy, out + d);
      s->dk[j * D + d] += ds * lm_ref_load(t, qkv, q + d);
      s->dq[d] += ds * lm_ref_load(t, qkv, k + d);
    }
  }
}

/* All queries that read key/value head g of sequence b. */
static void head_gradients(lm_dtype t, void *dqkv, gradients *s, double *p, const void *dy, const void *y,
                           const float *lse, const void *qkv, const layout *a, size_t b, size_t g)
{
  for (size_t n = 0; n < a->T * a->D; n++) s->dk[n] = s->dv[n] = 0;
  for (size_t h = 0; h < a->H; h++) {
    if (h * a->H_kv / a->H != g) continue;
    for (size_t i = 0; i < a->T; i++) {
      for (size_t j = first_key(a, b, i); j <= i; j++) {
        double score = dot(t, qkv, query_at(a, b, i, h), qkv, key_at(a, b, j, g), a->D) / sqrt((double)a->D);
        p[j] = exp(score - (double)lse[lse_at(a, b, h, i)]);
      }
      query_gradients(t, s, p, dy, y, qkv, a, b, i, h);
      for (size_t d = 0; d < a->D; d++) lm_ref_store(t, dqkv, query_at(a, b, i, h) + d, s->dq[d]);
    }
  }
  for (size_t j = 0; j < a->T; j++)
    for (size_t d = 0; d < a->D; d++) {
      lm_ref_store(t, dqkv, key_at(a, b, j, g) + d, s->dk[j * a->D + d]);
      lm_ref_store(t, dqkv, value_at(a, b, j, g) + d, s->dv[j * a->D + d]);
    }
}

void lm_attention_bwd_ref(lm_dtype t, void *dqkv, const void *dy, const void *y, const float *lse, const void *qkv,
                          const lm_attention *attention)
{
  const layout a = layout_of(attention);
  gradients s = {.dq = scratch(a.D), .dk = scratch(a.T * a.D), .dv = scratch(a.T * a.D)};
  double *p = scratch(a.T);
  for (size_t b = 0; b < (size_t)attention->B; b++)
    for (size_t g = 0; g < a.H_kv; g++) head_gradients(t, dqkv, &s, p, dy, y, lse, qkv, &a, b, g);
  free(s.dq);
  free(s.dk);
  free(s.dv);
  free(p);
}
