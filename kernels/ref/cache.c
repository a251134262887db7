/* kernels/ref/cache.c - keys and values that are kept, and attention of one query a sequence. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/memory.h"
#include "kernels/ref/ref.h"

#include <math.h>
#include <stdlib.h>

/* Where position j of key/value head g of sequence b is kept. */
static size_t kept_at(const lm_cache *c, int b, int g, int j)
{
  return (((size_t)c->slot[b] * (size_t)c->H_kv + (size_t)g) * (size_t)c->capacity + (size_t)j) * (size_t)c->D;
}

void lm_cache_store_ref(lm_dtype t, const lm_cache *c, const void *qkv, int T)
{
  int heads = c->H + 2 * c->H_kv;
  for (int i = 0; i < c->B * T; i++)
    for (int g = 0; g < c->H_kv; g++)
      for (int d = 0; d < c->D; d++) {
        int b = i / T;
        size_t to = kept_at(c, b, g, c->position[b] + i % T) + (size_t)d;
        size_t key = ((size_t)i * (size_t)heads + (size_t)(c->H + g)) * (size_t)c->D + (size_t)d;
        size_t value = key + (size_t)c->H_kv * (size_t)c->D;
        lm_ref_store(t, c->keys, to, lm_ref_load(t, qkv, key));
        lm_ref_store(t, c->values, to, lm_ref_load(t, qkv, value));
      }
}

/* p [position + 1]: probabilities of the query at element `at` of q. */
static void probabilities(lm_dtype t, double *p, const void *q, size_t at, const lm_cache *c, int b, int g)
{
  double largest = -INFINITY, sum = 0;
  for (int j = c->start[b]; j <= c->position[b]; j++) {
    double dot = 0;
    for (size_t d = 0; d < (size_t)c->D; d++)
      dot += lm_ref_load(t, q, at + d) * lm_ref_load(t, c->keys, kept_at(c, b, g, j) + d);
    p[j] = dot / sqrt((double)c->D);
    largest = fmax(largest, p[j]);
  }
  for (int j = c->start[b]; j <= c->position[b]; j++) sum += p[j] = exp(p[j] - largest);
  for (int j = c->start[b]; j <= c->position[b]; j++) p[j] /= sum;
}

void lm_attention_next_ref(lm_dtype t, void *y, const void *q, const lm_cache *c)
{
  double *p;
  lm_error err;
  size_t D = (size_t)c->D;
  LM_ASSERT(lm_alloc(&p, (size_t)c->capacity, sizeof *p, "scratch of the reference attention", &err) == LM_OK);
  for (int b = 0; b < c->B; b++)
    for (int h = 0; h < c->H; h++) {
      int g = h * c->H_kv / c->H;
      probabilities(t, p, q, ((size_t)b * (size_t)(c->H + 2 * c->H_kv) + (size_t)h) * D, c, b, g);
      for (size_t d = 0; d < D; d++) {
        double sum = 0;
        for (int j = c->start[b]; j <= c->position[b]; j++)
          sum += p[j] * lm_ref_load(t, c->values, kept_at(c, b, g, j) + d);
        lm_ref_store(t, y, ((size_t)b * (size_t)c->H + (size_t)h) * D + d, sum);
      }
    }
  free(p);
}
