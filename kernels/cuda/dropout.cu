/* kernels/cuda/dropout.cu - elements taken out, the same ones as on the CPU. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cuda/keep.h"

enum { THREADS = 256 };

/* A thread takes 4 elements of a row at a time: those that one counter decides on. Blocks of a column of the grid share
 * sequence b. y may be x. */
template <typename T, int W>
static __global__ void __launch_bounds__(THREADS) dropout_kernel(T *y, const T *x, keeping how, int T_, int C)
{
  size_t b = blockIdx.y;
  const uint2 key = key_of(how, b);
  uint32_t groups = (C + 3) / 4; /* of a row */
  size_t all = static_cast<size_t>(T_) * groups, step = static_cast<size_t>(gridDim.x) * THREADS;
  for (size_t i = static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x; i < all; i += step) {
    uint32_t row = i / groups, group = i % groups;
    float factor[4];
    keep4(factor, how, key, group, row, 0);
    size_t at = (b * T_ + row) * C + 4 * group;
#pragma unroll
    for (int k = 0; k < 4; k += W) {
      if (W < 4 && 4 * group + k >= C) break;
      pack<T, W> in = load<W>(x + at + k), out;
#pragma unroll
      for (int j = 0; j < W; j++) out.v[j] = from_float<T>(factor[k + j] == 0 ? 0 : to_float(in.v[j]) * factor[k + j]);
      store(y + at + k, out);
    }
  }
}

void lm_dropout_cuda(lm_dtype t, void *y, const void *x, const lm_dropout *how, int B, int T, int C)
{
  by_type(t, [&](auto zero) {
    typedef decltype(zero) E;
    by_width<4>(C % 4 == 0 && aligned_to(4 * sizeof(E), y, x), [&](auto w) {
      constexpr int W = decltype(w)::value;
      unsigned blocks = blocks_for(static_cast<size_t>(T) * ((C + 3) / 4), THREADS * 4);
      lm_cuda_launch("dropout", dropout_kernel<E, W>, dim3(blocks, B), THREADS, 0, static_cast<E *>(y),
                     static_cast<const E *>(x), keeping_of(how), T, C);
    });
  });
}
