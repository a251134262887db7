/* kernels/cuda/norm.cu - LayerNorm and RMSNorm of rows, with the residual's sum in front, and of heads. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cuda/sums.h"

/* RMSNorm is LayerNorm with a mean of 0 and no bias: one code, MEAN says which. */

/* ---- forward: a warp a row ---- */

enum { FORWARD_WARPS = 8 };

/* A row that its warp reads more than once: in registers, K packs of W channels a lane, or, where K is 0, in memory. */
template <typename E, int W, int K> struct row {
  pack<float, W> kept[K > 0 ? K : 1];
  const E *in;
  int C, lane;

  /* f(slot, channel) for each pack of this lane. */
  template <typename F> __device__ __forceinline__ void each(F f) const
  {
    if constexpr (K > 0) {
#pragma unroll
      for (int j = 0; j < K; j++)
        if ((j * WARP + lane) * W < C) f(j, (j * WARP + lane) * W);
    } else
      for (int c = lane * W; c < C; c += WARP * W) f(0, c);
  }

  __device__ __forceinline__ pack<float, W> at(int j, int c) const
  {
    if constexpr (K > 0)
      return kept[j];
    else {
      pack<E, W> x = load<W>(in + c);
      pack<float, W> v;
#pragma unroll
      for (int k = 0; k < W; k++) v.v[k] = to_float(x.v[k]);
      return v;
    }
  }
};

/* x, or sum = x + branch rounded as it is stored: the backward sees the same values. */
template <typename E, int W, int K>
static __device__ __forceinline__ void read_row(row<E, W, K> *row, E *sum, const E *x, const E *branch)
{
  row->in = branch != NULL ? sum : x;
  if (K == 0 && branch == NULL) return;
  row->each([&](int j, int c) {
    pack<E, W> v = load<W>(x + c);
    if (branch != NULL) {
      pack<E, W> b = load<W>(branch + c);
#pragma unroll
      for (int k = 0; k < W; k++) v.v[k] = from_float<E>(to_float(v.v[k]) + to_float(b.v[k]));
      store(sum + c, v);
    }
#pragma unroll
    for (int k = 0; k < W; k++) row->kept[j].v[k] = to_float(v.v[k]);
  });
}

template <typename E, int W, int K, bool MEAN>
static __global__ void __launch_bounds__(FORWARD_WARPS *WARP)
    norm_fwd_kernel(E *y, float *mean, float *rstd, E *sum, const E *x, const E *branch, const E *gain, const E *bias,
                    size_t rows, int C, float eps)
{
  size_t r = static_cast<size_t>(blockIdx.x) * FORWARD_WARPS + threadIdx.x / WARP;
  if (r >= rows) return;
  row<E, W, K> row;
  row.C = C, row.lane = threadIdx.x % WARP;
  read_row(&row, sum + r * C, x + r * C, branch == NULL ? NULL : branch + r * C);

  float m = 0, squares = 0;
  if (MEAN) {
    row.each([&](int j, int c) {
      pack<float, W> v = row.at(j, c);
#pragma unroll
      for (int k = 0; k < W; k++) m += v.v[k];
    });
    m = warp_sum(m) / C;
  }
  row.each([&](int j, int c) {
    pack<float, W> v = row.at(j, c);
#pragma unroll
    for (int k = 0; k < W; k++) squares += (v.v[k] - m) * (v.v[k] - m);
  });
  float s = 1 / sqrtf(warp_sum(squares) / C + eps);
  row.each([&](int j, int c) {
    pack<float, W> v = row.at(j, c);
    pack<E, W> g = load<W>(gain + c), out, b = {};
    if (MEAN && bias != NULL) b = load<W>(bias + c);
#pragma unroll
    for (int k = 0; k < W; k++) {
      float xhat = (v.v[k] - m) * s * to_float(g.v[k]);
      out.v[k] = from_float<E>(MEAN && bias != NULL ? xhat + to_float(b.v[k]) : xhat);
    }
    store(y + r * C + c, out);
  });
  if (row.lane == 0) {
    if (MEAN) mean[r] = m;
    rstd[r] = s;
  }
}

/* f(K) for the least number of packs a lane that hold a row, 0 where no number we compile for does. */
template <typename F> static void by_packs(int packs, F f)
{
  int each = (packs + WARP - 1) / WARP;
  if (each == 1)
    f(std::integral_constant<int, 1>{});
  else if (each == 2)
    f(std::integral_constant<int, 2>{});
  else if (each <= 4)
    f(std::integral_constant<int, 4>{});
  else if (each <= 8)
    f(std::integral_constant<int, 8>{});
  else
    f(std::integral_constant<int, 0>{});
}

template <bool MEAN>
static void norm_fwd(const char *what, lm_dtype t, void *y, float *mean, float *rstd, void *sum, const void *x,
                     const void *branch, const void *gain, const void *bias, size_t rows, int C, float eps)
{
  by_type(t, [&](auto zero) {
    typedef decltype(zero) E;
    by_width<WIDTH<E>>(C % WIDTH<E> == 0 && aligned_to(16, y, sum, x, branch, gain, bias), [&](auto w) {
      constexpr int W = decltype(w)::value;
      by_packs(C / W, [&](auto k) {
        lm_cuda_launch(what, norm_fwd_kernel<E, W, decltype(k)::value, MEAN>, blocks_for(rows, FORWARD_WARPS),
                       FORWARD_WARPS * WARP, 0, static_cast<E *>(y), mean, rstd, static_cast<E *>(sum),
                       static_cast<const E *>(x), static_cast<const E *>(branch), static_cast<const E *>(gain),
                       static_cast<const E *>(bias), rows, C, eps);
      });
    });
  });
}

void lm_layernorm_fwd_cuda(lm_dtype t, void *y, float *mean, float *rstd, void *sum, const void *x, const void *branch,
                           const void *gain, const void *bias, size_t rows, int C, float eps)
{
  norm_fwd<true>("layernorm_fwd", t, y, mean, rstd, sum, x, branch, gain, bias, rows, C, eps);
}

void lm_rmsnorm_fwd_cuda(lm_dtype t, void *y, float *rstd, void *sum, const void *x, const void *branch,
                         const void *gain, size_t rows, int C, float eps)
{
  norm_fwd<false>("rmsnorm_fwd", t, y, NULL, rstd, sum, x, branch, gain, NULL, rows, C, eps);
}

/* ---- backward: a block takes rows in turn; a thread owns channels, so that sums over rows need no one else ---- */

enum { BACKWARD_THREADS = 256 };

/* partial [blocks][2][C]: sums over the block's rows of dy xhat, and of dy. */
template <typename E, int W, bool MEAN>
static __global__ void __launch_bounds__(BACKWARD_THREADS)
    norm_bwd_kernel(E *dx, float *partial, const E *dy, const E *x, const float *mean, const float *rstd, const E *gain,
                    size_t rows, int C)
{
  extern __shared__ __align__(16) float sums[]; /* [2][C rounded up to 4] */
  __shared__ float2 of_warp[2][BACKWARD_THREADS / WARP];
  float *sum_gain = sums, *sum_bias = sums + (C + 3) / 4 * 4;
  const int first = threadIdx.x * W, step = blockDim.x * W;
  for (int c = first; c < C; c += step)
#pragma unroll
    for (int k = 0; k < W; k++) sum_gain[c + k] = sum_bias[c + k] = 0;
  int turn = 0;
  for (size_t r = blockIdx.x; r < rows; r += gridDim.x, turn ^= 1) {
    float m = MEAN ? mean[r] : 0, s = rstd[r], a_sum = 0, a_xhat_sum = 0;
    for (int c = first; c < C; c += step) {
      pack<E, W> d = load<W>(dy + r * C + c), v = load<W>(x + r * C + c), g = load<W>(gain + c);
#pragma unroll
      for (int k = 0; k < W; k++) {
        float a = to_float(g.v[k]) * to_float(d.v[k]);
        a_sum += a;
        a_xhat_sum += a * ((to_float(v.v[k]) - m) * s);
      }
    }
    float2 means = block_sum2(a_sum, a_xhat_sum, of_warp[turn]);
    float mean_a = MEAN ? means.x / C : 0, mean_a_xhat = means.y / C;
    for (int c = first; c < C; c += step) {
      pack<E, W> d = load<W>(dy + r * C + c), v = load<W>(x + r * C + c), g = load<W>(gain + c);
      pack<E, W> out = load<W>(dx + r * C + c);
#pragma unroll
      for (int k = 0; k < W; k++) {
        float dy_k = to_float(d.v[k]), xhat = (to_float(v.v[k]) - m) * s, a = to_float(g.v[k]) * dy_k;
        out.v[k] = from_float<E>(to_float(out.v[k]) + s * (a - mean_a - xhat * mean_a_xhat));
        sum_gain[c + k] += dy_k * xhat;
        sum_bias[c + k] += dy_k;
      }
      store(dx + r * C + c, out);
    }
  }
  for (int c = first; c < C; c += step)
#pragma unroll
    for (int k = 0; k < W; k++) {
      partial[2 * static_cast<size_t>(blockIdx.x) * C + c + k] = sum_gain[c + k];
      partial[(2 * static_cast<size_t>(blockIdx.x) + 1) * C + c + k] = sum_bias[c + k];
    }
}

template <bool MEAN>
static void norm_bwd(const char *what, lm_dtype t, void *dx, float *dgain, float *dbias, const void *dy, const void *x,
                     const float *mean, const float *rstd, const void *gain, size_t rows, int C)
{
  if (rows == 0) return;
  unsigned blocks = static_cast<unsigned>(lm_cuda.multiprocessors) * 8;
  if (rows < blocks) blocks = static_cast<unsigned>(rows);
  float *partial = static_cast<float *>(lm_cuda_scratch(2 * static_cast<size_t>(blocks) * C * sizeof(float), what));
  by_type(t, [&](auto zero) {
    typedef decltype(zero) E;
    by_width<WIDTH<E>>(C % WIDTH<E> == 0 && aligned_to(16, dx, dy, x, gain), [&](auto w) {
      constexpr int W = decltype(w)::value;
      unsigned threads = blocks_for(C / W, WARP) * WARP;
      size_t shared = 2 * static_cast<size_t>((C + 3) / 4 * 4) * sizeof(float);
      lm_cuda_allow_shared(what, norm_bwd_kernel<E, W, MEAN>, shared);
      lm_cuda_launch(what, norm_bwd_kernel<E, W, MEAN>, blocks, threads < BACKWARD_THREADS ? threads : BACKWARD_THREADS,
                     shared, static_cast<E *>(dx), partial, static_cast<const E *>(dy), static_cast<const E *>(x), mean,
                     rstd, static_cast<const E *>(gain), rows, C);
    });
  });
  lm_cuda_sum_partials(what, true, dgain, partial, blocks, C, 2 * static_cast<size_t>(C));
  if (dbias != NULL) lm_cuda_sum_partials(what, true, dbias, partial + C, blocks, C, 2 * static_cast<size_t>(C));
}

void lm_layernorm_bwd_cuda(lm_dtype t, void *dx, float *dgain, float *dbias, const void *dy, const void *x,
                           const float *mean, const float *rstd, const void *gain, size_t rows, int C)
{
  norm_bwd<true>("layernorm_bwd", t, dx, dgain, dbias, dy, x, mean, rstd, gain, rows, C);
}

void lm_rmsnorm_bwd_cuda(lm_dtype t, void *dx, float *dgain, const void *dy, const void *x, const float *rstd,
                         const void *gain, size_t rows, int C)
{
  norm_bwd<false>("rmsnorm_bwd", t, dx, dgain, NULL, dy, x, NULL, rstd, gain, rows, C);
}

/* ---- RMSNorm of heads: a warp a head ---- */

enum { HEAD_WARPS = 4 };

template <typename E, int W>
static __global__ void __launch_bounds__(HEAD_WARPS *WARP)
    qk_norm_fwd_kernel(E *y, float *rstd, const E *x, const E *q_gain, const E *k_gain, size_t rows, int H, int H_kv,
                       int D, float eps)
{
  int heads = H + 2 * H_kv, normed = H + H_kv, first = threadIdx.x % WARP * W;
  size_t i = static_cast<size_t>(blockIdx.x) * HEAD_WARPS + threadIdx.x / WARP, r = i / heads;
  if (r >= rows) return;
  int h = i % heads;
  const E *in = x + i * D, *gain = h < H ? q_gain : k_gain;
  float squares = 0, s = 1;
  for (int d = first; h < normed && d < D; d += WARP * W) {
    pack<E, W> v = load<W>(in + d);
#pragma unroll
    for (int k = 0; k < W; k++) squares += to_float(v.v[k]) * to_float(v.v[k]);
  }
  if (h < normed) s = 1 / sqrtf(warp_sum(squares) / D + eps);
  for (int d = first; d < D; d += WARP * W) {
    pack<E, W> v = load<W>(in + d);
    if (h < normed) {
      pack<E, W> g = load<W>(gain + d);
#pragma unroll
      for (int k = 0; k < W; k++) v.v[k] = from_float<E>(to_float(v.v[k]) * s * to_float(g.v[k]));
    }
    store(y + i * D + d, v);
  }
  if (first == 0 && h < normed) rstd[r * normed + h] = s;
}

void lm_qk_norm_fwd_cuda(lm_dtype t, void *y, float *rstd, const void *x, const void *q_gain, const void *k_gain,
                         size_t rows, int H, int H_kv, int D, float eps)
{
  by_type(t, [&](auto zero) {
    typedef decltype(zero) E;
    by_width<2>(D % 2 == 0 && aligned_to(2 * sizeof(E), y, x, q_gain, k_gain), [&](auto w) {
      lm_cuda_launch("qk_norm_fwd", qk_norm_fwd_kernel<E, decltype(w)::value>,
                     blocks_for(rows * (H + 2 * H_kv), HEAD_WARPS), HEAD_WARPS * WARP, 0, static_cast<E *>(y), rstd,
                     static_cast<const E *>(x), static_cast<const E *>(q_gain), static_cast<const E *>(k_gain), rows, H,
                     H_kv, D, eps);
    });
  });
}

/* partial [blocks][2][D]: sums of dy xhat over the block's query heads, and over its key heads. */
template <typename E, int W>
static __global__ void __launch_bounds__(HEAD_WARPS *WARP)
    qk_norm_bwd_kernel(E *dqkv, float *partial, const E *x, const float *rstd, const E *q_gain, const E *k_gain,
                       size_t rows, int H, int H_kv, int D)
{
  extern __shared__ float sums[]; /* [HEAD_WARPS][2][D]: a lane adds to its own channels of its own warp */
  int heads = H + 2 * H_kv, normed = H + H_kv, first = threadIdx.x % WARP * W, warp = threadIdx.x / WARP;
  float *mine = sums + warp * 2 * D;
  for (int d = first; d < D; d += WARP * W)
    for (int k = 0; k < W; k++) mine[d + k] = mine[D + d + k] = 0;
  size_t step = static_cast<size_t>(gridDim.x) * HEAD_WARPS;
  for (size_t i = static_cast<size_t>(blockIdx.x) * HEAD_WARPS + warp; i < rows * normed; i += step) {
    size_t r = i / normed;
    int h = i % normed;
    const E *in = x + (r * heads + h) * D, *gain = h < H ? q_gain : k_gain;
    E *d_in = dqkv + (r * heads + h) * D;
    float s = rstd[i], a_xhat = 0, *to = mine + (h < H ? 0 : D);
    for (int d = first; d < D; d += WARP * W) {
      pack<E, W> v = load<W>(in + d), dy = load<W>(d_in + d), g = load<W>(gain + d);
#pragma unroll
      for (int k = 0; k < W; k++) {
        float xhat = to_float(v.v[k]) * s, dy_k = to_float(dy.v[k]);
        a_xhat += to_float(g.v[k]) * dy_k * xhat;
        to[d + k] += dy_k * xhat;
      }
    }
    a_xhat = warp_sum(a_xhat) / D;
    for (int d = first; d < D; d += WARP * W) {
      pack<E, W> v = load<W>(in + d), dy = load<W>(d_in + d), g = load<W>(gain + d);
#pragma unroll
      for (int k = 0; k < W; k++)
        dy.v[k] = from_float<E>(s * (to_float(g.v[k]) * to_float(dy.v[k]) - to_float(v.v[k]) * s * a_xhat));
      store(d_in + d, dy);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 2 * D; i += blockDim.x) {
    float sum = 0;
    for (int w = 0; w < HEAD_WARPS; w++) sum += sums[w * 2 * D + i];
    partial[2 * static_cast<size_t>(blockIdx.x) * D + i] = sum;
  }
}

void lm_qk_norm_bwd_cuda(lm_dtype t, void *dqkv, float *dq_gain, float *dk_gain, const void *x, const float *rstd,
                         const void *q_gain, const void *k_gain, size_t rows, int H, int H_kv, int D)
{
  const char *what = "qk_norm_bwd";
  size_t shared = static_cast<size_t>(HEAD_WARPS) * 2 * D * sizeof(float), stride = 2 * static_cast<size_t>(D);
  unsigned most = static_cast<unsigned>(lm_cuda.multiprocessors) * 8;
  unsigned blocks = blocks_for(rows * (H + H_kv), HEAD_WARPS);
  if (rows == 0) return;
  if (blocks > most) blocks = most;
  float *partial = static_cast<float *>(lm_cuda_scratch(blocks * stride * sizeof(float), what));
  by_type(t, [&](auto zero) {
    typedef decltype(zero) E;
    by_width<2>(D % 2 == 0 && aligned_to(2 * sizeof(E), dqkv, x, q_gain, k_gain), [&](auto w) {
      constexpr int W = decltype(w)::value;
      lm_cuda_allow_shared(what, qk_norm_bwd_kernel<E, W>, shared);
      lm_cuda_launch(what, qk_norm_bwd_kernel<E, W>, blocks, HEAD_WARPS * WARP, shared, static_cast<E *>(dqkv), partial,
                     static_cast<const E *>(x), rstd, static_cast<const E *>(q_gain), static_cast<const E *>(k_gain),
                     rows, H, H_kv, D);
    });
  });
  lm_cuda_sum_partials(what, true, dq_gain, partial, blocks, D, stride);
  lm_cuda_sum_partials(what, true, dk_gain, partial + D, blocks, D, stride);
}
