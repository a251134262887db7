/* kernels/cuda/cache.cu - keys and values that are kept, and attention of one query a sequence. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cuda/device.h"

enum { THREADS = 256, WARPS = 8 };

/* Where position j of key/value head g of sequence b is kept. */
static __device__ __forceinline__ size_t kept_at(const lm_cache &c, int b, int g, int j)
{
  return ((static_cast<size_t>(c.slot[b]) * c.H_kv + g) * c.capacity + j) * c.D;
}

/* A thread an element of a key or a value: i is (b, t, key or value, g, d). */
template <typename E>
static __global__ void __launch_bounds__(THREADS) cache_store_kernel(lm_cache c, const E *qkv, int T)
{
  size_t row = 2 * static_cast<size_t>(c.H_kv) * c.D, all = static_cast<size_t>(c.B) * T * row;
  size_t i = static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= all) return;
  size_t r = i / row;
  int at = i % row, d = at % c.D, g = at / c.D, b = r / T, heads = c.H + 2 * c.H_kv;
  E *to = static_cast<E *>(g < c.H_kv ? c.keys : c.values);
  to[kept_at(c, b, g % c.H_kv, c.position[b] + r % T) + d] = qkv[(r * heads + c.H) * c.D + at];
}

void lm_cache_store_cuda(lm_dtype t, const lm_cache *c, const void *qkv, int T)
{
  size_t all = 2 * static_cast<size_t>(c->B) * T * c->H_kv * c->D;
  by_type(t, [&](auto zero) {
    typedef decltype(zero) E;
    lm_cuda_launch("cache_store", cache_store_kernel<E>, blocks_for(all, THREADS), THREADS, 0, *c,
                   static_cast<const E *>(qkv), T);
  });
}

/* Block (h, b). A warp takes every WARPS-th key, with a softmax of its own; then the warps' are brought together. What
 * a block does depends on its own sequence alone. */
template <typename E>
static __global__ void __launch_bounds__(WARPS *WARP) attention_next_kernel(E *y, const E *q, lm_cache c, float scale)
{
  extern __shared__ float memory[]; /* query [D], and of each warp the weighted sum of values [WARPS][D] */
  __shared__ float largest_of[WARPS], sum_of[WARPS];
  const int h = blockIdx.x, b = blockIdx.y, g = h * c.H_kv / c.H, lane = threadIdx.x % WARP, w = threadIdx.x / WARP;
  const E *keys = static_cast<const E *>(c.keys), *values = static_cast<const E *>(c.values);
  float *query = memory, *mixed = memory + (1 + w) * c.D, largest = -INFINITY, sum = 0;
  for (int d = threadIdx.x; d < c.D; d += blockDim.x)
    query[d] = to_float(q[(static_cast<size_t>(b) * (c.H + 2 * c.H_kv) + h) * c.D + d]);
  for (int d = lane; d < c.D; d += WARP) mixed[d] = 0;
  __syncthreads();
  for (int j = c.start[b] + w; j <= c.position[b]; j += WARPS) {
    size_t at = kept_at(c, b, g, j);
    float dot = 0;
    for (int d = lane; d < c.D; d += WARP) dot += query[d] * to_float(keys[at + d]);
    dot = warp_sum(dot) * scale;
    float now = fmaxf(largest, dot), old = expf(largest - now), p = expf(dot - now);
    largest = now;
    sum = sum * old + p;
    for (int d = lane; d < c.D; d += WARP) mixed[d] = mixed[d] * old + p * to_float(values[at + d]);
  }
  if (lane == 0) largest_of[w] = largest, sum_of[w] = sum;
  __syncthreads();
  for (int i = 0; i < WARPS; i++) largest = fmaxf(largest, largest_of[i]);
  sum = 0;
  for (int i = 0; i < WARPS; i++) sum += sum_of[i] * expf(largest_of[i] - largest);
  for (int d = threadIdx.x; d < c.D; d += blockDim.x) {
    float v = 0;
    for (int i = 0; i < WARPS; i++) v += memory[(1 + i) * c.D + d] * expf(largest_of[i] - largest);
    y[(static_cast<size_t>(b) * c.H + h) * c.D + d] = from_float<E>(v / sum);
  }
}

void lm_attention_next_cuda(lm_dtype t, void *y, const void *q, const lm_cache *c)
{
  const char *what = "attention_next";
  size_t shared = (1 + WARPS) * static_cast<size_t>(c->D) * sizeof(float);
  float scale = static_cast<float>(1 / sqrt(static_cast<double>(c->D)));
  by_type(t, [&](auto zero) {
    typedef decltype(zero) E;
    lm_cuda_allow_shared(what, attention_next_kernel<E>, shared);
    lm_cuda_launch(what, attention_next_kernel<E>, dim3(c->H, c->B), WARPS * WARP, shared, static_cast<E *>(y),
                   static_cast<const E *>(q), *c, scale);
  });
}
