/* kernels/cpu/attention.c - causal attention in tiles of the score matrix, none of which is kept. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cpu/keep.h"
#include "kernels/cpu/loop_files.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/vector.h"
#include <omp.h>

/* Dao et al., arXiv:2205.14135. Scores lie transposed, [key,query], so that a query's maximum and sum are one lane of a
 * vector and nothing is summed across lanes; all tiles are f32, whatever the tensors are. A tile of keys or queries
 * has TILE rows; the last may have fewer. Which tile is computed when does not depend on the number of threads. */
enum { TILE = 64 };

/* ---- Products of tiles ---- */

typedef float vec __attribute__((vector_size(4 * LM_LANES)));

LM_INLINE vec vec_load(const float *p)
{
  vec v;
  memcpy(&v, p, sizeof v);
  return v;
}

LM_INLINE void vec_store(float *p, vec v)
{
  memcpy(p, &v, sizeof v);
}

LM_INLINE vec vec_of(float x)
{
  return x - (vec){0};
}

/* c [m,n] (+)= a b: a(i,k) = a[i a_row + k a_col]; b [depth,n] and c with rows ldb and ldc apart, 64-byte aligned; n a
 * multiple of LM_LANES. */
typedef struct operands {
  float *c;
  const float *a, *b;
  size_t ldc, a_row, a_col, ldb, depth;
  bool add;
  /* Of a diagonal tile about half is masked. For row i of c: only columns >= i are wanted, or only k >= i or k <= i
   * count, so that the rest, in steps of a block, is left out. */
  enum { WHOLE, COLUMNS_FROM_ROW, DEPTH_FROM_ROW, DEPTH_TO_ROW } part;
} operands;

/* ROWS x VECTORS numbers of c stay in registers: 4 x 4 vectors of the 32 registers of AVX-512, 4 x 2 of 16. */
enum { ROWS = 4, WIDTH = LM_LANES == 16 ? 4 : 2 };

/* An array stays in registers only where no index is left to the loop. */
#if defined __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 4")
#endif

LM_INLINE void block(const operands *o, size_t i, size_t j, int rows, int width)
{
  const float *a = o->a + i * o->a_row, *b = o->b + j;
  float *c = o->c + i * o->ldc + j;
  vec sum[ROWS][WIDTH];

  UNROLL
  for (int r = 0; r < rows; r++) {
    UNROLL
    for (int w = 0; w < width; w++) sum[r][w] = o->add ? vec_load(c + (size_t)r * o->ldc + w * LM_LANES) : vec_of(0);
  }
  for (size_t k = 0; k < o->depth; k++, a += o->a_col, b += o->ldb) {
    vec v[WIDTH];
    UNROLL
    for (int w = 0; w < width; w++) v[w] = vec_load(b + w * LM_LANES);
    UNROLL
    for (int r = 0; r < rows; r++) {
      vec x = vec_of(a[(size_t)r * o->a_row]);
      UNROLL
      for (int w = 0; w < width; w++) sum[r][w] += x * v[w];
    }
  }
  UNROLL
  for (int r = 0; r < rows; r++) {
    UNROLL
    for (int w = 0; w < width; w++) vec_store(c + (size_t)r * o->ldc + w * LM_LANES, sum[r][w]);
  }
}

LM_INLINE void strip(operands o, size_t i, size_t n, int rows)
{
  size_t j = o.part == COLUMNS_FROM_ROW ? i / LM_LANES * LM_LANES : 0;
  if (o.part == DEPTH_FROM_ROW) {
    o.a += i * o.a_col;
    o.b += i * o.ldb;
    o.depth -= i;
  } else if (o.part == DEPTH_TO_ROW && o.depth > i + (size_t)rows) {
    o.depth = i + (size_t)rows;
  }
  for (; j + WIDTH * LM_LANES <= n; j += WIDTH * LM_LANES) block(&o, i, j, rows, WIDTH);
  for (; j + 2 * LM_LANES <= n; j += 2 * LM_LANES) block(&o, i, j, rows, 2);
  for (; j < n; j += LM_LANES) block(&o, i, j, rows, 1);
}

static void multiply(const operands *o, size_t m, size_t n)
{
  size_t i = 0;
  for (; i + ROWS <= m; i += ROWS) strip(*o, i, n, ROWS);
  for (; i < m; i++) strip(*o, i, n, 1);
}

/* ---- Tiles in and out of the tensors ---- */

/* y [rows,ldy] f32 = x [rows,D], rows x_row elements apart; columns from D to ldy are 0. */
static void load(lm_dtype t, float *restrict y, size_t ldy, const void *x, size_t x_row, size_t rows, size_t D)
{
  for (size_t r = 0; r < rows; r++, y += ldy) {
    if (t == LM_F32)
      memcpy(y, (const float *)x + r * x_row, D * sizeof(float));
    else
      LM_LEVEL(lm_widen)(t, y, (const uint16_t *)x + r * x_row, x_row, 1, D);
    for (size_t d = D; d < ldy; d++) y[d] = 0;
  }
}

/* y [rows,D], rows y_row elements apart = x [rows,ldx] f32. */
static void store(lm_dtype t, void *y, size_t y_row, const float *x, size_t ldx, size_t rows, size_t D)
{
  for (size_t r = 0; r < rows; r++, x += ldx) {
    if (t == LM_F32)
      memcpy((float *)y + r * y_row, x, D * sizeof(float));
    else
      LM_LEVEL(lm_narrow)(t, (uint16_t *)y + r * y_row, y_row, x, NULL, 1, D);
  }
}

/* y [cols,TILE] = scale x^T, x [rows,ldx]; columns from rows to TILE are 0. */
static void transpose(float *restrict y, const float *restrict x, size_t ldx, size_t rows, size_t cols, float scale)
{
  for (size_t c = 0; c < cols; c++) {
    for (size_t r = 0; r < rows; r++) y[c * TILE + r] = scale * x[r * ldx + c];
    for (size_t r = rows; r < TILE; r++) y[c * TILE + r] = 0;
  }
}

/* ---- What a call works on ---- */

typedef struct problem {
  lm_dtype t;
  size_t size;              /* of an element */
  size_t T, H, H_kv, D, ld; /* ld: D rounded up to whole vectors, the row length of tiles */
  size_t row;               /* elements between positions of qkv: (H + 2 H_kv) D */
  float scale;
  const int32_t *start; /* [B,T], or NULL */
  const lm_dropout *dropout;
} problem;

static problem describe(lm_dtype t, const lm_attention *a)
{
  problem p = {.t = t,
               .size = lm_dtype_size(t),
               .T = (size_t)a->T,
               .H = (size_t)a->H,
               .H_kv = (size_t)a->H_kv,
               .D = (size_t)a->D,
               .start = a->start,
               .dropout = a->dropout};
  p.ld = (p.D + LM_LANES - 1) / LM_LANES * LM_LANES;
  p.row = (p.H + 2 * p.H_kv) * p.D;
  p.scale = 1 / sqrtf((float)a->D);
  return p;
}

/* Element (b, first, head) of a tensor [B,T,row] whose heads have D elements. */
static size_t at(const problem *p, size_t row, size_t b, size_t first, size_t head)
{
  return ((b * p->T + first) * row + head * p->D) * p->size;
}

static size_t tile_rows(const problem *p, size_t first)
{
  return p->T - first < TILE ? p->T - first : TILE;
}

/* ---- Who sees what: a query the keys of its document up to its own position, less what dropout takes ---- */

/* The first tile of keys that a query from `first` on sees: starts never fall. */
static size_t first_tile(const problem *p, size_t b, size_t first)
{
  return p->start == NULL ? 0 : (size_t)p->start[b * p->T + first] / TILE * TILE;
}

/* Scores [keys,TILE] of a tile: those of keys that a query does not see become -infinity. */
static void mask(const problem *p, float *s, size_t b, size_t first, size_t j)
{
  size_t keys = tile_rows(p, j), queries = tile_rows(p, first);
  const int32_t *start = p->start == NULL ? NULL : p->start + b * p->T + first;
  for (size_t k = 1; j == first && k < keys; k++)
    for (size_t i = 0; i < k; i++) s[k * TILE + i] = -INFINITY;
  if (start == NULL || (size_t)start[queries - 1] <= j) return;
  for (size_t i = 0; i < queries; i++)
    for (size_t k = 0; k < keys && j + k < (size_t)start[i]; k++) s[k * TILE + i] = -INFINITY;
}

/* factor [TILE,TILE]: what dropout makes of each probability of the tile. */
static void drop(const problem *p, float *factor, size_t b, size_t h, size_t first, size_t j)
{
  const lm_keep keep = lm_keep_of(p->dropout, b);
  for (size_t k = 0; k < TILE; k += 4) {
#pragma omp simd
    for (uint32_t i = 0; i < TILE; i++)
      lm_keep_factors(&keep, (uint32_t)h, (uint32_t)first + i, (uint32_t)((j + k) / 4), factor + k * TILE + i, TILE);
  }
}

static void scale_by(float *restrict x, const float *restrict factor, size_t rows)
{
#pragma omp simd
  for (size_t i = 0; i < rows * TILE; i++) x[i] *= factor[i];
}

/* ---- Forward ---- */

/* A thread's memory: the keys and values of a head, [T,ld] each, and the tiles of a block of queries. */
typedef struct forward_tiles {
  float *k, *v;
  float *q;        /* [TILE,ld], then the result */
  float *qt, *o;   /* [D,TILE]: queries, scaled, and the result, transposed */
  float *s, *keep; /* [TILE,TILE]: key, query; the factors of dropout */
} forward_tiles;

static size_t forward_size(const problem *p)
{
  return 2 * p->T * p->ld + TILE * p->ld + 2 * TILE * p->D + 2 * TILE * TILE;
}

static forward_tiles forward_memory(const problem *p, float *m)
{
  forward_tiles f = {.k = m, .v = m + p->T * p->ld};
  f.q = f.v + p->T * p->ld;
  f.qt = f.q + TILE * p->ld;
  f.o = f.qt + TILE * p->D;
  f.s = f.o + TILE * p->D;
  f.keep = f.s + TILE * TILE;
  return f;
}

/* The softmax goes on: s [rows,TILE] becomes exp(s - max); max and sum of each query are brought up to date, and what
 * was summed up in o [D,TILE] under the old maximum shrinks to the new one. The maximum of a query that has seen no key
 * yet is -infinity; 0 stands in for it, which gives exp(-infinity - 0) = 0 and not NaN. */
static void softmax(float *restrict s, size_t rows, float *restrict o, size_t D, float *restrict max,
                    float *restrict sum)
{
  _Alignas(64) float shrink[TILE], base[TILE];
  memcpy(shrink, max, sizeof shrink);
  for (size_t j = 0; j < rows; j++) {
#pragma omp simd
    for (size_t i = 0; i < TILE; i++) max[i] = s[j * TILE + i] > max[i] ? s[j * TILE + i] : max[i];
  }
#pragma omp simd
  for (size_t i = 0; i < TILE; i++) {
    base[i] = max[i] == -INFINITY ? 0 : max[i];
    shrink[i] = lm_exp(shrink[i] - base[i]);
    sum[i] *= shrink[i];
  }
  for (size_t j = 0; j < rows; j++) {
#pragma omp simd
    for (size_t i = 0; i < TILE; i++) sum[i] += s[j * TILE + i] = lm_exp(s[j * TILE + i] - base[i]);
  }
  for (size_t d = 0; d < D; d++) {
#pragma omp simd
    for (size_t i = 0; i < TILE; i++) o[d * TILE + i] *= shrink[i];
  }
}

/* Queries first .. first + rows of head h: y and lse. */
static void forward_queries(const problem *p, const forward_tiles *f, void *y, float *lse, const char *qkv, size_t b,
                            size_t h, size_t first)
{
  _Alignas(64) float max[TILE], sum[TILE] = {0};
  size_t D = p->D, ld = p->ld, queries = tile_rows(p, first);

  for (size_t i = 0; i < TILE; i++) max[i] = -INFINITY;
  memset(f->o, 0, D * TILE * sizeof(float));
  load(p->t, f->q, ld, qkv + at(p, p->row, b, first, h), p->row, queries, D);
  transpose(f->qt, f->q, ld, queries, D, p->scale);
  for (size_t j = first_tile(p, b, first); j <= first; j += TILE) {
    size_t keys = tile_rows(p, j);
    operands o = {.c = f->s, .ldc = TILE, .a = f->k + j * ld, .a_row = ld, .a_col = 1, .b = f->qt, .ldb = TILE};
    o.depth = D;
    o.part = j == first ? COLUMNS_FROM_ROW : WHOLE;
    multiply(&o, keys, TILE); /* s = k q^T */
    mask(p, f->s, b, first, j);
    softmax(f->s, keys, f->o, D, max, sum);
    if (p->dropout != NULL) {
      drop(p, f->keep, b, h, first, j);
      scale_by(f->s, f->keep, keys);
    }
    o = (operands){.c = f->o, .ldc = TILE, .a = f->v + j * ld, .a_row = 1, .a_col = ld, .b = f->s, .ldb = TILE};
    o.depth = keys;
    o.add = true;
    multiply(&o, D, TILE); /* o += v^T s */
  }
  for (size_t i = 0; i < queries; i++) {
    lse[(b * p->H + h) * p->T + first + i] = max[i] + logf(sum[i]);
    for (size_t d = 0; d < D; d++) f->q[i * ld + d] = f->o[d * TILE + i] / sum[i];
  }
  store(p->t, (char *)y + at(p, p->H * D, b, first, h), p->H * D, f->q, ld, queries, D);
}

void LM_LEVEL(lm_attention_fwd)(lm_dtype t, void *y, float *lse, const void *qkv, const lm_attention *a)
{
  const problem p = describe(t, a);
  size_t heads = (size_t)a->B * p.H_kv, threads = (size_t)omp_get_max_threads(), n = forward_size(&p);
  size_t tiles = (p.T + TILE - 1) / TILE;
  /* Few heads are shared by several threads, every share-th block of queries each. */
  size_t share = heads >= 4 * threads ? 1 : (4 * threads + heads - 1) / heads;
  float *memory = lm_cpu_scratch(n * threads);
  if (share > tiles) share = tiles;

#pragma omp parallel for schedule(dynamic)
  for (size_t task = 0; task < heads * share; task++) {
    size_t b = task / share / p.H_kv, kv = task / share % p.H_kv, group = p.H / p.H_kv;
    forward_tiles f = forward_memory(&p, memory + (size_t)omp_get_thread_num() * n);
    load(t, f.k, p.ld, (const char *)qkv + at(&p, p.row, b, 0, p.H + kv), p.row, p.T, p.D);
    load(t, f.v, p.ld, (const char *)qkv + at(&p, p.row, b, 0, p.H + p.H_kv + kv), p.row, p.T, p.D);
    for (size_t h = kv * group; h < (kv + 1) * group; h++)
      for (size_t i = task % share; i < tiles; i += share) forward_queries(&p, &f, y, lse, qkv, b, h, i * TILE);
  }
}

/* ---- Backward ---- */

/* A thread's memory: keys, values and their gradients of a head, [T,ld] each, and the tiles of a block of queries. */
typedef struct backward_tiles {
  float *k, *v, *dk, *dv;
  float *q, *dq, *dy; /* [TILE,ld] */
  float *qt, *dyt;    /* [D,TILE] */
  float *s, *ds;      /* [TILE,TILE]: key, query */
  float *keep;        /* [TILE,TILE]: the factors of dropout */
} backward_tiles;

static size_t backward_size(const problem *p)
{
  return 4 * p->T * p->ld + 3 * TILE * p->ld + 2 * TILE * p->D + 3 * TILE * TILE;
}

static backward_tiles backward_memory(const problem *p, float *m)
{
  size_t all = p->T * p->ld;
  backward_tiles w = {.k = m, .v = m + all, .dk = m + 2 * all, .dv = m + 3 * all, .q = m + 4 * all};
  w.dq = w.q + TILE * p->ld;
  w.dy = w.dq + TILE * p->ld;
  w.qt = w.dy + TILE * p->ld;
  w.dyt = w.qt + TILE * p->D;
  w.s = w.dyt + TILE * p->D;
  w.ds = w.s + TILE * TILE;
  w.keep = w.ds + TILE * TILE;
  return w;
}

/* s := p = exp(s - lse); ds := p (dp - delta) scale, dp being in ds. */
static void softmax_backward(float *restrict s, float *restrict ds, size_t rows, const float *restrict lse,
                             const float *restrict delta, float scale)
{
  for (size_t j = 0; j < rows; j++) {
#pragma omp simd
    for (size_t i = 0; i < TILE; i++) {
      s[j * TILE + i] = lm_exp(s[j * TILE + i] - lse[i]);
      ds[j * TILE + i] = s[j * TILE + i] * (ds[j * TILE + i] - delta[i]) * scale;
    }
  }
}

/* A tile of keys against the block of queries: adds to dq, dk and dv. */
static void backward_keys(const problem *p, const backward_tiles *w, size_t b, size_t h, size_t first, size_t j,
                          const float *row_lse, const float *delta)
{
  size_t ld = p->ld, D = p->D, keys = tile_rows(p, j), queries = tile_rows(p, first);
  const float *k = w->k + j * ld, *v = w->v + j * ld;
  operands o = {.c = w->s, .ldc = TILE, .a = k, .a_row = ld, .a_col = 1, .b = w->qt, .ldb = TILE, .depth = D};

  bool diagonal = j == first;

  o.part = diagonal ? COLUMNS_FROM_ROW : WHOLE;
  multiply(&o, keys, TILE); /* s = k q^T */
  o.c = w->ds, o.a = v, o.b = w->dyt;
  multiply(&o, keys, TILE); /* dp = v dy^T */
  mask(p, w->s, b, first, j);
  for (size_t i = 0; diagonal && i < keys; i++) memset(w->ds + i * TILE, 0, i * sizeof(float)); /* not computed */
  if (p->dropout != NULL) {
    drop(p, w->keep, b, h, first, j);
    scale_by(w->ds, w->keep, keys);
  }
  softmax_backward(w->s, w->ds, keys, row_lse, delta, p->scale);
  if (p->dropout != NULL) scale_by(w->s, w->keep, keys);
  o = (operands){.c = w->dv + j * ld,
                 .ldc = ld,
                 .a = w->s,
                 .a_row = TILE,
                 .a_col = 1,
                 .b = w->dy,
                 .ldb = ld,
                 .depth = queries,
                 .add = true,
                 .part = diagonal ? DEPTH_FROM_ROW : WHOLE};
  multiply(&o, keys, ld); /* dv += p dy */
  o.c = w->dk + j * ld, o.a = w->ds, o.b = w->q;
  multiply(&o, keys, ld); /* dk += ds q */
  o = (operands){
      .c = w->dq, .ldc = ld, .a = w->ds, .a_row = 1, .a_col = TILE, .b = k, .ldb = ld, .depth = keys, .add = true};
  o.part = diagonal ? DEPTH_TO_ROW : WHOLE;
  multiply(&o, queries, ld); /* dq += ds^T k */
}

static void backward_queries(const problem *p, const backward_tiles *w, void *dqkv, const char *dy, const char *y,
                             const float *lse, const char *qkv, size_t b, size_t h, size_t first)
{
  _Alignas(64) float row_lse[TILE] = {0}, delta[TILE] = {0};
  size_t D = p->D, ld = p->ld, queries = tile_rows(p, first), start = at(p, p->H * D, b, first, h);

  load(p->t, w->dy, ld, dy + start, p->H * D, queries, D);
  load(p->t, w->dq, ld, y + start, p->H * D, queries, D);
  for (size_t i = 0; i < queries;
       i++) { /* delta = sum_d dy y, the share of the normalisation in each score's gradient */
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t d = 0; d < ld; d++) sum += w->dy[i * ld + d] * w->dq[i * ld + d];
    delta[i] = sum;
    row_lse[i] = lse[(b * p->H + h) * p->T + first + i];
  }
  load(p->t, w->q, ld, qkv + at(p, p->row, b, first, h), p->row, queries, D);
  transpose(w->qt, w->q, ld, queries, D, p->scale);
  transpose(w->dyt, w->dy, ld, queries, D, 1);
  memset(w->dq, 0, TILE * ld * sizeof(float));
  for (size_t j = first_tile(p, b, first); j <= first; j += TILE) backward_keys(p, w, b, h, first, j, row_lse, delta);
  store(p->t, (char *)dqkv + at(p, p->row, b, first, h), p->row, w->dq, ld, queries, D);
}

void LM_LEVEL(lm_attention_bwd)(lm_dtype t, void *dqkv, const void *dy, const void *y, const float *lse,
                                const void *qkv, const lm_attention *a)
{
  const problem p = describe(t, a);
  size_t heads = (size_t)a->B * p.H_kv, n = backward_size(&p), group = p.H / p.H_kv;
  float *memory = lm_cpu_scratch(n * (size_t)omp_get_max_threads());

  /* One thread adds up a key's gradient, over its queries in their order. */
#pragma omp parallel for schedule(dynamic)
  for (size_t task = 0; task < heads; task++) {
    size_t b = task / p.H_kv, kv = task % p.H_kv;
    size_t k_at = at(&p, p.row, b, 0, p.H + kv), v_at = at(&p, p.row, b, 0, p.H + p.H_kv + kv);
    backward_tiles w = backward_memory(&p, memory + (size_t)omp_get_thread_num() * n);
    load(t, w.k, p.ld, (const char *)qkv + k_at, p.row, p.T, p.D);
    load(t, w.v, p.ld, (const char *)qkv + v_at, p.row, p.T, p.D);
    memset(w.dk, 0, 2 * p.T * p.ld * sizeof(float)); /* and dv, which follows */
    for (size_t h = kv * group; h < (kv + 1) * group; h++)
      for (size_t i = 0; i < p.T; i += TILE) backward_queries(&p, &w, dqkv, dy, y, lse, qkv, b, h, i);
    store(t, (char *)dqkv + k_at, p.row, w.dk, p.ld, p.T, p.D);
    store(t, (char *)dqkv + v_at, p.row, w.dv, p.ld, p.T, p.D);
  }
}
