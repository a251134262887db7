/* kernels/cuda/embedding.cu - token and position embedding; its backward adds in the order of the tokens. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cuda/device.h"

enum { THREADS = 256, WARPS = THREADS / WARP };

/* ---- forward: a thread an access of 16 bytes ---- */

template <typename E, int W>
static __global__ void __launch_bounds__(THREADS)
    embedding_fwd_kernel(E *y, const int32_t *token, const E *wte, const E *wpe, size_t rows, int T, int C)
{
  int each = C / W;
  size_t step = static_cast<size_t>(gridDim.x) * THREADS;
  for (size_t i = static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x; i < rows * each; i += step) {
    size_t n = i / each, c = i % each * W;
    pack<E, W> x = load<W>(wte + static_cast<size_t>(token[n]) * C + c);
    if (wpe != NULL) {
      pack<E, W> position = load<W>(wpe + n % T * C + c);
#pragma unroll
      for (int k = 0; k < W; k++) x.v[k] = from_float<E>(to_float(x.v[k]) + to_float(position.v[k]));
    }
    store(y + n * C + c, x);
  }
}

void lm_embedding_fwd_cuda(lm_dtype t, void *y, const int32_t *token, const void *wte, const void *wpe, int B, int T,
                           int C)
{
  size_t rows = static_cast<size_t>(B) * T;
  by_type(t, [&](auto zero) {
    typedef decltype(zero) E;
    by_width<WIDTH<E>>(C % WIDTH<E> == 0 && aligned_to(16, y, wte, wpe), [&](auto w) {
      constexpr int W = decltype(w)::value;
      lm_cuda_launch("embedding_fwd", embedding_fwd_kernel<E, W>, blocks_for(rows * (C / W), THREADS), THREADS, 0,
                     static_cast<E *>(y), token, static_cast<const E *>(wte), static_cast<const E *>(wpe), rows, T, C);
    });
  });
}

/* ---- the rows (b,t) sorted by token, those of a token in their order: a radix sort of 8 bits a pass ---- */

enum { DIGITS = 256 };

/* count[digit][block]: how many of the block's THREADS rows have that digit. */
static __global__ void __launch_bounds__(THREADS) count_digits_kernel(int *count, const int32_t *key, int n, int shift)
{
  __shared__ int mine[DIGITS];
  int i = blockIdx.x * THREADS + threadIdx.x;
  mine[threadIdx.x] = 0;
  __syncthreads();
  if (i < n) atomicAdd(&mine[key[i] >> shift & (DIGITS - 1)], 1); /* of integers: any order gives the same sum */
  __syncthreads();
  count[threadIdx.x * gridDim.x + blockIdx.x] = mine[threadIdx.x];
}

/* x[i] becomes the sum of x[j], j < i. One block. */
static __global__ void __launch_bounds__(1024) sums_before_kernel(int *x, int n)
{
  __shared__ int of_warp[WARP];
  int lane = threadIdx.x % WARP, w = threadIdx.x / WARP, before = 0;
  for (int begin = 0; begin < n; begin += blockDim.x) {
    int i = begin + threadIdx.x, mine = i < n ? x[i] : 0, sum = mine;
    for (int step = 1; step < WARP; step *= 2) {
      int other = __shfl_up_sync(ALL_LANES, sum, step);
      if (lane >= step) sum += other;
    }
    if (lane == WARP - 1) of_warp[w] = sum;
    __syncthreads();
    int total = of_warp[lane], warps = total; /* as many warps as lanes */
    for (int step = 1; step < WARP; step *= 2) {
      int other = __shfl_up_sync(ALL_LANES, warps, step);
      if (lane >= step) warps += other;
    }
    int earlier = __shfl_sync(ALL_LANES, warps - total, w);
    if (i < n) x[i] = before + earlier + sum - mine;
    before += __shfl_sync(ALL_LANES, warps, WARP - 1);
    __syncthreads();
  }
}

/* Rows go where their digit begins, plus how many before them have it: in the blocks before, the warps before, the
 * lanes before. row_in NULL: row i is i. */
static __global__ void __launch_bounds__(THREADS)
    place_rows_kernel(int32_t *key_out, int *row_out, const int32_t *key_in, const int *row_in, const int *before,
                      int n, int shift)
{
  __shared__ int of_warp[WARPS][DIGITS];
  int i = blockIdx.x * THREADS + threadIdx.x, lane = threadIdx.x % WARP, w = threadIdx.x / WARP;
  for (int j = 0; j < WARPS; j++) of_warp[j][threadIdx.x] = 0;
  __syncthreads();
  int32_t key = i < n ? key_in[i] : 0;
  int digit = i < n ? key >> shift & (DIGITS - 1) : DIGITS; /* no digit of a row */
  unsigned alike = __match_any_sync(ALL_LANES, digit);
  int rank = __popc(alike & ((1u << lane) - 1));
  if (rank == 0 && i < n) of_warp[w][digit] = __popc(alike);
  __syncthreads();
  if (i >= n) return;
  int at = before[digit * gridDim.x + blockIdx.x] + rank;
  for (int j = 0; j < w; j++) at += of_warp[j][digit];
  key_out[at] = key;
  row_out[at] = row_in == NULL ? i : row_in[i];
}

typedef struct sorted {
  const int32_t *token; /* [n], rising */
  const int *row;       /* [n]: which row has it */
} sorted;

/* Four passes: any int32 that is not negative. */
static sorted sort_rows(const int32_t *token, int n)
{
  const char *what = "embedding_bwd";
  int blocks = static_cast<int>(blocks_for(n, THREADS));
  size_t list = (static_cast<size_t>(n) + 63) / 64 * 64;
  int *memory =
      static_cast<int *>(lm_cuda_scratch((4 * list + static_cast<size_t>(DIGITS) * blocks) * sizeof(int), what));
  int *keys[2] = {memory, memory + list}, *rows[2] = {memory + 2 * list, memory + 3 * list}, *count = memory + 4 * list;
  const int32_t *key = token;
  const int *row = NULL;
  for (int pass = 0; pass < 4; pass++) {
    int shift = 8 * pass;
    lm_cuda_launch(what, count_digits_kernel, blocks, THREADS, 0, count, key, n, shift);
    lm_cuda_launch(what, sums_before_kernel, 1, 1024, 0, count, DIGITS * blocks);
    lm_cuda_launch(what, place_rows_kernel, blocks, THREADS, 0, keys[pass % 2], rows[pass % 2], key, row, count, n,
                   shift);
    key = keys[pass % 2], row = rows[pass % 2];
  }
  return sorted{key, row};
}

/* ---- backward ---- */

/* Thread (c, i): where i is the first of its token, all rows of that token are added to it, one after another. */
template <typename E, int W>
static __global__ void __launch_bounds__(THREADS)
    embedding_bwd_kernel(float *dwte, const E *dy, sorted by, int n, int C)
{
  int i = blockIdx.x * blockDim.y + threadIdx.y, c = (blockIdx.y * WARP + threadIdx.x) * W;
  if (i >= n || c >= C) return;
  int32_t token = by.token[i];
  if (i > 0 && by.token[i - 1] == token) return;
  int end = i + 1; /* first, so that the reads of dy below need not wait for each other */
  while (end < n && by.token[end] == token) end++;
  float *to = dwte + static_cast<size_t>(token) * C + c;
  pack<float, W> sum = load<W>(to);
#pragma unroll 8
  for (; i < end; i++) {
    pack<E, W> d = load<W>(dy + static_cast<size_t>(by.row[i]) * C + c);
#pragma unroll
    for (int k = 0; k < W; k++) sum.v[k] += to_float(d.v[k]);
  }
  store(to, sum);
}

/* dwpe[t,c] += sum_b dy[b,t,c]; i is (t,c). */
template <typename E, int W>
static __global__ void __launch_bounds__(THREADS)
    position_bwd_kernel(float *dwpe, const E *dy, int B, size_t sequence /* T C */)
{
  size_t i = (static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x) * W;
  if (i >= sequence) return;
  pack<float, W> sum;
#pragma unroll
  for (int k = 0; k < W; k++) sum.v[k] = 0;
  for (int b = 0; b < B; b++) {
    pack<E, W> d = load<W>(dy + b * sequence + i);
#pragma unroll
    for (int k = 0; k < W; k++) sum.v[k] += to_float(d.v[k]);
  }
  pack<float, W> old = load<W>(dwpe + i);
#pragma unroll
  for (int k = 0; k < W; k++) old.v[k] += sum.v[k];
  store(dwpe + i, old);
}

void lm_embedding_bwd_cuda(lm_dtype t, float *dwte, float *dwpe, const void *dy, const int32_t *token, int B, int T,
                           int C)
{
  const char *what = "embedding_bwd";
  int n = B * T;
  sorted by = sort_rows(token, n);
  by_type(t, [&](auto zero) {
    typedef decltype(zero) E;
    by_width<4>(C % 4 == 0 && aligned_to(16, dwte, dwpe) && aligned_to(4 * sizeof(E), dy), [&](auto w) {
      constexpr int W = decltype(w)::value;
      const E *d = static_cast<const E *>(dy);
      lm_cuda_launch(what, embedding_bwd_kernel<E, W>, dim3(blocks_for(n, WARPS), blocks_for(C, WARP * W)),
                     dim3(WARP, WARPS), 0, dwte, d, by, n, C);
      if (dwpe != NULL)
        lm_cuda_launch(what, position_bwd_kernel<E, W>, blocks_for(static_cast<size_t>(T) * C, THREADS * W), THREADS, 0,
                       dwpe, d, B, static_cast<size_t>(T) * C);
    });
  });
}
