/* kernels/cuda/cross_entropy.cu - softmax and negative log-likelihood; the gradient takes the place of the logits. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cuda/device.h"

enum { THREADS = 512, WARPS = THREADS / WARP };

struct objective {
  float z_loss, smoothing, scale;
};

/* What a thread, and then the block, has seen of a row. */
struct seen {
  float largest, sum, total; /* sum of exp(z - largest), sum of z */
};

/* Block r: row r of z [rows,Vp]. The row is read twice, the second time from the cache as a rule. */
template <typename E, int W> static __device__ __forceinline__ seen look_at(const E *z, int V)
{
  seen s = {-INFINITY, 0, 0};
  for (int v = threadIdx.x * W; v < V; v += THREADS * W) {
    pack<E, W> x = load<W>(z + v);
    float largest = s.largest;
#pragma unroll
    for (int k = 0; k < W; k++)
      if (v + k < V) largest = fmaxf(largest, to_float(x.v[k]));
    float base = largest == -INFINITY ? 0 : largest; /* nothing but -inf so far: each exp is 0 */
    s.sum *= exp_for<E>(s.largest - base);
    s.largest = largest;
#pragma unroll
    for (int k = 0; k < W; k++)
      if (v + k < V) s.sum += exp_for<E>(to_float(x.v[k]) - base), s.total += to_float(x.v[k]);
  }
  return s;
}

/* The same of the whole row, for all threads. */
static __device__ __forceinline__ seen combine(seen mine, seen *shared)
{
  int lane = threadIdx.x % WARP;
  seen s;
  s.largest = warp_max(mine.largest);
  s.sum = warp_sum(s.largest == -INFINITY ? mine.sum : mine.sum * expf(mine.largest - s.largest));
  s.total = warp_sum(mine.total);
  if (lane == 0) shared[threadIdx.x / WARP] = s;
  __syncthreads();
  seen other = lane < WARPS ? shared[lane] : seen{-INFINITY, 0, 0};
  s.largest = warp_max(other.largest);
  s.sum = warp_sum(other.largest == -INFINITY ? other.sum : other.sum * expf(other.largest - s.largest));
  s.total = warp_sum(other.total);
  return s;
}

template <typename E, int W>
static __global__ void __launch_bounds__(THREADS)
    cross_entropy_kernel(float *loss, E *z, const int32_t *target, objective o, int V, int Vp)
{
  __shared__ seen shared[WARPS];
  size_t r = blockIdx.x;
  int32_t t = target[r];
  E *row = z + r * Vp;
  pack<E, W> zero = {};
  if (t < 0) { /* ignored */
    if (threadIdx.x == 0) loss[r] = 0;
    for (int v = threadIdx.x * W; o.scale != 0 && v < Vp; v += THREADS * W) store(row + v, zero);
    return;
  }
  float at_target = to_float(row[t]); /* before it is written over: combine() is a barrier */
  seen s = combine(look_at<E, W>(row, V), shared);
  float lse = s.largest + logf(s.sum), certain = 1 - o.smoothing;
  if (threadIdx.x == 0)
    loss[r] = lse - certain * at_target - (o.smoothing > 0 ? o.smoothing * (s.total / V) : 0) + o.z_loss * lse * lse;
  if (o.scale == 0) return;
  float factor = o.scale * (1 + 2 * o.z_loss * lse) / s.sum, share = o.scale * o.smoothing / V;
  for (int v = threadIdx.x * W; v < Vp; v += THREADS * W) {
    pack<E, W> x = load<W>(row + v);
#pragma unroll
    for (int k = 0; k < W; k++) {
      float g = factor * exp_for<E>(to_float(x.v[k]) - s.largest) - share;
      x.v[k] = v + k >= V ? zero.v[0] : from_float<E>(v + k == t ? g - o.scale * certain : g);
    }
    store(row + v, x);
  }
}

void lm_cross_entropy_cuda(lm_dtype t, float *loss, void *z, const int32_t *target, const lm_objective *how,
                           size_t rows, int V, int Vp, float scale)
{
  objective o = {how ? how->z_loss : 0, how ? how->label_smoothing : 0, scale};
  by_type(t, [&](auto zero) {
    typedef decltype(zero) E;
    by_width<WIDTH<E>>(Vp % WIDTH<E> == 0 && aligned_to(16, z), [&](auto w) {
      lm_cuda_launch("cross_entropy", cross_entropy_kernel<E, decltype(w)::value>, static_cast<unsigned>(rows), THREADS,
                     0, loss, static_cast<E *>(z), target, o, V, Vp);
    });
  });
}
