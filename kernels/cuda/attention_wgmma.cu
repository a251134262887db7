/* kernels/cuda/attention_wgmma.cu - causal attention on the tensor cores of sm_90a, for what attention_mma.cu does. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cuda/hopper.h"
#include "kernels/cuda/scores.h"

/* Shah et al., arXiv:2407.08608. Of the three warpgroups of a block one has a thread that only copies tiles, as soon as
 * there is room; each of the others computes 64 rows of a tile of 128. While the tensor cores multiply one tile of
 * probabilities, the rest of the multiprocessor turns the scores of the next one into probabilities, which go from the
 * C of one product into the A of the next without leaving the registers. There is a block a multiprocessor, which takes
 * one task after another and has the next one's tiles copied while it ends one.
 *
 * Tiles come by tensor maps: what lies behind the end of a sequence or of a head arrives as zeros, at any T and any
 * head size that is a multiple of 8, in the order of bytes that products want, by one instruction of one thread. A bulk
 * copy a row would do neither, and cp.async by all threads takes the registers that the products need.
 *
 * Backward is split as in attention_mma.cu, so that each gradient is summed by one block, in one order. */

enum { GROUPS = 2, THREADS = (GROUPS + 1) * WARPGROUP, M = GROUPS * 64, CONSUMERS = GROUPS * WARPGROUP / WARP };
enum { BOX = 64, STORED = 16 }; /* positions of a box that is loaded or stored */

struct task {
  int tile, b, h; /* tile: 0 is the largest */
};

/* The tasks of a grid: `tiles` of M positions of each of `heads`, of which there are `each` in a sequence. Blocks that
 * run at the same time work on `together` heads, so that the L2 cache has what they read; large tasks come first. */
struct tasks {
  int tiles, heads, each, together;

  __device__ __forceinline__ task number(int n) const
  {
    int chunk = n / (together * tiles), rest = n % (together * tiles);
    int size = min(together, heads - chunk * together), head = chunk * together + rest % size;
    return task{rest / size, head / each, head % each};
  }
};

/* f(task) for each that is this block's. */
template <typename F> static __device__ __forceinline__ void for_tasks(const tasks &all, F f)
{
  for (int n = blockIdx.x; n < all.tiles * all.heads; n += gridDim.x) f(all.number(n));
}

/* A block's work on shared memory X, which begins at a multiple of 1024 bytes: the first warpgroups compute(X), a
 * thread of the last one copy(X)s, and leaves them its registers. */
template <typename X, typename F, typename G> static __device__ __forceinline__ void share_work(F compute, G copy)
{
  extern __shared__ unsigned char memory[];
  X &s = *reinterpret_cast<X *>(memory + (1024 - shared_address(memory) % 1024) % 1024);
  if (threadIdx.x == 0) {
    s.begin();
    barriers_begun();
  }
  __syncthreads();
  if (threadIdx.x < GROUPS * WARPGROUP) {
    more_registers<240>();
    compute(s);
  } else {
    fewer_registers<24>();
    if (threadIdx.x == GROUPS * WARPGROUP) copy(s);
  }
}

template <typename E, int W, int ROWS> struct tile {
  E rows[W / CHUNK][ROWS][CHUNK];
};

/* Begin to copy positions first .. first + ROWS - 1 of a head. */
template <typename E, int W, int ROWS>
static __device__ __forceinline__ void load_tile(tile<E, W, ROWS> &to, const CUtensorMap &map, int head, int first,
                                                 int b, uint64_t *barrier)
{
#pragma unroll
  for (int c = 0; c < W / CHUNK; c++)
#pragma unroll
    for (int r = 0; r < ROWS; r += BOX) load_box(to.rows[c][r], &map, c * CHUNK, head, first + r, b, barrier);
}

/* s [64,N] = rows of `a` from row0 on times all rows of b. */
template <typename E, int W, int ROWS, int N>
static __device__ __forceinline__ void multiply(float (&s)[N / 8][4], const tile<E, W, ROWS> &a, int row0,
                                                const tile<E, W, N> &b)
{
#pragma unroll
  for (int k = 0; k < W / 16; k++) product<E, false>(s, rows_of<ROWS>(&a, row0, k), rows_of<N>(&b, 0, k), k > 0);
}

/* o [64,W] (+)= p [64,N] times the rows of b. */
template <typename E, int W, int N>
static __device__ __forceinline__ void multiply(float (&o)[W / 8][4], const unsigned (&p)[N / 16][4],
                                                const tile<E, W, N> &b, bool add)
{
#pragma unroll
  for (int k = 0; k < N / 16; k++) product<E, true>(o, p[k], turned_over<N>(&b, k), add || k > 0);
}

/* A task on a tile of queries: what a thread of it has. */
struct query_task {
  place p;
  int i0, i;       /* the tile's first query; the lane's rows are i and i + 8 */
  int last, begin; /* tiles of keys that are seen */
  uint2 key;       /* of the dropout */
};

/* With tiles of N keys. */
template <int N, bool DROP>
static __device__ __forceinline__ query_task query_task_of(const attended &a, const tasks &all, const task &t)
{
  const place p = place_of(t.b, t.h);
  const int i0 = (all.tiles - 1 - t.tile) * M;
  return query_task{p,
                    i0,
                    i0 + p.warp * 16 + p.g,
                    (min(i0 + M, a.T) - 1) / N,
                    a.first_key(t.b, i0) / N,
                    DROP ? key_of(a.keep, t.b) : make_uint2(0, 0)};
}

template <int N> static __device__ __forceinline__ void clear(float (&c)[N][4])
{
#pragma unroll
  for (int n = 0; n < N; n++) c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0;
}

/* A C of N columns becomes an A. */
template <typename E, int N> static __device__ __forceinline__ void turn_in(unsigned (&p)[N][4], float (&s)[2 * N][4])
{
#pragma unroll
  for (int k = 0; k < N; k++) a_of_c<E>(p[k], s[2 * k], s[2 * k + 1]);
  settle(p);
}

/* What a warp has of the rows that it stores, and the positions that are written in the end. */
template <typename E, int W> struct rows_out {
  tile<E, W, STORED> of_warp[CONSUMERS];
};

/* 16 rows of c, times factor[half], go to positions first .. of a head. */
template <typename E, int W>
static __device__ __forceinline__ void store_rows(tile<E, W, STORED> &mine, const float (&c)[W / 8][4],
                                                  const float (&factor)[2], const CUtensorMap &map, int head, int first,
                                                  int b, const place &p)
{
  if (p.lane == 0) stores_have_read();
  __syncwarp();
#pragma unroll
  for (int n = 0; n < W / 8; n++)
#pragma unroll
    for (int half = 0; half < 2; half++) { /* 8 columns lie where the swizzle of the map has them */
      E *to = mine.rows[n / 8][p.g + 8 * half] + ((n % 8) ^ p.g) * 8 + 2 * p.q;
      *reinterpret_cast<unsigned *>(to) = two<E>(c[n][2 * half] * factor[half], c[n][2 * half + 1] * factor[half]);
    }
  written_for_copies();
  __syncwarp();
  if (p.lane > 0) return;
#pragma unroll
  for (int k = 0; k < W / CHUNK; k++) store_box(&map, mine.rows[k], k * CHUNK, head, first, b);
  stores_begun();
}

/* ---- forward ---- */

template <typename E, int W> struct forward_memory {
  tile<E, W, M> Q, K[2], V[2];
  rows_out<E, W> Y;
  ring<1> q;
  ring<2> k, v;

  __device__ __forceinline__ void begin()
  {
    q.begin(CONSUMERS), k.begin(CONSUMERS), v.begin(CONSUMERS);
  }
};

/* A lane's two rows of the softmax. */
struct softmax_rows {
  float largest[2], sum[2]; /* sum: of this lane's columns */
  int first[2];             /* key that is seen */
};

/* Scores of queries i, i + 8 and keys j0 .. become probabilities, but for the division by their sum; old: what all that
 * was computed before is multiplied by. all: each query sees each key. */
template <int N>
static __device__ __forceinline__ void softmax(float (&s)[N / 8][4], softmax_rows &rows, float (&old)[2],
                                               const attended &a, const place &p, int i, int j0, bool all)
{
  const float c = a.scale * LOG2_E;
  if (!all) {
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        int j = j0 + 8 * n + 2 * p.q + e % 2, half = e / 2;
        if (j > i + 8 * half || j < rows.first[half]) s[n][e] = -INFINITY;
      }
  }
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float now = rows.largest[half], part = 0;
#pragma unroll
    for (int n = 0; n < N / 8; n++) now = fmaxf(now, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
    now = quad_max(now);
    const float base = now * c; /* finite: the first tile of a row has the key at its own position */
    old[half] = power_of_2(rows.largest[half] * c - base);
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
      for (int e = 2 * half; e < 2 * half + 2; e++) part += s[n][e] = power_of_2(s[n][e] * c - base);
    rows.largest[half] = now;
    rows.sum[half] = rows.sum[half] * old[half] + part;
  }
}

template <int N>
static __device__ __forceinline__ void drop(float (&s)[N / 8][4], const attended &a, uint2 key, const place &p, int i,
                                            int j0)
{
#pragma unroll
  for (int n = 0; n < N / 8; n++) {
    float keep[4];
    keep_queries(keep, a, key, p, i, j0 + 8 * n);
#pragma unroll
    for (int e = 0; e < 4; e++) s[n][e] *= keep[e];
  }
}

template <typename E, int W>
static __device__ __forceinline__ void forward_copies(forward_memory<E, W> &s, const CUtensorMap &qkv,
                                                      const attended &a, const tasks &all)
{
  turn<1> q;
  turn<2> kv;
  for_tasks(all, [&](const task &t) {
    const int last = all.tiles - 1 - t.tile, begin = a.first_key(t.b, last * M) / M, head = t.h * a.H_kv / a.H;
    wait_for(&s.q.empty[0], q.parity ^ 1);
    arrive_expecting(&s.q.full[0], sizeof s.Q);
    load_tile(s.Q, qkv, t.h, last * M, t.b, &s.q.full[0]);
    q.next();
    for (int j = last; j >= begin; j--, kv.next()) {
      wait_for(&s.k.empty[kv.stage], kv.parity ^ 1);
      arrive_expecting(&s.k.full[kv.stage], sizeof s.K[0]);
      load_tile(s.K[kv.stage], qkv, a.H + head, j * M, t.b, &s.k.full[kv.stage]);
      wait_for(&s.v.empty[kv.stage], kv.parity ^ 1);
      arrive_expecting(&s.v.full[kv.stage], sizeof s.V[0]);
      load_tile(s.V[kv.stage], qkv, a.H + a.H_kv + head, j * M, t.b, &s.v.full[kv.stage]);
    }
  });
}

/* What a thread computes with: scores, their probabilities as a factor, output. */
template <typename E, int W> struct forward_state {
  float S[M / 8][4], O[W / 8][4];
  unsigned P[M / 16][4];
  softmax_rows rows;
  turn<1> q;
  turn<2> k, v;
};

/* The first tile of keys, that of the queries themselves, up to its probabilities. */
template <typename E, int W, bool DROP>
static __device__ __forceinline__ void forward_begin(forward_memory<E, W> &s, forward_state<E, W> &x,
                                                     const query_task &t, const attended &a)
{
  float old[2];
  clear(x.O);
#pragma unroll
  for (int half = 0; half < 2; half++) {
    x.rows.largest[half] = -INFINITY, x.rows.sum[half] = 0;
    x.rows.first[half] = t.i + 8 * half < a.T ? a.first_key(t.p.b, t.i + 8 * half) : 0;
  }
  wait_for(&s.q.full[0], x.q.parity);
  wait_for(&s.k.full[x.k.stage], x.k.parity);
  products_begin();
  multiply<E, W, M, M>(x.S, s.Q, threadIdx.x / WARPGROUP * 64, s.K[x.k.stage]);
  products_begun();
  wait_for_products<0>();
  settle(x.S);
  if (t.p.lane == 0) arrive(&s.k.empty[x.k.stage]);
  x.k.next();
  softmax<M>(x.S, x.rows, old, a, t.p, t.i, t.i0, false);
  if (DROP) drop<M>(x.S, a, t.key, t.p, t.i, t.i0);
  turn_in<E>(x.P, x.S);
}

/* Tile j of keys, while the probabilities of the one before are multiplied. */
template <typename E, int W, bool DROP>
static __device__ __forceinline__ void forward_turn(forward_memory<E, W> &s, forward_state<E, W> &x,
                                                    const query_task &t, const attended &a, int j)
{
  const int group = threadIdx.x / WARPGROUP;
  float old[2];
  wait_for(&s.k.full[x.k.stage], x.k.parity);
  take_turn(group); /* so that one computes products while the other computes probabilities */
  products_begin();
  multiply<E, W, M, M>(x.S, s.Q, 64 * group, s.K[x.k.stage]);
  products_begun();
  wait_for(&s.v.full[x.v.stage], x.v.parity);
  products_begin();
  multiply<E, W, M>(x.O, x.P, s.V[x.v.stage], j < t.last - 1);
  products_begun();
  give_turn(group ^ 1);
  wait_for_products<1>();
  settle(x.S);
  if (t.p.lane == 0) arrive(&s.k.empty[x.k.stage]);
  x.k.next();
  softmax<M>(x.S, x.rows, old, a, t.p, t.i, j * M, a.start == NULL);
  if (DROP && W == 64) drop<M>(x.S, a, t.key, t.p, t.i, j * M);
  wait_for_products<0>();
  settle(x.O), settle(x.P);
  if (DROP && W == 128) drop<M>(x.S, a, t.key, t.p, t.i, j * M); /* now there are registers for it */
  if (t.p.lane == 0) arrive(&s.v.empty[x.v.stage]);
  x.v.next();
#pragma unroll
  for (int n = 0; n < W / 8; n++)
#pragma unroll
    for (int e = 0; e < 4; e++) x.O[n][e] *= old[e / 2];
  settle(x.O);
  turn_in<E>(x.P, x.S);
}

/* The product of the last tile, and what is written. */
template <typename E, int W>
static __device__ __forceinline__ void forward_end(forward_memory<E, W> &s, forward_state<E, W> &x, const query_task &t,
                                                   const attended &a, float *lse, const CUtensorMap &y)
{
  if (t.p.lane == 0) arrive(&s.q.empty[0]);
  x.q.next();
  wait_for(&s.v.full[x.v.stage], x.v.parity);
  products_begin();
  multiply<E, W, M>(x.O, x.P, s.V[x.v.stage], t.begin < t.last);
  products_begun();
  wait_for_products<0>();
  settle(x.O), settle(x.P);
  if (t.p.lane == 0) arrive(&s.v.empty[x.v.stage]);
  x.v.next();
  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float sum = quad_sum(x.rows.sum[half]);
    factor[half] = 1 / sum;
    if (t.p.q == 0 && t.i + 8 * half < a.T)
      lse[a.lse_at(t.p.b, t.p.h, t.i + 8 * half)] = x.rows.largest[half] * a.scale + logf(sum);
  }
  store_rows<E, W>(s.Y.of_warp[t.p.warp], x.O, factor, y, t.p.h, t.i - t.p.g, t.p.b, t.p);
}

template <typename E, int W, bool DROP>
static __device__ __forceinline__ void forward_rows(forward_memory<E, W> &s, float *lse, const CUtensorMap &y,
                                                    const attended &a, const tasks &all)
{
  forward_state<E, W> x = {};
  if (threadIdx.x / WARPGROUP == 1) give_turn(0);
  for_tasks(all, [&](const task &any) {
    const query_task t = query_task_of<M, DROP>(a, all, any);
    forward_begin<E, W, DROP>(s, x, t, a);
    for (int j = t.last - 1; j >= t.begin; j--) forward_turn<E, W, DROP>(s, x, t, a, j);
    forward_end<E, W>(s, x, t, a, lse, y);
  });
  if (threadIdx.x % WARP == 0) stores_have_read();
}

template <typename E, int W, bool DROP>
static __global__ void __launch_bounds__(THREADS, 1)
    forward_kernel(float *lse, const __grid_constant__ CUtensorMap qkv, const __grid_constant__ CUtensorMap y,
                   attended a, tasks all)
{
#if LM_HOPPER
  share_work<forward_memory<E, W>>([&](auto &s) { forward_rows<E, W, DROP>(s, lse, y, a, all); },
                                   [&](auto &s) { forward_copies<E, W>(s, qkv, a, all); });
#endif
}

/* ---- backward ---- */

/* What backward needs of a query beside its row, for all positions up to a multiple of BOX: lse / ln 2, and delta.
 * Behind the end lse is infinite, so that probabilities are 0. */
template <typename E>
static __global__ void __launch_bounds__(256)
    numbers_kernel(float2 *numbers, const E *dy, const E *y, const float *lse, attended a, int padded, size_t rows)
{
  size_t n = (static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x) / WARP; /* (b, h, i) */
  if (n >= rows) return;
  int i = n % padded, h = n / padded % a.H, b = n / padded / a.H;
  float sum = 0;
  for (int d = threadIdx.x % WARP; i < a.T && d < a.D; d += WARP)
    sum += to_float(dy[a.output_at(b, i, h) + d]) * to_float(y[a.output_at(b, i, h) + d]);
  sum = warp_sum(sum);
  if (threadIdx.x % WARP == 0) numbers[n] = make_float2(i < a.T ? lse[a.lse_at(b, h, i)] * LOG2_E : INFINITY, sum);
}

/* end[b,j]: the first query behind j that does not see key j. What queries see never begins earlier again. */
static __global__ void __launch_bounds__(256) ends_kernel(int *end, attended a, size_t keys)
{
  size_t n = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (n >= keys) return;
  int b = n / a.T, j = n % a.T, sees = j, sees_not = a.T;
  while (sees_not - sees > 1) {
    int i = (sees + sees_not) / 2;
    if (a.first_key(b, i) <= j)
      sees = i;
    else
      sees_not = i;
  }
  end[n] = sees_not;
}

/* What the backward kernels take of these. */
struct of_queries {
  const float2 *numbers; /* [B,H,padded] */
  const int *end;        /* [B,T], or NULL: there are no documents */
  int padded;

  /* Tiles of queries that see keys j0 .. j0 + M - 1, times the heads. */
  __device__ __forceinline__ int turns(const attended &a, int b, int j0) const
  {
    int last = end == NULL ? a.T : end[static_cast<size_t>(b) * a.T + min(j0 + M, a.T) - 1];
    return a.H / a.H_kv * ((last - j0 + BOX - 1) / BOX);
  }
};

/* dq: tasks are tiles of queries. Keys wait in shared memory until the product after the scores has read them again. */
template <typename E, int W> struct dq_memory {
  static constexpr int N = W == 64 ? 128 : 64; /* keys of a tile */
  tile<E, W, M> Q, G;
  tile<E, W, N> K[3], V[2];
  rows_out<E, W> dQ;
  ring<1> q;
  ring<3> k;
  ring<2> v;

  __device__ __forceinline__ void begin()
  {
    q.begin(CONSUMERS), k.begin(CONSUMERS), v.begin(CONSUMERS);
  }
};

template <typename E, int W>
static __device__ __forceinline__ void dq_copies(dq_memory<E, W> &s, const CUtensorMap &qkv, const CUtensorMap &dy,
                                                 const attended &a, const tasks &all)
{
  constexpr int N = dq_memory<E, W>::N;
  turn<1> q;
  turn<3> k;
  turn<2> v;
  for_tasks(all, [&](const task &t) {
    const int i0 = (all.tiles - 1 - t.tile) * M, last = (min(i0 + M, a.T) - 1) / N, begin = a.first_key(t.b, i0) / N;
    const int head = t.h * a.H_kv / a.H;
    wait_for(&s.q.empty[0], q.parity ^ 1);
    arrive_expecting(&s.q.full[0], sizeof s.Q + sizeof s.G);
    load_tile(s.Q, qkv, t.h, i0, t.b, &s.q.full[0]);
    load_tile(s.G, dy, t.h, i0, t.b, &s.q.full[0]);
    q.next();
    for (int j = last; j >= begin; j--, k.next(), v.next()) {
      wait_for(&s.k.empty[k.stage], k.parity ^ 1);
      arrive_expecting(&s.k.full[k.stage], sizeof s.K[0]);
      load_tile(s.K[k.stage], qkv, a.H + head, j * N, t.b, &s.k.full[k.stage]);
      wait_for(&s.v.empty[v.stage], v.parity ^ 1);
      arrive_expecting(&s.v.full[v.stage], sizeof s.V[0]);
      load_tile(s.V[v.stage], qkv, a.H + a.H_kv + head, j * N, t.b, &s.v.full[v.stage]);
    }
  });
}

/* Scores of queries i, i + 8 and keys j0 .. become ds / scale; d: dy . v; of: the queries' numbers. */
template <int N, bool DROP>
static __device__ __forceinline__ void score_gradients(float (&s)[N / 8][4], const float (&d)[N / 8][4],
                                                       const float2 (&of)[2], const int (&first)[2], const attended &a,
                                                       uint2 key, const place &p, int i, int j0, bool all)
{
  const float c = a.scale * LOG2_E;
#pragma unroll
  for (int n = 0; n < N / 8; n++) {
    float keep[4] = {1, 1, 1, 1};
    if (DROP) keep_queries(keep, a, key, p, i, j0 + 8 * n);
#pragma unroll
    for (int e = 0; e < 4; e++) {
      int j = j0 + 8 * n + 2 * p.q + e % 2, half = e / 2;
      bool sees = all || (j <= i + 8 * half && j >= first[half]);
      float x = sees ? power_of_2(s[n][e] * c - of[half].x) : 0;
      s[n][e] = x * (keep[e] * d[n][e] - of[half].y);
    }
  }
}

/* What a thread computes with; of, first: of its queries. */
template <typename E, int W> struct dq_state {
  static constexpr int N = dq_memory<E, W>::N;
  float S[N / 8][4], dP[N / 8][4], dQ[W / 8][4];
  unsigned dS[N / 16][4];
  float2 of[2];
  int first[2];
  turn<1> q;
  turn<3> k, done; /* of keys: whose scores come next, whose product with ds does */
  turn<2> v;
};

template <typename E, int W>
static __device__ __forceinline__ void dq_begin(dq_memory<E, W> &s, dq_state<E, W> &x, const query_task &t,
                                                const of_queries &queries, const attended &a)
{
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int i = t.i + 8 * half;
    const float2 *numbers = queries.numbers + (static_cast<size_t>(t.p.b) * a.H + t.p.h) * queries.padded;
    x.first[half] = i < a.T ? a.first_key(t.p.b, i) : 0;
    x.of[half] = i < a.T ? numbers[i] : make_float2(INFINITY, 0);
  }
  wait_for(&s.q.full[0], x.q.parity);
}

/* Tile j of keys, while ds of the one before is multiplied. */
template <typename E, int W, bool DROP>
static __device__ __forceinline__ void dq_turn(dq_memory<E, W> &s, dq_state<E, W> &x, const query_task &t,
                                               const attended &a, int j)
{
  constexpr int N = dq_memory<E, W>::N;
  const int row = threadIdx.x / WARPGROUP * 64;
  wait_for(&s.k.full[x.k.stage], x.k.parity);
  wait_for(&s.v.full[x.v.stage], x.v.parity);
  products_begin();
  multiply<E, W, M, N>(x.S, s.Q, row, s.K[x.k.stage]);
  multiply<E, W, M, N>(x.dP, s.G, row, s.V[x.v.stage]);
  products_begun();
  x.k.next();
  if (j < t.last) {
    products_begin();
    multiply<E, W, N>(x.dQ, x.dS, s.K[x.done.stage], j < t.last - 1);
    products_begun();
    wait_for_products<1>();
  } else {
    wait_for_products<0>();
  }
  settle(x.S), settle(x.dP);
  if (t.p.lane == 0) arrive(&s.v.empty[x.v.stage]);
  x.v.next();
  const bool seen = a.start == NULL && j * N + N - 1 <= t.i0 + row;
  score_gradients<N, DROP>(x.S, x.dP, x.of, x.first, a, t.key, t.p, t.i, j * N, seen);
  wait_for_products<0>();
  settle(x.dQ), settle(x.dS);
  if (j < t.last) {
    if (t.p.lane == 0) arrive(&s.k.empty[x.done.stage]);
    x.done.next();
  }
  turn_in<E>(x.dS, x.S);
}

template <typename E, int W>
static __device__ __forceinline__ void dq_end(dq_memory<E, W> &s, dq_state<E, W> &x, const query_task &t,
                                              const attended &a, const CUtensorMap &dqkv)
{
  constexpr int N = dq_memory<E, W>::N;
  if (t.p.lane == 0) arrive(&s.q.empty[0]);
  x.q.next();
  products_begin();
  multiply<E, W, N>(x.dQ, x.dS, s.K[x.done.stage], t.begin < t.last);
  products_begun();
  wait_for_products<0>();
  settle(x.dQ), settle(x.dS);
  if (t.p.lane == 0) arrive(&s.k.empty[x.done.stage]);
  x.done.next();
  const float factor[2] = {a.scale, a.scale};
  store_rows<E, W>(s.dQ.of_warp[t.p.warp], x.dQ, factor, dqkv, t.p.h, t.i - t.p.g, t.p.b, t.p);
}

template <typename E, int W, bool DROP>
static __device__ __forceinline__ void dq_rows(dq_memory<E, W> &s, const of_queries &queries, const CUtensorMap &dqkv,
                                               const attended &a, const tasks &all)
{
  dq_state<E, W> x = {};
  for_tasks(all, [&](const task &any) {
    const query_task t = query_task_of<dq_memory<E, W>::N, DROP>(a, all, any);
    dq_begin<E, W>(s, x, t, queries, a);
    for (int j = t.last; j >= t.begin; j--) dq_turn<E, W, DROP>(s, x, t, a, j);
    dq_end<E, W>(s, x, t, a, dqkv);
  });
  if (threadIdx.x % WARP == 0) stores_have_read();
}

/* dk, dv: tasks are tiles of keys, over the queries of all heads that read them. */
template <typename E, int W> struct dkv_memory {
  static constexpr int N = BOX, STAGES = 3; /* queries of a tile */
  tile<E, W, M> K, V;
  tile<E, W, N> Q[STAGES], G[STAGES];
  rows_out<E, W> out;
  float2 numbers[STAGES][N];
  ring<1> kv;
  ring<STAGES> q;

  __device__ __forceinline__ void begin()
  {
    kv.begin(CONSUMERS), q.begin(CONSUMERS);
  }
};

template <typename E, int W>
static __device__ __forceinline__ void dkv_copies(dkv_memory<E, W> &s, const of_queries &queries,
                                                  const CUtensorMap &qkv, const CUtensorMap &dy, const attended &a,
                                                  const tasks &all)
{
  constexpr int N = dkv_memory<E, W>::N, STAGES = dkv_memory<E, W>::STAGES;
  turn<1> kv;
  turn<STAGES> q;
  for_tasks(all, [&](const task &t) {
    const int j0 = t.tile * M, turns = queries.turns(a, t.b, j0), each = a.H / a.H_kv;
    wait_for(&s.kv.empty[0], kv.parity ^ 1);
    arrive_expecting(&s.kv.full[0], sizeof s.K + sizeof s.V);
    load_tile(s.K, qkv, a.H + t.h, j0, t.b, &s.kv.full[0]);
    load_tile(s.V, qkv, a.H + a.H_kv + t.h, j0, t.b, &s.kv.full[0]);
    kv.next();
    for (int n = 0; n < turns; n++, q.next()) {
      const int h = t.h * each + n % each, i0 = j0 + n / each * N;
      uint64_t *full = &s.q.full[q.stage];
      wait_for(&s.q.empty[q.stage], q.parity ^ 1);
      arrive_expecting(full, sizeof s.Q[0] + sizeof s.G[0] + sizeof s.numbers[0]);
      load_tile(s.Q[q.stage], qkv, h, i0, t.b, full);
      load_tile(s.G[q.stage], dy, h, i0, t.b, full);
      load_bytes(s.numbers[q.stage], queries.numbers + (static_cast<size_t>(t.b) * a.H + h) * queries.padded + i0,
                 sizeof s.numbers[0], full);
    }
  });
}

/* Scores [keys,queries] of keys j, j + 8 and queries i0 .. become probabilities p; what a dropout takes out, -p.
 * numbers: of these queries; end: of the keys. */
template <int N, bool DROP>
static __device__ __forceinline__ void probabilities(float (&s)[N / 8][4], const float2 *numbers, const int (&end)[2],
                                                     const attended &a, uint2 key, const place &p, int h, int j, int i0,
                                                     bool all)
{
  const float c = a.scale * LOG2_E;
#pragma unroll
  for (int n = 0; n < N / 8; n++) {
    const int i = i0 + 8 * n + 2 * p.q;
    const float4 two_of = *reinterpret_cast<const float4 *>(numbers + 8 * n + 2 * p.q);
    float keep[4];
    if (DROP) keep_keys(keep, a, key, p, h, i, j);
#pragma unroll
    for (int e = 0; e < 4; e++) {
      bool sees = all || (j + 8 * (e / 2) <= i + e % 2 && i + e % 2 < end[e / 2]);
      float x = sees ? power_of_2(s[n][e] * c - (e % 2 ? two_of.z : two_of.x)) : 0;
      s[n][e] = DROP && keep[e] == 0 ? -x : x;
    }
  }
}

/* d = dy . v becomes ds / scale, and s the probabilities with the dropout. */
template <int N, bool DROP>
static __device__ __forceinline__ void score_gradients(float (&s)[N / 8][4], float (&d)[N / 8][4],
                                                       const float2 *numbers, float keep_factor, const place &p)
{
#pragma unroll
  for (int n = 0; n < N / 8; n++) {
    const float4 two_of = *reinterpret_cast<const float4 *>(numbers + 8 * n + 2 * p.q);
#pragma unroll
    for (int e = 0; e < 4; e++) {
      float kept = DROP ? fmaxf(s[n][e], 0) * keep_factor : s[n][e], x = DROP ? fabsf(s[n][e]) : s[n][e];
      d[n][e] = kept * d[n][e] - x * (e % 2 ? two_of.w : two_of.y);
    }
  }
}

/* A task on a tile of keys, from j0 on: what a thread of it has. */
struct key_task {
  place p;
  int j0, j, end[2]; /* the lane's keys j and j + 8, and where the queries that see them end */
  int turns, each;   /* tiles of queries times heads; heads */
  uint2 key;         /* of the dropout */
};

template <bool DROP>
static __device__ __forceinline__ key_task key_task_of(const attended &a, const of_queries &queries, const task &t)
{
  key_task x;
  x.p = place_of(t.b, t.h);
  x.j0 = t.tile * M, x.j = x.j0 + x.p.warp * 16 + x.p.g;
  x.turns = queries.turns(a, t.b, x.j0), x.each = a.H / a.H_kv;
  x.key = DROP ? key_of(a.keep, t.b) : make_uint2(0, 0);
#pragma unroll
  for (int half = 0; half < 2; half++) {
    bool is = queries.end != NULL && x.j + 8 * half < a.T;
    x.end[half] = is ? queries.end[static_cast<size_t>(t.b) * a.T + x.j + 8 * half] : a.T;
  }
  return x;
}

/* What a thread computes with. A, B: p and ds. */
template <typename E, int W> struct dkv_state {
  static constexpr int N = dkv_memory<E, W>::N, STAGES = dkv_memory<E, W>::STAGES;
  float S[N / 8][4], dP[N / 8][4], dK[W / 8][4], dV[W / 8][4];
  unsigned A[N / 16][4], B[N / 16][4];
  turn<1> kv;
  turn<STAGES> q, done; /* of queries: whose scores come next, which are not needed any more */
};

/* Turn n: a tile of queries of a head. */
template <typename E, int W, bool DROP>
static __device__ __forceinline__ void dkv_turn(dkv_memory<E, W> &s, dkv_state<E, W> &x, const key_task &t,
                                                const attended &a, bool documents, int n)
{
  constexpr int N = dkv_memory<E, W>::N;
  const int row = threadIdx.x / WARPGROUP * 64, h = t.p.h * t.each + n % t.each, i0 = t.j0 + n / t.each * N;
  const float2 *numbers = s.numbers[x.q.stage];
  wait_for(&s.q.full[x.q.stage], x.q.parity);
  products_begin();
  multiply<E, W, M, N>(x.S, s.K, row, s.Q[x.q.stage]);
  products_begun();
  wait_for_products<0>(); /* these scores are there, and all products of the turn before are over */
  settle(x.S), settle(x.dK), settle(x.dV), settle(x.A), settle(x.B);
  products_begin(); /* only now: for both scores and both factors there are not registers enough */
  multiply<E, W, M, N>(x.dP, s.V, row, s.G[x.q.stage]);
  products_begun();
  if (n > 0) {
    if (t.p.lane == 0) arrive(&s.q.empty[x.done.stage]);
    x.done.next();
  }
  probabilities<N, DROP>(x.S, numbers, t.end, a, t.key, t.p, h, t.j, i0, !documents && t.j0 + row + 63 <= i0);
  wait_for_products<0>();
  settle(x.dP);
  score_gradients<N, DROP>(x.S, x.dP, numbers, a.keep.factor, t.p);
#pragma unroll
  for (int u = 0; DROP && u < N / 8; u++)
#pragma unroll
    for (int e = 0; e < 4; e++) x.S[u][e] = fmaxf(x.S[u][e], 0) * a.keep.factor;
  turn_in<E>(x.A, x.S), turn_in<E>(x.B, x.dP);
  settle(x.dK), settle(x.dV);
  products_begin();
  multiply<E, W, N>(x.dV, x.A, s.G[x.q.stage], n > 0);
  multiply<E, W, N>(x.dK, x.B, s.Q[x.q.stage], n > 0);
  products_begun();
  x.q.next();
}

template <typename E, int W>
static __device__ __forceinline__ void dkv_end(dkv_memory<E, W> &s, dkv_state<E, W> &x, const key_task &t,
                                               const attended &a, const CUtensorMap &dqkv)
{
  wait_for_products<0>();
  settle(x.dK), settle(x.dV), settle(x.A), settle(x.B);
  if (t.p.lane == 0) arrive(&s.q.empty[x.done.stage]), arrive(&s.kv.empty[0]);
  x.done.next(), x.kv.next();
  const float one[2] = {1, 1}, scale[2] = {a.scale, a.scale};
  tile<E, W, STORED> &mine = s.out.of_warp[t.p.warp];
  store_rows<E, W>(mine, x.dV, one, dqkv, a.H + a.H_kv + t.p.h, t.j - t.p.g, t.p.b, t.p);
  store_rows<E, W>(mine, x.dK, scale, dqkv, a.H + t.p.h, t.j - t.p.g, t.p.b, t.p);
}

template <typename E, int W, bool DROP>
static __device__ __forceinline__ void dkv_rows(dkv_memory<E, W> &s, const of_queries &queries, const CUtensorMap &dqkv,
                                                const attended &a, const tasks &all)
{
  dkv_state<E, W> x = {};
  for_tasks(all, [&](const task &any) {
    const key_task t = key_task_of<DROP>(a, queries, any);
    wait_for(&s.kv.full[0], x.kv.parity);
    for (int n = 0; n < t.turns; n++) dkv_turn<E, W, DROP>(s, x, t, a, queries.end != NULL, n);
    dkv_end<E, W>(s, x, t, a, dqkv);
  });
  if (threadIdx.x % WARP == 0) stores_have_read();
}

template <typename E, int W, bool DROP>
static __global__ void __launch_bounds__(THREADS, 1)
    dq_kernel(const __grid_constant__ CUtensorMap qkv, const __grid_constant__ CUtensorMap dy,
              const __grid_constant__ CUtensorMap dqkv, of_queries queries, attended a, tasks all)
{
#if LM_HOPPER
  share_work<dq_memory<E, W>>([&](auto &s) { dq_rows<E, W, DROP>(s, queries, dqkv, a, all); },
                              [&](auto &s) { dq_copies<E, W>(s, qkv, dy, a, all); });
#endif
}

template <typename E, int W, bool DROP>
static __global__ void __launch_bounds__(THREADS, 1)
    dkv_kernel(const __grid_constant__ CUtensorMap qkv, const __grid_constant__ CUtensorMap dy,
               const __grid_constant__ CUtensorMap dqkv, of_queries queries, attended a, tasks all)
{
#if LM_HOPPER
  share_work<dkv_memory<E, W>>([&](auto &s) { dkv_rows<E, W, DROP>(s, queries, dqkv, a, all); },
                               [&](auto &s) { dkv_copies<E, W>(s, queries, qkv, dy, a, all); });
#endif
}

/* ---- on the host ---- */

static decltype(&cuTensorMapEncodeTiled) encode; /* NULL: these kernels are not to be used */

/* 1 in the code that is for sm_90a. */
static __device__ const int for_hopper =
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    1;
#else
    0;
#endif

void lm_cuda_attention_start(void)
{
  const char *what = "attention";
  int compiled = 0;
  cudaDriverEntryPointQueryResult found;
  encode = NULL;
  if (lm_cuda.major != 9 || lm_cuda.minor != 0 || lm_cuda.host->mma_sync) return;
  lm_cuda_check(cudaMemcpyFromSymbol(&compiled, for_hopper, sizeof compiled), what);
  if (!compiled) return;
  void *f = NULL;
  lm_cuda_check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &found), what);
  if (found == cudaDriverEntryPointSuccess) encode = reinterpret_cast<decltype(encode)>(f);
  lm_cuda.host->verbose("attention in 16 bits: by wgmma%s", encode == NULL ? ", were the driver not too old" : "");
}

bool lm_cuda_attention_has_wgmma(void)
{
  return encode != NULL;
}

/* The map of x [B,T,heads,D], of whose positions `rows` at a time are copied. */
template <typename E> static CUtensorMap map_of(const E *x, const lm_attention *a, int heads, unsigned rows)
{
  CUtensorMap map;
  const cuuint64_t H = static_cast<cuuint64_t>(heads), D = static_cast<cuuint64_t>(a->D),
                   T = static_cast<cuuint64_t>(a->T), B = static_cast<cuuint64_t>(a->B), row = H * D * sizeof(E);
  const cuuint64_t size[] = {D, H, T, B}, stride[] = {D * sizeof(E), row, T * row};
  const cuuint32_t box[] = {CHUNK, 1, rows, 1}, step[] = {1, 1, 1, 1};
  CUtensorMapDataType type =
      std::is_same<E, bf16>::value ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  CUresult r =
      encode(&map, type, 4, const_cast<E *>(x), size, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS)
    lm_cuda_stop("attention: no tensor map for B=%d T=%d, %d heads of %d channels (CUresult %d)", a->B, a->T, heads,
                 a->D, static_cast<int>(r));
  return map;
}

/* Tiles of each of `heads` heads a sequence, whose readers read `bytes` a position and head of the others' rows. */
static tasks tasks_of(const lm_attention *a, int heads, size_t bytes)
{
  size_t together = lm_cuda.cache_bytes / 2 / (bytes * static_cast<size_t>(a->T));
  int all = a->B * heads;
  return tasks{static_cast<int>(blocks_for(a->T, M)), all, heads,
               together < 1                          ? 1
               : together < static_cast<size_t>(all) ? static_cast<int>(together)
                                                     : all};
}

/* Queue a kernel with shared memory for an X, for these tasks. */
template <typename X, typename... P, typename... A>
static void launch(const char *what, void (*kernel)(P...), const tasks &all, A... args)
{
  const size_t shared = sizeof(X) + 1024;
  const int count = all.tiles * all.heads;
  lm_cuda_allow_shared(what, kernel, shared);
  lm_cuda_launch(what, kernel, count < lm_cuda.multiprocessors ? count : lm_cuda.multiprocessors, THREADS, shared,
                 args...);
}

void lm_cuda_attention_fwd_wgmma(lm_dtype t, void *y, float *lse, const void *qkv, const lm_attention *a)
{
  by_kind(t, a, [&](auto e, auto width, auto drop) {
    typedef decltype(e) E;
    constexpr int W = decltype(width)::value;
    const tasks all = tasks_of(a, a->H, 2 * W * sizeof(E) * static_cast<size_t>(a->H_kv) / static_cast<size_t>(a->H));
    launch<forward_memory<E, W>>("attention_fwd", forward_kernel<E, W, decltype(drop)::value>, all, lse,
                                 map_of(static_cast<const E *>(qkv), a, a->H + 2 * a->H_kv, BOX),
                                 map_of(static_cast<const E *>(y), a, a->H, STORED), attended_of(a), all);
  });
}

void lm_cuda_attention_bwd_wgmma(lm_dtype t, void *dqkv, const void *dy, const void *y, const float *lse,
                                 const void *qkv, const lm_attention *a)
{
  const char *what = "attention_bwd";
  const int padded = static_cast<int>(blocks_for(a->T, BOX)) * BOX;
  const size_t rows = static_cast<size_t>(a->B) * a->H * padded, keys = static_cast<size_t>(a->B) * a->T;
  const size_t ends = a->start == NULL ? 0 : keys * sizeof(int);
  float2 *numbers = static_cast<float2 *>(lm_cuda_scratch(rows * sizeof(float2) + ends, what));
  int *end = a->start == NULL ? NULL : reinterpret_cast<int *>(numbers + rows);
  const of_queries queries = {numbers, end, padded};
  if (end != NULL) lm_cuda_launch(what, ends_kernel, blocks_for(keys, 256), 256, 0, end, attended_of(a), keys);
  by_kind(t, a, [&](auto e, auto width, auto drop) {
    typedef decltype(e) E;
    constexpr int W = decltype(width)::value;
    constexpr bool DROP = decltype(drop)::value;
    const E *g = static_cast<const E *>(dy), *in = static_cast<const E *>(qkv), *out = static_cast<const E *>(dqkv);
    const int heads = a->H + 2 * a->H_kv;
    const size_t each = static_cast<size_t>(a->H / a->H_kv), bytes = 2 * W * sizeof(E);
    const CUtensorMap from = map_of(in, a, heads, BOX), gradients = map_of(g, a, a->H, BOX),
                      to = map_of(out, a, heads, STORED);
    const tasks of_q = tasks_of(a, a->H, bytes / each), of_kv = tasks_of(a, a->H_kv, bytes * each);
    lm_cuda_launch(what, numbers_kernel<E>, blocks_for(rows, 256 / WARP), 256, 0, numbers, g, static_cast<const E *>(y),
                   lse, attended_of(a), padded, rows);
    launch<dq_memory<E, W>>(what, dq_kernel<E, W, DROP>, of_q, from, gradients, to, queries, attended_of(a), of_q);
    launch<dkv_memory<E, W>>(what, dkv_kernel<E, W, DROP>, of_kv, from, gradients, to, queries, attended_of(a), of_kv);
  });
}
