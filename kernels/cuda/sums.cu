/* kernels/cuda/sums.cu - sums over many rows or elements, in an order that does not change. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cuda/sums.h"

/* ---- partial sums -> sum, or with add sum += ---- */

enum { SLICES = 16 };

/* Thread (c, s) adds the parts s, s + SLICES ..; then the slices are added in their order. */
static __global__ void __launch_bounds__(WARP *SLICES)
    add_partials_kernel(float *out, const float *partial, int parts, size_t n, size_t stride, bool add)
{
  __shared__ float slice[SLICES][WARP];
  size_t i = static_cast<size_t>(blockIdx.x) * WARP + threadIdx.x;
  float sum = 0;
#pragma unroll 4
  for (int p = threadIdx.y; i < n && p < parts; p += SLICES) sum += partial[p * stride + i];
  slice[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || i >= n) return;
  sum = 0;
  for (int s = 0; s < SLICES; s++) sum += slice[s][threadIdx.x];
  out[i] = add ? out[i] + sum : sum;
}

void lm_cuda_sum_partials(const char *what, bool add, float *out, const float *partial, int parts, size_t n,
                          size_t stride)
{
  lm_cuda_launch(what, add_partials_kernel, blocks_for(n, WARP), dim3(WARP, SLICES), 0, out, partial, parts, n, stride,
                 add);
}

/* ---- out[c] = sum_r x[r,c], or with add += ---- */

enum { ROWS = 8 /* read at a time by a block */ };

/* Block (i, p) adds the rows that belong to part p, of 32 W columns. */
template <typename E, int W>
static __global__ void __launch_bounds__(WARP *ROWS) column_sums_kernel(float *partial, const E *x, size_t rows, int C)
{
  __shared__ pack<float, W> of_row[ROWS][WARP];
  int c = (blockIdx.x * WARP + threadIdx.x) * W;
  pack<float, W> sum = {};
#pragma unroll 4
  for (size_t r = blockIdx.y * ROWS + threadIdx.y; c < C && r < rows; r += static_cast<size_t>(gridDim.y) * ROWS) {
    pack<E, W> v = load<W>(x + r * C + c);
#pragma unroll
    for (int k = 0; k < W; k++) sum.v[k] += to_float(v.v[k]);
  }
  of_row[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || c >= C) return;
  for (int r = 1; r < ROWS; r++)
#pragma unroll
    for (int k = 0; k < W; k++) sum.v[k] += of_row[r][threadIdx.x].v[k];
#pragma unroll
  for (int k = 0; k < W; k++) partial[static_cast<size_t>(blockIdx.y) * C + c + k] = sum.v[k];
}

void lm_cuda_sum_columns(const char *what, lm_dtype t, bool add, float *out, const void *x, size_t rows, int C)
{
  by_type(t, [&](auto zero) {
    typedef decltype(zero) E;
    by_width<WIDTH<E>>(C % WIDTH<E> == 0 && aligned_to(16, x), [&](auto w) {
      constexpr int W = decltype(w)::value;
      unsigned across = blocks_for(C, WARP * W), most = blocks_for(rows, ROWS * 4);
      unsigned parts = blocks_for(static_cast<size_t>(lm_cuda.multiprocessors) * 4, across);
      if (parts > most) parts = most;
      float *partial = static_cast<float *>(lm_cuda_scratch(static_cast<size_t>(parts) * C * sizeof(float), what));
      lm_cuda_launch(what, column_sums_kernel<E, W>, dim3(across, parts), dim3(WARP, ROWS), 0, partial,
                     static_cast<const E *>(x), rows, C);
      lm_cuda_sum_partials(what, add, out, partial, parts, C, C);
    });
  });
}

/* ---- the sum of x[i], or of x[i]^2, in double ---- */

enum { SUM_THREADS = 256 };

/* For thread 0; shared: a double a warp. */
static __device__ __forceinline__ double block_sum(double x, double *shared)
{
  for (int step = WARP / 2; step > 0; step /= 2) x += __shfl_xor_sync(ALL_LANES, x, step);
  if (threadIdx.x % WARP == 0) shared[threadIdx.x / WARP] = x;
  __syncthreads();
  x = 0;
  for (unsigned w = 0; w < SUM_THREADS / WARP; w++) x += shared[w];
  return x;
}

/* out[block] = the sum over a piece: one of a list, which lies in x, or that of the block's number of x [n]. Which
 * thread adds what does not depend on how x is aligned. Products are exact in double. */
template <bool SQUARES>
static __global__ void __launch_bounds__(SUM_THREADS)
    sum_pieces_kernel(double *out, const lm_slice *list, const float *x, size_t n)
{
  enum { W = WIDTH<float> };
  __shared__ double shared[SUM_THREADS / WARP];
  size_t begin = static_cast<size_t>(blockIdx.x) * LM_PIECE;
  if (list != NULL)
    x += list[blockIdx.x].g_at, n = list[blockIdx.x].n;
  else
    x += begin, n = n - begin < LM_PIECE ? n - begin : LM_PIECE;
  bool wide = reinterpret_cast<uintptr_t>(x) % 16 == 0;
  double sum = 0;
#pragma unroll 4
  for (size_t i = threadIdx.x * W; i < n; i += SUM_THREADS * W) {
    pack<float, W> v = {};
    if (wide && i + W <= n)
      v = load<W>(x + i);
    else
      for (int k = 0; k < W && i + k < n; k++) v.v[k] = x[i + k];
#pragma unroll
    for (int k = 0; k < W; k++) {
      double d = static_cast<double>(v.v[k]);
      sum += SQUARES ? d * d : d;
    }
  }
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

/* out[block] = the sum of partial[first[block]] up to partial[first[block + 1]]; without first, of all n. */
static __global__ void __launch_bounds__(SUM_THREADS)
    sum_partials_kernel(double *out, const double *partial, const uint32_t *first, uint32_t n)
{
  __shared__ double shared[SUM_THREADS / WARP];
  uint32_t begin = first != NULL ? first[blockIdx.x] : 0, end = first != NULL ? first[blockIdx.x + 1] : n;
  double sum = 0;
  for (uint32_t i = begin + threadIdx.x; i < end; i += SUM_THREADS) sum += partial[i];
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

template <bool SQUARES> static void sum_of(const char *what, double *sum, const float *x, size_t n)
{
  unsigned blocks = n == 0 ? 1 : blocks_for(n, LM_PIECE);
  double *partial = static_cast<double *>(lm_cuda_scratch(blocks * sizeof(double), what));
  lm_cuda_launch(what, sum_pieces_kernel<SQUARES>, blocks, SUM_THREADS, 0, partial, nullptr, x, n);
  lm_cuda_launch(what, sum_partials_kernel, 1, SUM_THREADS, 0, sum, partial, nullptr, blocks);
}

void lm_sum_cuda(double *sum, const float *x, size_t n)
{
  sum_of<false>("sum", sum, x, n);
}

void lm_sum_squares_cuda(double *sum, const float *x, size_t n)
{
  sum_of<true>("sum_squares", sum, x, n);
}

void lm_sum_squares_all_cuda(double *sums, const lm_slices *s, const float *g)
{
  const char *what = "sum_squares_all";
  double *partial = static_cast<double *>(lm_cuda_scratch(s->n_pieces * sizeof(double), what));
  lm_cuda_launch(what, sum_pieces_kernel<true>, static_cast<unsigned>(s->n_pieces), SUM_THREADS, 0, partial, s->pieces,
                 g, 0);
  lm_cuda_launch(what, sum_partials_kernel, static_cast<unsigned>(s->n), SUM_THREADS, 0, sums, partial, s->first, 0);
}
