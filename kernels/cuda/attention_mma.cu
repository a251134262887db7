/* kernels/cuda/attention_mma.cu - causal attention on tensor cores, for 16-bit types and heads of up to 128 channels.
 */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cuda/mma.h"
#include "kernels/cuda/scores.h"

/* Dao, arXiv:2307.08691: a warp has rows of the scores all for itself, so a row's softmax needs no other warp, and the
 * probabilities go from the C of one product into the A of the next without leaving the registers. Heads are W wide in
 * shared memory, 64 or 128; channels behind D are 0. Copies of the tile that comes next go on behind the computation.
 *
 * Each gradient has a kernel in which one block owns it: 7 products where one kernel for all would do with 5, but that
 * one adds to dq from many blocks, in an order that changes. */

enum { WARPS = 4, THREADS = WARPS * WARP };

/* c[m][n] += rows of `a` times rows of `b`: scores. a: MT tiles of 16 rows from row0 on; b: N rows. */
template <typename E, int W, int MT, int N>
static __device__ __forceinline__ void multiply(float (&c)[MT][N / 8][4], const E *a, int row0, const E *b)
{
#pragma unroll
  for (int k = 0; k < W / 16; k++) {
    unsigned fa[MT][4];
#pragma unroll
    for (int m = 0; m < MT; m++) load_a<W>(fa[m], a, row0 + 16 * m, k);
#pragma unroll
    for (int n = 0; n < N / 16; n++) {
      unsigned fb[4];
      load_b<W>(fb, b, 16 * n, k);
#pragma unroll
      for (int m = 0; m < MT; m++) {
        mma<E>(c[m][2 * n], fa[m], fb[0], fb[1]);
        mma<E>(c[m][2 * n + 1], fa[m], fb[2], fb[3]);
      }
    }
  }
}

/* c[m][n] += p, a C of K columns that becomes an A, times the K rows of b. */
template <typename E, int W, int MT, int K>
static __device__ __forceinline__ void multiply_c(float (&c)[MT][W / 8][4], const float (&p)[MT][K / 8][4], const E *b)
{
#pragma unroll
  for (int k = 0; k < K / 16; k++) {
    unsigned fa[MT][4];
#pragma unroll
    for (int m = 0; m < MT; m++) a_of_c<E>(fa[m], p[m][2 * k], p[m][2 * k + 1]);
#pragma unroll
    for (int n = 0; n < W / 16; n++) {
      unsigned fb[4];
      load_b_transposed<W>(fb, b, 16 * k, n);
#pragma unroll
      for (int m = 0; m < MT; m++) {
        mma<E>(c[m][2 * n], fa[m], fb[0], fb[1]);
        mma<E>(c[m][2 * n + 1], fa[m], fb[2], fb[3]);
      }
    }
  }
}

template <int A, int B> static __device__ __forceinline__ void clear(float (&c)[A][B][4])
{
#pragma unroll
  for (int i = 0; i < A; i++)
#pragma unroll
    for (int j = 0; j < B; j++)
#pragma unroll
      for (int k = 0; k < 4; k++) c[i][j][k] = 0;
}

/* Rows of c, times factor[m][half], to x: row(m, half) is where a row begins, NULL if it is not to be written. */
template <typename E, int W, int MT, typename F, typename R>
static __device__ __forceinline__ void write_rows(const float (&c)[MT][W / 8][4], int q, int D, F factor, R row)
{
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      E *to = row(m, half);
      float f = factor(m, half);
#pragma unroll
      for (int n = 0; n < W / 8; n++)
        if (to != NULL && 8 * n < D)
          *reinterpret_cast<unsigned *>(to + 8 * n + 2 * q) = two<E>(c[m][n][2 * half] * f, c[m][n][2 * half + 1] * f);
    }
}

/* ---- forward: block (tile of 64 MT queries, h, b) ---- */

template <typename E, int W, int MT, int N, bool DROP>
static __global__ void __launch_bounds__(THREADS) forward_kernel(E *y, float *lse, const E *qkv, attended a)
{
  constexpr int M = WARPS * 16 * MT;
  extern __shared__ __align__(128) unsigned char memory[];
  E *Q = reinterpret_cast<E *>(memory), *K = Q + M * W, *V = K + N * W;
  const place p = place_of(blockIdx.z, blockIdx.y);
  const int i0 = (gridDim.x - 1 - blockIdx.x) * M, row0 = p.warp * 16 * MT, kv = p.h * a.H_kv / a.H;
  const int end = min(i0 + M, a.T), begin = a.first_key(p.b, i0) / N * N, last = i0 + row0 + 16 * MT - 1;
  const size_t stride = static_cast<size_t>(a.H + 2 * a.H_kv) * a.D;
  const E *keys = qkv + a.head_at(p.b, 0, a.H + kv), *values = keys + static_cast<size_t>(a.H_kv) * a.D;
  const float c = a.scale * LOG2_E;
  const uint2 key = DROP ? key_of(a.keep, p.b) : make_uint2(0, 0);
  float O[MT][W / 8][4], largest[MT][2], sum[MT][2];
  int first[MT][2];
  clear(O);
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int i = i0 + row0 + 16 * m + 8 * half + p.g;
      largest[m][half] = -INFINITY, sum[m][half] = 0;
      first[m][half] = i < a.T ? a.first_key(p.b, i) : a.T;
    }
  copy_tile<M, W, THREADS>(Q, qkv + a.head_at(p.b, 0, p.h), stride, i0, a.T, a.D);
  copy_tile<N, W, THREADS>(K, keys, stride, begin, a.T, a.D);
  copies_begun();
  for (int j0 = begin; j0 < end; j0 += N) {
    float S[MT][N / 8][4];
    wait_for_copies<0>();
    __syncthreads(); /* keys are there, and everyone is done with the values before */
    copy_tile<N, W, THREADS>(V, values, stride, j0, a.T, a.D);
    copies_begun();
    if (j0 <= last) {
      clear(S);
      multiply<E, W, MT, N>(S, Q, row0, K);
      const bool all = a.start == NULL && j0 + N - 1 <= i0 + row0; /* every query sees every key */
#pragma unroll
      for (int m = 0; m < MT; m++) {
        const int i = i0 + row0 + 16 * m + p.g;
#pragma unroll
        for (int half = 0; half < 2; half++) {
          float now = largest[m][half];
#pragma unroll
          for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int e = 2 * half; e < 2 * half + 2; e++) {
              int j = j0 + 8 * n + 2 * p.q + e % 2;
              if (!all && (j > i + 8 * half || j < first[m][half])) S[m][n][e] = -INFINITY;
              now = fmaxf(now, S[m][n][e]);
            }
          now = quad_max(now);
          float base = now == -INFINITY ? 0 : now * c, old = exp2f(largest[m][half] * c - base), part = 0;
#pragma unroll
          for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int e = 2 * half; e < 2 * half + 2; e++) part += S[m][n][e] = exp2f(S[m][n][e] * c - base);
          largest[m][half] = now;
          sum[m][half] = sum[m][half] * old + part; /* of this lane's columns */
#pragma unroll
          for (int n = 0; n < W / 8; n++) O[m][n][2 * half] *= old, O[m][n][2 * half + 1] *= old;
        }
#pragma unroll
        for (int n = 0; DROP && n < N / 8; n++) {
          float keep[4];
          keep_queries(keep, a, key, p, i, j0 + 8 * n);
#pragma unroll
          for (int e = 0; e < 4; e++) S[m][n][e] *= keep[e];
        }
      }
    }
    wait_for_copies<0>();
    __syncthreads(); /* values are there, and everyone is done with the keys */
    if (j0 + N < end) copy_tile<N, W, THREADS>(K, keys, stride, j0 + N, a.T, a.D);
    copies_begun();
    if (j0 <= last) multiply_c<E, W, MT, N>(O, S, V);
  }
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int i = i0 + row0 + 16 * m + 8 * half + p.g;
      sum[m][half] = quad_sum(sum[m][half]);
      if (p.q == 0 && i < a.T) lse[a.lse_at(p.b, p.h, i)] = largest[m][half] * a.scale + logf(sum[m][half]);
    }
  write_rows<E, W, MT>(
      O, p.q, a.D, [&](int m, int half) { return 1 / sum[m][half]; },
      [&](int m, int half) {
        int i = i0 + row0 + 16 * m + 8 * half + p.g;
        return i < a.T ? y + a.output_at(p.b, i, p.h) : static_cast<E *>(NULL);
      });
}

/* ---- backward ---- */

/* What a score s of lse and delta makes: p, and ds / scale; m from dropout, d = dy . v. */
static __device__ __forceinline__ float probability(float s, float c, float lse)
{
  return exp2f(s * c - lse * LOG2_E);
}

/* dq: block (tile of 64 MT queries, h, b). */
template <typename E, int W, int MT, int N, bool DROP>
static __global__ void __launch_bounds__(THREADS)
    dq_kernel(E *dqkv, const E *dy, const float *delta, const float *lse, const E *qkv, attended a)
{
  constexpr int M = WARPS * 16 * MT;
  extern __shared__ __align__(128) unsigned char memory[];
  E *Q = reinterpret_cast<E *>(memory), *G = Q + M * W, *KV = G + M * W; /* KV [2][keys, values][N][W] */
  const place p = place_of(blockIdx.z, blockIdx.y);
  const int i0 = (gridDim.x - 1 - blockIdx.x) * M, row0 = p.warp * 16 * MT, kv = p.h * a.H_kv / a.H;
  const int end = min(i0 + M, a.T), begin = a.first_key(p.b, i0) / N * N, last = i0 + row0 + 16 * MT - 1;
  const size_t stride = static_cast<size_t>(a.H + 2 * a.H_kv) * a.D;
  const E *keys = qkv + a.head_at(p.b, 0, a.H + kv), *values = keys + static_cast<size_t>(a.H_kv) * a.D;
  const float c = a.scale * LOG2_E;
  const uint2 key = DROP ? key_of(a.keep, p.b) : make_uint2(0, 0);
  float dQ[MT][W / 8][4], lse_of[MT][2], delta_of[MT][2];
  int first[MT][2];
  clear(dQ);
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int i = i0 + row0 + 16 * m + 8 * half + p.g;
      bool is = i < a.T;
      first[m][half] = is ? a.first_key(p.b, i) : a.T;
      lse_of[m][half] = is ? lse[a.lse_at(p.b, p.h, i)] : 0;
      delta_of[m][half] = is ? delta[a.lse_at(p.b, p.h, i)] : 0;
    }
  copy_tile<M, W, THREADS>(Q, qkv + a.head_at(p.b, 0, p.h), stride, i0, a.T, a.D);
  copy_tile<M, W, THREADS>(G, dy + a.output_at(p.b, 0, p.h), static_cast<size_t>(a.H) * a.D, i0, a.T, a.D);
  copy_tile<N, W, THREADS>(KV, keys, stride, begin, a.T, a.D);
  copy_tile<N, W, THREADS>(KV + N * W, values, stride, begin, a.T, a.D);
  copies_begun();
  int stage = 0;
  for (int j0 = begin; j0 < end; j0 += N, stage ^= 1) {
    E *K = KV + stage * 2 * N * W, *V = K + N * W, *next = KV + (stage ^ 1) * 2 * N * W;
    wait_for_copies<0>();
    __syncthreads(); /* this tile is there, and everyone is done with the one before */
    if (j0 + N < end) {
      copy_tile<N, W, THREADS>(next, keys, stride, j0 + N, a.T, a.D);
      copy_tile<N, W, THREADS>(next + N * W, values, stride, j0 + N, a.T, a.D);
    }
    copies_begun();
    if (j0 > last) continue;
    float S[MT][N / 8][4], dP[MT][N / 8][4];
    clear(S), clear(dP);
    multiply<E, W, MT, N>(S, Q, row0, K);
    multiply<E, W, MT, N>(dP, G, row0, V);
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
      for (int n = 0; n < N / 8; n++) {
        float keep[4] = {1, 1, 1, 1};
        const int i = i0 + row0 + 16 * m + p.g;
        if (DROP) keep_queries(keep, a, key, p, i, j0 + 8 * n);
#pragma unroll
        for (int e = 0; e < 4; e++) {
          int j = j0 + 8 * n + 2 * p.q + e % 2, half = e / 2;
          bool sees = j <= i + 8 * half && j >= first[m][half];
          float x = sees ? probability(S[m][n][e], c, lse_of[m][half]) : 0;
          S[m][n][e] = x * (keep[e] * dP[m][n][e] - delta_of[m][half]);
        }
      }
    multiply_c<E, W, MT, N>(dQ, S, K);
  }
  write_rows<E, W, MT>(
      dQ, p.q, a.D, [&](int, int) { return a.scale; },
      [&](int m, int half) {
        int i = i0 + row0 + 16 * m + 8 * half + p.g;
        return i < a.T ? dqkv + a.head_at(p.b, i, p.h) : static_cast<E *>(NULL);
      });
}

/* Begin to copy queries i0 .. of head h, the gradients of their outputs, and two numbers of each. */
template <typename E, int W, int N>
static __device__ __forceinline__ void copy_queries(E *Q, float *numbers, const E *qkv, const E *dy, const float *lse,
                                                    const float *delta, const attended &a, int b, int h, int i0)
{
  copy_tile<N, W, THREADS>(Q, qkv + a.head_at(b, 0, h), static_cast<size_t>(a.H + 2 * a.H_kv) * a.D, i0, a.T, a.D);
  copy_tile<N, W, THREADS>(Q + N * W, dy + a.output_at(b, 0, h), static_cast<size_t>(a.H) * a.D, i0, a.T, a.D);
  for (int n = threadIdx.x; n < 2 * N; n += THREADS) {
    const float *from = (n < N ? lse : delta) + a.lse_at(b, h, 0);
    int i = i0 + n % N;
    copy4(numbers + n, i < a.T ? from + i : from, i < a.T);
  }
}

/* dk, dv: block (tile of 64 MT keys, kv, b), over the queries of all heads that read it. Scores are computed as
 * [keys,queries], so that they are the A of both products. */
template <typename E, int W, int MT, int N, bool DROP>
static __global__ void __launch_bounds__(THREADS)
    dkv_kernel(E *dqkv, const E *dy, const float *delta, const float *lse, const E *qkv, attended a)
{
  constexpr int M = WARPS * 16 * MT;
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ float numbers[2][2 * N];                                    /* lse, delta of the queries */
  E *K = reinterpret_cast<E *>(memory), *V = K + M * W, *QG = V + M * W; /* QG [2][queries, gradients][N][W] */
  const place p = place_of(blockIdx.z, blockIdx.y);
  const int kv = p.h, j0 = blockIdx.x * M, row0 = p.warp * 16 * MT, each = a.H / a.H_kv;
  const int i_begin = j0 / N * N, turns = each * ((a.T - i_begin + N - 1) / N); /* heads, and tiles of queries */
  const size_t stride = static_cast<size_t>(a.H + 2 * a.H_kv) * a.D;
  const float c = a.scale * LOG2_E;
  const uint2 key = DROP ? key_of(a.keep, p.b) : make_uint2(0, 0);
  float dK[MT][W / 8][4], dV[MT][W / 8][4];
  clear(dK), clear(dV);
  copy_tile<M, W, THREADS>(K, qkv + a.head_at(p.b, 0, a.H + kv), stride, j0, a.T, a.D);
  copy_tile<M, W, THREADS>(V, qkv + a.head_at(p.b, 0, a.H + a.H_kv + kv), stride, j0, a.T, a.D);
  copy_queries<E, W, N>(QG, numbers[0], qkv, dy, lse, delta, a, p.b, kv * each, i_begin);
  copies_begun();
  for (int turn = 0; turn < turns; turn++) {
    const int stage = turn & 1, h = kv * each + turn % each, i0 = i_begin + turn / each * N, then = turn + 1;
    E *Q = QG + stage * 2 * N * W, *G = Q + N * W;
    wait_for_copies<0>();
    __syncthreads();
    if (a.first_key(p.b, i0) >= j0 + M) break; /* from here on queries see later documents only */
    if (then < turns)
      copy_queries<E, W, N>(QG + (stage ^ 1) * 2 * N * W, numbers[stage ^ 1], qkv, dy, lse, delta, a, p.b,
                            kv * each + then % each, i_begin + then / each * N);
    copies_begun();
    float S[MT][N / 8][4], dP[MT][N / 8][4];
    clear(S), clear(dP);
    multiply<E, W, MT, N>(S, K, row0, Q);
    multiply<E, W, MT, N>(dP, V, row0, G);
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
      for (int n = 0; n < N / 8; n++) {
        float keep[4] = {1, 1, 1, 1};
        const int j = j0 + row0 + 16 * m + p.g, column = 8 * n + 2 * p.q;
        if (DROP) keep_keys(keep, a, key, p, h, i0 + column, j);
#pragma unroll
        for (int e = 0; e < 4; e++) {
          int i = i0 + column + e % 2, mine = j + 8 * (e / 2);
          bool sees = i < a.T && mine <= i && mine >= a.first_key(p.b, i);
          float x = sees ? probability(S[m][n][e], c, numbers[stage][column + e % 2]) : 0;
          S[m][n][e] = x * keep[e];
          dP[m][n][e] = x * (keep[e] * dP[m][n][e] - numbers[stage][N + column + e % 2]);
        }
      }
    multiply_c<E, W, MT, N>(dV, S, G);
    multiply_c<E, W, MT, N>(dK, dP, Q);
  }
  auto key_row = [&](int head) {
    return [=, &a](int m, int half) {
      int j = j0 + row0 + 16 * m + 8 * half + p.g;
      return j < a.T ? dqkv + a.head_at(p.b, j, head) : static_cast<E *>(NULL);
    };
  };
  wait_for_copies<0>(); /* of a tile that nobody needed */
  write_rows<E, W, MT>(
      dK, p.q, a.D, [&](int, int) { return a.scale; }, key_row(a.H + kv));
  write_rows<E, W, MT>(
      dV, p.q, a.D, [](int, int) { return 1.0f; }, key_row(a.H + a.H_kv + kv));
}

/* ---- on the host ---- */

bool lm_cuda_attention_has_mma(lm_dtype t, const lm_attention *a)
{
  return t != LM_F32 && a->D % 8 == 0 && a->D <= 128;
}

void lm_cuda_attention_fwd_mma(lm_dtype t, void *y, float *lse, const void *qkv, const lm_attention *a)
{
  const char *what = "attention_fwd";
  by_kind(t, a, [&](auto e, auto width, auto drop) {
    typedef decltype(e) E;
    constexpr int W = decltype(width)::value, MT = W == 128 && decltype(drop)::value ? 1 : 2, N = W == 64 ? 64 : 32;
    constexpr int M = WARPS * 16 * MT;
    auto kernel = forward_kernel<E, W, MT, N, decltype(drop)::value>;
    size_t shared = (M + 2 * N) * W * sizeof(E);
    lm_cuda_allow_shared(what, kernel, shared);
    lm_cuda_launch(what, kernel, dim3(blocks_for(a->T, M), a->H, a->B), THREADS, shared, static_cast<E *>(y), lse,
                   static_cast<const E *>(qkv), attended_of(a));
  });
}

void lm_cuda_attention_bwd_mma(lm_dtype t, void *dqkv, const void *dy, const float *delta, const float *lse,
                               const void *qkv, const lm_attention *a)
{
  const char *what = "attention_bwd";
  by_kind(t, a, [&](auto e, auto width, auto drop) {
    typedef decltype(e) E;
    constexpr int W = decltype(width)::value, MQ = W == 64 ? 2 : 1, NQ = 32, MK = 1, NK = 32;
    constexpr int rows_q = WARPS * 16 * MQ, rows_k = WARPS * 16 * MK;
    auto queries = dq_kernel<E, W, MQ, NQ, decltype(drop)::value>;
    auto keys = dkv_kernel<E, W, MK, NK, decltype(drop)::value>;
    size_t shared_q = (2 * rows_q + 4 * NQ) * W * sizeof(E), shared_k = (2 * rows_k + 4 * NK) * W * sizeof(E);
    E *out = static_cast<E *>(dqkv);
    const E *g = static_cast<const E *>(dy), *in = static_cast<const E *>(qkv);
    lm_cuda_allow_shared(what, queries, shared_q);
    lm_cuda_allow_shared(what, keys, shared_k);
    lm_cuda_launch(what, queries, dim3(blocks_for(a->T, rows_q), a->H, a->B), THREADS, shared_q, out, g, delta, lse, in,
                   attended_of(a));
    lm_cuda_launch(what, keys, dim3(blocks_for(a->T, rows_k), a->H_kv, a->B), THREADS, shared_k, out, g, delta, lse, in,
                   attended_of(a));
  });
}
