/* kernels/cuda/rope.cu - rotary positions. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cuda/device.h"

enum { THREADS = 256 };

/* A thread turns W pairs (x[d], x[d + half]) of a head. */
template <typename E, int W>
static __global__ void __launch_bounds__(THREADS)
    rope_kernel(E *qkv, const float *angles, float sign, size_t rows, int T, int normed, int heads, int D)
{
  int half = D / 2, each = half / W; /* threads of a head */
  size_t all = rows * normed * each, step = static_cast<size_t>(gridDim.x) * THREADS;
  for (size_t i = static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x; i < all; i += step) {
    size_t r = i / (static_cast<size_t>(normed) * each);
    int h = i / each % normed, d = i % each * W;
    const float *angle = angles + r % T * D + d;
    E *x = qkv + (r * heads + h) * D + d;
    pack<E, W> x1 = load<W>(x), x2 = load<W>(x + half), y1, y2;
#pragma unroll
    for (int k = 0; k < W; k++) {
      float c = angle[k], s = sign * angle[half + k], a = to_float(x1.v[k]), b = to_float(x2.v[k]);
      y1.v[k] = from_float<E>(a * c - b * s);
      y2.v[k] = from_float<E>(b * c + a * s);
    }
    store(x, y1);
    store(x + half, y2);
  }
}

void lm_rope_cuda(lm_dtype t, void *qkv, const float *angles, int first, bool inverse, int B, int T, int H, int H_kv,
                  int D)
{
  size_t rows = static_cast<size_t>(B) * T;
  by_type(t, [&](auto zero) {
    typedef decltype(zero) E;
    by_width<WIDTH<E>>(D / 2 % WIDTH<E> == 0 && aligned_to(16, qkv), [&](auto w) {
      constexpr int W = decltype(w)::value;
      lm_cuda_launch("rope", rope_kernel<E, W>, blocks_for(rows * (H + H_kv) * (D / 2 / W), THREADS), THREADS, 0,
                     static_cast<E *>(qkv), angles + static_cast<size_t>(first) * D, inverse ? -1.0f : 1.0f, rows, T,
                     H + H_kv, H + 2 * H_kv, D);
    });
  });
}
