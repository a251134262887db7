/* kernels/cuda/attention.cu - causal attention in tiles: which kernel, and the one for any type and head size. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cuda/attention.h"

/* Tiles of R queries by R keys; four neighbouring threads share a row of a tile, and each has R/4 of its columns, in
 * groups of 4: columns 4 (q + 4 u) .. + 3. Everything is f32 in shared memory, a row of D + 1 so that rows lie in
 * different banks. Dao et al., arXiv:2205.14135; the two gradients' kernels are theirs of arXiv:2307.08691, split in
 * two, so that every sum has one owner and one order. */

enum { LANES = 4 }; /* threads of a row */

/* tile[i][:] = head `head` of position first + i, 0 where that is behind the end. */
template <typename E, int R>
static __device__ __forceinline__ void read_tile(float *tile, const E *x, size_t row, int D, int first, int T)
{
  for (int n = threadIdx.x; n < R * D; n += R * LANES) {
    int i = n / D, d = n % D;
    tile[i * (D + 1) + d] = first + i < T ? to_float(x[(first + i) * row + d]) : 0;
  }
}

static __device__ __forceinline__ float dot(const float *a, const float *b, int D)
{
  float sum = 0;
  for (int d = 0; d < D; d++) sum += a[d] * b[d];
  return sum;
}

static __device__ __forceinline__ float row_max(float x)
{
  x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 1));
  return fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 2));
}

static __device__ __forceinline__ float row_sum(float x)
{
  x += __shfl_xor_sync(ALL_LANES, x, 1);
  return x + __shfl_xor_sync(ALL_LANES, x, 2);
}

/* ---- forward: block (tile of queries, h, b) ---- */

template <typename E, int R>
static __global__ void __launch_bounds__(R *LANES) forward_kernel(E *y, float *lse, const E *qkv, attended a)
{
  extern __shared__ float memory[];
  const int P = a.D + 1, b = blockIdx.z, h = blockIdx.y, g = h * a.H_kv / a.H, i0 = (gridDim.x - 1 - blockIdx.x) * R;
  float *Q = memory, *K = Q + R * P, *V = K + R * P, *O = V + R * P, *S = O + R * P; /* S [R][R + 1] */
  const int row = threadIdx.x / LANES, q = threadIdx.x % LANES, i = i0 + row;
  const size_t stride = static_cast<size_t>(a.H + 2 * a.H_kv) * a.D;
  const int first = i < a.T ? a.first_key(b, i) : a.T;
  const uint2 key = a.keep.factor > 0 ? key_of(a.keep, b) : make_uint2(0, 0);
  float largest = -INFINITY, sum = 0;
  read_tile<E, R>(Q, qkv + a.head_at(b, 0, h), stride, a.D, i0, a.T);
  for (int d = q; d < a.D; d += LANES) O[row * P + d] = 0;
  for (int j0 = a.first_key(b, i0) / R * R; j0 < i0 + R && j0 < a.T; j0 += R) {
    __syncthreads();
    read_tile<E, R>(K, qkv + a.head_at(b, 0, a.H + g), stride, a.D, j0, a.T);
    read_tile<E, R>(V, qkv + a.head_at(b, 0, a.H + a.H_kv + g), stride, a.D, j0, a.T);
    __syncthreads();
    float s[R / LANES], now = largest;
#pragma unroll
    for (int n = 0; n < R / LANES; n++) {
      int j = 4 * (q + LANES * (n / 4)) + n % 4;
      bool sees = j0 + j >= first && j0 + j <= i && i < a.T;
      s[n] = sees ? dot(Q + row * P, K + j * P, a.D) * a.scale : -INFINITY;
      now = fmaxf(now, s[n]);
    }
    now = row_max(now);
    float base = now == -INFINITY ? 0 : now, old = exp_for<E>(largest - base), part = 0;
    largest = now;
#pragma unroll
    for (int n = 0; n < R / LANES; n += 4) {
      float factor[4] = {1, 1, 1, 1};
      int j = 4 * (q + LANES * (n / 4));
      if (a.keep.factor > 0) keep4(factor, a.keep, key, (j0 + j) / 4, i, h);
#pragma unroll
      for (int k = 0; k < 4; k++) {
        float p = exp_for<E>(s[n + k] - base);
        part += p;
        S[row * (R + 1) + j + k] = p * factor[k];
      }
    }
    sum = sum * old + row_sum(part);
    __syncwarp(); /* a row's threads are in one warp */
    for (int d = q; d < a.D; d += LANES) {
      float o = O[row * P + d] * old;
      for (int j = 0; j < R; j++) o += S[row * (R + 1) + j] * V[j * P + d];
      O[row * P + d] = o;
    }
  }
  if (i >= a.T) return;
  for (int d = q; d < a.D; d += LANES) y[a.output_at(b, i, h) + d] = from_float<E>(O[row * P + d] / sum);
  if (q == 0) lse[a.lse_at(b, h, i)] = largest + logf(sum);
}

/* f(R) for the largest tile whose arrays, `tiles` of [R][D + 1] and `squares` of [R][R + 1], fit into shared memory. */
template <typename F> static void by_tile(const char *what, int D, int tiles, int squares, F f)
{
  auto bytes = [&](size_t R) { return (tiles * R * (D + 1) + squares * R * (R + 1)) * sizeof(float); };
  if (bytes(32) <= lm_cuda.shared_bytes)
    f(std::integral_constant<int, 32>{}, bytes(32));
  else if (bytes(16) <= lm_cuda.shared_bytes)
    f(std::integral_constant<int, 16>{}, bytes(16));
  else
    lm_cuda_stop("%s: heads of %d channels need more shared memory than the %zu bytes of this GPU", what, D,
                 lm_cuda.shared_bytes);
}

void lm_cuda_attention_fwd_any(lm_dtype t, void *y, float *lse, const void *qkv, const lm_attention *a)
{
  const char *what = "attention_fwd";
  by_type(t, [&](auto zero) {
    typedef decltype(zero) E;
    by_tile(what, a->D, 4, 1, [&](auto tile, size_t shared) {
      constexpr int R = decltype(tile)::value;
      lm_cuda_allow_shared(what, forward_kernel<E, R>, shared);
      lm_cuda_launch(what, forward_kernel<E, R>, dim3(blocks_for(a->T, R), a->H, a->B), R * LANES, shared,
                     static_cast<E *>(y), lse, static_cast<const E *>(qkv), attended_of(a));
    });
  });
}

/* ---- backward ---- */

/* A warp a query: n is (b, i, h). */
template <typename E>
static __global__ void __launch_bounds__(256)
    delta_kernel(float *delta, const E *dy, const E *y, size_t rows, int T, int H, int D)
{
  size_t n = (static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
  if (n >= rows) return;
  float sum = 0;
  for (int d = threadIdx.x % WARP; d < D; d += WARP) sum += to_float(dy[n * D + d]) * to_float(y[n * D + d]);
  sum = warp_sum(sum);
  size_t h = n % H, i = n / H % T, b = n / H / T;
  if (threadIdx.x % WARP == 0) delta[(b * H + h) * T + i] = sum;
}

void lm_cuda_attention_delta(lm_dtype t, float *delta, const void *dy, const void *y, const lm_attention *a)
{
  size_t rows = static_cast<size_t>(a->B) * a->T * a->H;
  by_type(t, [&](auto zero) {
    typedef decltype(zero) E;
    lm_cuda_launch("attention_bwd", delta_kernel<E>, blocks_for(rows, 256 / WARP), 256, 0, delta,
                   static_cast<const E *>(dy), static_cast<const E *>(y), rows, a->T, a->H, a->D);
  });
}

/* Of the pair (query i, key j), with m from dropout: the probability times m, and ds = p (m dy . v - delta) scale. */
struct pair {
  float pm, ds;
};

template <typename E>
static __device__ __forceinline__ pair pair_of(const attended &a, float m, float score, float dy_v, float lse,
                                               float delta)
{
  float p = exp_for<E>(score * a.scale - lse);
  return pair{p * m, p * (m * dy_v - delta) * a.scale};
}

/* dq: block (tile of queries, h, b). dq_i = sum_j ds_ij k_j. */
template <typename E, int R>
static __global__ void __launch_bounds__(R *LANES)
    dq_kernel(E *dqkv, const E *dy, const float *delta, const float *lse, const E *qkv, attended a)
{
  extern __shared__ float memory[];
  const int P = a.D + 1, b = blockIdx.z, h = blockIdx.y, g = h * a.H_kv / a.H, i0 = (gridDim.x - 1 - blockIdx.x) * R;
  float *Q = memory, *G = Q + R * P, *K = G + R * P, *V = K + R * P, *dQ = V + R * P, *S = dQ + R * P;
  const int row = threadIdx.x / LANES, q = threadIdx.x % LANES, i = i0 + row;
  const size_t stride = static_cast<size_t>(a.H + 2 * a.H_kv) * a.D;
  const int first = i < a.T ? a.first_key(b, i) : a.T;
  const uint2 key = a.keep.factor > 0 ? key_of(a.keep, b) : make_uint2(0, 0);
  const float my_lse = i < a.T ? lse[a.lse_at(b, h, i)] : 0, my_delta = i < a.T ? delta[a.lse_at(b, h, i)] : 0;
  read_tile<E, R>(Q, qkv + a.head_at(b, 0, h), stride, a.D, i0, a.T);
  read_tile<E, R>(G, dy + a.output_at(b, 0, h), static_cast<size_t>(a.H) * a.D, a.D, i0, a.T);
  for (int d = q; d < a.D; d += LANES) dQ[row * P + d] = 0;
  for (int j0 = a.first_key(b, i0) / R * R; j0 < i0 + R && j0 < a.T; j0 += R) {
    __syncthreads();
    read_tile<E, R>(K, qkv + a.head_at(b, 0, a.H + g), stride, a.D, j0, a.T);
    read_tile<E, R>(V, qkv + a.head_at(b, 0, a.H + a.H_kv + g), stride, a.D, j0, a.T);
    __syncthreads();
    for (int n = 0; n < R / LANES; n += 4) {
      float factor[4] = {1, 1, 1, 1};
      int j = 4 * (q + LANES * (n / 4));
      if (a.keep.factor > 0) keep4(factor, a.keep, key, (j0 + j) / 4, i, h);
#pragma unroll
      for (int k = 0; k < 4; k++) {
        bool sees = j0 + j + k >= first && j0 + j + k <= i && i < a.T;
        pair x = {0, 0};
        if (sees)
          x = pair_of<E>(a, factor[k], dot(Q + row * P, K + (j + k) * P, a.D), dot(G + row * P, V + (j + k) * P, a.D),
                         my_lse, my_delta);
        S[row * (R + 1) + j + k] = x.ds;
      }
    }
    __syncwarp();
    for (int d = q; d < a.D; d += LANES) {
      float sum = dQ[row * P + d];
      for (int j = 0; j < R; j++) sum += S[row * (R + 1) + j] * K[j * P + d];
      dQ[row * P + d] = sum;
    }
  }
  for (int d = q; i < a.T && d < a.D; d += LANES) dqkv[a.head_at(b, i, h) + d] = from_float<E>(dQ[row * P + d]);
}

/* dk, dv: block (tile of keys, g, b), over all queries of all heads that read it. dk_j = sum_i ds_ij q_i,
 * dv_j = sum_i p_ij m_ij dy_i. */
template <typename E, int R>
static __global__ void __launch_bounds__(R *LANES)
    dkv_kernel(E *dqkv, const E *dy, const float *delta, const float *lse, const E *qkv, attended a)
{
  extern __shared__ float memory[];
  const int P = a.D + 1, b = blockIdx.z, g = blockIdx.y, j0 = blockIdx.x * R, each = a.H / a.H_kv;
  float *Q = memory, *G = Q + R * P, *K = G + R * P, *V = K + R * P, *dK = V + R * P, *dV = dK + R * P;
  float *S = dV + R * P, *M = S + R * (R + 1); /* ds and p m, [R][R + 1]: a row is a key */
  const int row = threadIdx.x / LANES, q = threadIdx.x % LANES, j = j0 + row;
  const size_t stride = static_cast<size_t>(a.H + 2 * a.H_kv) * a.D;
  const uint2 key = a.keep.factor > 0 ? key_of(a.keep, b) : make_uint2(0, 0);
  read_tile<E, R>(K, qkv + a.head_at(b, 0, a.H + g), stride, a.D, j0, a.T);
  read_tile<E, R>(V, qkv + a.head_at(b, 0, a.H + a.H_kv + g), stride, a.D, j0, a.T);
  for (int d = q; d < a.D; d += LANES) dK[row * P + d] = dV[row * P + d] = 0;
  for (int n = 0; n < each * static_cast<int>(gridDim.x - blockIdx.x); n++) { /* heads, and their tiles from j0 on */
    int h = g * each + n % each, i0 = j0 + n / each * R;
    if (a.first_key(b, i0) >= j0 + R) break; /* from here on queries see later documents only */
    __syncthreads();
    read_tile<E, R>(Q, qkv + a.head_at(b, 0, h), stride, a.D, i0, a.T);
    read_tile<E, R>(G, dy + a.output_at(b, 0, h), static_cast<size_t>(a.H) * a.D, a.D, i0, a.T);
    __syncthreads();
    for (int u = 0; u < R / LANES; u++) {
      int c = q + LANES * u, i = i0 + c;
      bool sees = i < a.T && j <= i && j >= a.first_key(b, i);
      pair x = {0, 0};
      if (sees)
        x = pair_of<E>(a, a.keep.factor > 0 ? keep1(a.keep, key, j, i, h) : 1, dot(Q + c * P, K + row * P, a.D),
                       dot(G + c * P, V + row * P, a.D), lse[a.lse_at(b, h, i)], delta[a.lse_at(b, h, i)]);
      S[row * (R + 1) + c] = x.ds;
      M[row * (R + 1) + c] = x.pm;
    }
    __syncwarp();
    for (int d = q; d < a.D; d += LANES) {
      float dk = dK[row * P + d], dv = dV[row * P + d];
      for (int c = 0; c < R; c++) {
        dk += S[row * (R + 1) + c] * Q[c * P + d];
        dv += M[row * (R + 1) + c] * G[c * P + d];
      }
      dK[row * P + d] = dk, dV[row * P + d] = dv;
    }
  }
  for (int d = q; j < a.T && d < a.D; d += LANES) {
    dqkv[a.head_at(b, j, a.H + g) + d] = from_float<E>(dK[row * P + d]);
    dqkv[a.head_at(b, j, a.H + a.H_kv + g) + d] = from_float<E>(dV[row * P + d]);
  }
}

void lm_cuda_attention_bwd_any(lm_dtype t, void *dqkv, const void *dy, const float *delta, const float *lse,
                               const void *qkv, const lm_attention *a)
{
  const char *what = "attention_bwd";
  by_type(t, [&](auto zero) {
    typedef decltype(zero) E;
    E *out = static_cast<E *>(dqkv);
    const E *g = static_cast<const E *>(dy), *in = static_cast<const E *>(qkv);
    by_tile(what, a->D, 6, 2, [&](auto tile, size_t shared) {
      constexpr int R = decltype(tile)::value;
      lm_cuda_allow_shared(what, dq_kernel<E, R>, shared);
      lm_cuda_allow_shared(what, dkv_kernel<E, R>, shared);
      lm_cuda_launch(what, dq_kernel<E, R>, dim3(blocks_for(a->T, R), a->H, a->B), R * LANES, shared, out, g, delta,
                     lse, in, attended_of(a));
      lm_cuda_launch(what, dkv_kernel<E, R>, dim3(blocks_for(a->T, R), a->H_kv, a->B), R * LANES, shared, out, g, delta,
                     lse, in, attended_of(a));
    });
  });
}

/* ---- which kernel ---- */

static bool has_mma(lm_dtype t, const void *qkv, const void *y, const lm_attention *a)
{
  return lm_cuda_attention_has_mma(t, a) &&
         aligned_to(16, static_cast<const char *>(qkv), static_cast<const char *>(y));
}

void lm_attention_fwd_cuda(lm_dtype t, void *y, float *lse, const void *qkv, const lm_attention *a)
{
  bool mma = has_mma(t, qkv, y, a);
  if (mma && lm_cuda_attention_has_wgmma())
    lm_cuda_attention_fwd_wgmma(t, y, lse, qkv, a);
  else if (mma)
    lm_cuda_attention_fwd_mma(t, y, lse, qkv, a);
  else
    lm_cuda_attention_fwd_any(t, y, lse, qkv, a);
}

void lm_attention_bwd_cuda(lm_dtype t, void *dqkv, const void *dy, const void *y, const float *lse, const void *qkv,
                           const lm_attention *a)
{
  bool mma = has_mma(t, qkv, dy, a) && has_mma(t, dqkv, dy, a);
  if (mma && lm_cuda_attention_has_wgmma()) {
    lm_cuda_attention_bwd_wgmma(t, dqkv, dy, y, lse, qkv, a);
    return;
  }
  size_t rows = static_cast<size_t>(a->B) * a->T * a->H;
  float *delta = static_cast<float *>(lm_cuda_scratch(rows * sizeof(float), "attention_bwd"));
  lm_cuda_attention_delta(t, delta, dy, y, a);
  if (mma)
    lm_cuda_attention_bwd_mma(t, dqkv, dy, delta, lse, qkv, a);
  else
    lm_cuda_attention_bwd_any(t, dqkv, dy, delta, lse, qkv, a);
}
