/* kernels/cpu/cache.c - keys and values that are kept, and attention of one query a sequence. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cpu/loop_files.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/vector.h"
#include <omp.h>

enum { SMALL = 1 << 14 /* elements that do not pay for a second thread */ };

/* Where key/value head g of sequence b begins, in elements. */
static size_t head_at(const lm_cache *c, size_t b, size_t g)
{
  return ((size_t)c->slot[b] * (size_t)c->H_kv + g) * (size_t)c->capacity * (size_t)c->D;
}

void LM_LEVEL(lm_cache_store)(lm_dtype t, const lm_cache *c, const void *qkv, int T)
{
  size_t size = lm_dtype_size(t), H = (size_t)c->H, H_kv = (size_t)c->H_kv, D = (size_t)c->D, T_ = (size_t)T;
#pragma omp parallel for schedule(static) if ((size_t)c->B * T_ * H_kv * D > SMALL)
  for (size_t i = 0; i < (size_t)c->B * T_; i++) { /* i is (b,t) */
    size_t b = i / T_, position = (size_t)c->position[b] + i % T_;
    const char *key = (const char *)qkv + (i * (H + 2 * H_kv) + H) * D * size, *value = key + H_kv * D * size;
    for (size_t g = 0; g < H_kv; g++) {
      size_t to = (head_at(c, b, g) + position * D) * size;
      memcpy((char *)c->keys + to, key + g * D * size, D * size);
      memcpy((char *)c->values + to, value + g * D * size, D * size);
    }
  }
}

/* p [n] = scale q k^T; k [n,D] from element `at` on. */
LM_INLINE void scores(lm_dtype t, float *p, const float *q, const void *k, size_t at, size_t n, size_t D, float scale)
{
  for (size_t j = 0; j < n; j++) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t d = 0; d < D; d++) sum += q[d] * lm_load(t, k, at + j * D + d);
    p[j] = scale * sum;
  }
}

/* p becomes exp(p - max); returns their sum. */
static float softmax(float *p, size_t n)
{
  float largest = p[0], sum = 0;
#pragma omp simd reduction(max : largest)
  for (size_t j = 0; j < n; j++) largest = p[j] > largest ? p[j] : largest;
#pragma omp simd reduction(+ : sum)
  for (size_t j = 0; j < n; j++) sum += p[j] = lm_exp(p[j] - largest);
  return sum;
}

/* y [D] = p v; v [n,D] from element `at` on, four rows at a time. */
LM_INLINE void mix(lm_dtype t, float *restrict y, const float *restrict p, const void *v, size_t at, size_t n, size_t D)
{
  size_t j = 0;
  for (size_t d = 0; d < D; d++) y[d] = 0;
  for (; j + 4 <= n; j += 4) {
    size_t row = at + j * D;
#pragma omp simd
    for (size_t d = 0; d < D; d++)
      y[d] += p[j] * lm_load(t, v, row + d) + p[j + 1] * lm_load(t, v, row + D + d) +
              p[j + 2] * lm_load(t, v, row + 2 * D + d) + p[j + 3] * lm_load(t, v, row + 3 * D + d);
  }
  for (; j < n; j++) {
#pragma omp simd
    for (size_t d = 0; d < D; d++) y[d] += p[j] * lm_load(t, v, at + j * D + d);
  }
}

/* Head h of sequence b. memory: [2 D + capacity]. */
LM_INLINE void attend(lm_dtype t, void *y, const void *q, const lm_cache *c, size_t b, size_t h, float *memory)
{
  size_t H = (size_t)c->H, H_kv = (size_t)c->H_kv, D = (size_t)c->D, n = (size_t)(c->position[b] - c->start[b]) + 1;
  size_t at = head_at(c, b, h * H_kv / H) + (size_t)c->start[b] * D, from = (b * (H + 2 * H_kv) + h) * D;
  float *query = memory, *result = memory + D, *p = memory + 2 * D;
  for (size_t d = 0; d < D; d++) query[d] = lm_load(t, q, from + d);
  scores(t, p, query, c->keys, at, n, D, 1 / sqrtf((float)D));
  float sum = softmax(p, n);
  mix(t, result, p, c->values, at, n, D);
  for (size_t d = 0; d < D; d++) lm_store(t, y, (b * H + h) * D + d, result[d] / sum);
}

void LM_LEVEL(lm_attention_next)(lm_dtype t, void *y, const void *q, const lm_cache *c)
{
  size_t H = (size_t)c->H, n = (2 * (size_t)c->D + (size_t)c->capacity + 15) / 16 * 16;
  float *memory = lm_cpu_scratch(n * (size_t)omp_get_max_threads());
#pragma omp parallel for schedule(static) if (c->B * c->H > 1)
  for (size_t i = 0; i < (size_t)c->B * H; i++) { /* neighbours share keys and values */
    LM_FOR_TYPE(t, attend(LM_TYPE, y, q, c, i / H, i % H, memory + (size_t)omp_get_thread_num() * n));
  }
}
