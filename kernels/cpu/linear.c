/* kernels/cpu/linear.c - the products of a linear layer: tiles that do not depend on who computes them. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cpu/linear.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/scratch.h"
#include <omp.h>

/* A product over all elements of the result, [m,n]. The result is cut into tiles, each computed by one thread with sums
 * over all of k, in oneDNN's order for one thread. Left to itself, oneDNN would split k over its threads, and the bits
 * would depend on their number. Measured on 2 cores, the tiles cost nothing (benchmarks/matmul.c). */
typedef struct product {
  lm_product_shape shape; /* m, n and k: of the whole */
  const char *a, *b, *bias;
  char *c;
} product;

typedef struct tiling {
  int64_t m, n, rows, cols; /* size of a tile, and how many */
} tiling;

static int64_t ceil_div(int64_t a, int64_t b)
{
  return (a + b - 1) / b;
}

static int64_t least(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

static tiling cut(const lm_product_shape *s)
{
  /* Large tiles read less; a small result is cut finer, so that there is work for several threads. Where a tile is as
   * wide as the result, oneDNN has a faster kernel, but for f32 with neither matrix transposed it is the slower one. */
  static const struct {
    int64_t m, n;
  } sizes[] = {{256, 768}, {256, 384}, {256, 192}, {128, 192}};
  const size_t first = s->type == LM_F32 && s->a_col == 1 && s->b_col == 1 ? 1 : 0;
  tiling t = {0};
  for (size_t i = first; i < sizeof sizes / sizeof *sizes && t.rows * t.cols < 4; i++) {
    t = (tiling){.m = least(sizes[i].m, s->m), .n = least(sizes[i].n, s->n)};
    t.rows = ceil_div(s->m, t.m);
    t.cols = ceil_div(s->n, t.n);
  }
  return t;
}

/* Where a tile lies: tiles go down the rows first, so that neighbours share b, the weights. */
typedef struct place {
  int64_t i, j, m, n; /* first row and column, size */
  bool last_row, last_col;
} place;

static place place_of(const lm_product_shape *s, const tiling *t, int64_t tile)
{
  place p = {.i = tile % t->rows * t->m, .j = tile / t->rows * t->n};
  p.m = least(t->m, s->m - p.i);
  p.n = least(t->n, s->n - p.j);
  p.last_row = p.i + t->m >= s->m;
  p.last_col = p.j + t->n >= s->n;
  return p;
}

static void multiply(const product *whole)
{
  const lm_product_shape *s = &whole->shape;
  const tiling t = cut(s);
  const int64_t size = (int64_t)lm_dtype_size((lm_dtype)s->type), to_size = (int64_t)lm_dtype_size((lm_dtype)s->to);
  lm_product *products[2][2]; /* [last row][last column] */

  lm_products_begin();
  for (int r = 0; r < 2; r++)
    for (int c = 0; c < 2; c++) {
      lm_product_shape tile = *s;
      tile.m = r ? s->m - (t.rows - 1) * t.m : t.m;
      tile.n = c ? s->n - (t.cols - 1) * t.n : t.n;
      products[r][c] = lm_product_get(&tile);
    }
#pragma omp parallel
  {
    omp_set_num_threads(1);
#pragma omp for schedule(dynamic)
    for (int64_t tile = 0; tile < t.rows * t.cols; tile++) {
      place p = place_of(s, &t, tile);
      lm_product_run(products[p.last_row][p.last_col], omp_get_thread_num(), whole->a + p.i * s->a_row * size,
                     whole->b + p.j * s->b_col * size, s->bias ? whole->bias + p.j * size : NULL,
                     whole->c + (p.i * s->c_row + p.j) * to_size);
    }
  }
}

/* Where the CPU has no products of the type, which no CPU here has for f16: the same tiles, their inputs widened to f32
 * a block of k at a time. */
enum { WIDE_K = 1024 };

typedef struct wide {
  const product *whole;
  tiling t;
  lm_product *products[2][2][2][2]; /* [last row][last column][last block of k][add to the result] */
  float *scratch;                   /* [threads][scratch_size] */
  size_t scratch_size;
} wide;

static lm_product_shape wide_shape(const lm_product_shape *s, int64_t m, int64_t n, int64_t k, bool add)
{
  bool a_by_rows = s->a_col == 1, b_by_rows = s->b_col == 1;
  return (lm_product_shape){.type = LM_F32,
                            .to = LM_F32,
                            .add = add,
                            .m = m,
                            .n = n,
                            .k = k,
                            .a_row = a_by_rows ? k : 1,
                            .a_col = a_by_rows ? 1 : m,
                            .b_row = b_by_rows ? n : 1,
                            .b_col = b_by_rows ? 1 : k,
                            .c_row = s->to == LM_F32 ? s->c_row : n};
}

/* [rows,cols] at (i,j) of a 16-bit matrix with any strides of which one is 1 -> f32, without gaps, in the same order.
 */
static void widen(lm_dtype t, float *y, const char *x, int64_t i, int64_t j, int64_t rows, int64_t cols, int64_t row,
                  int64_t col)
{
  const uint16_t *from = (const uint16_t *)(const void *)x + i * row + j * col;
  if (col == 1)
    lm_cpu_level()->widen(t, y, from, (size_t)row, (size_t)rows, (size_t)cols);
  else
    lm_cpu_level()->widen(t, y, from, (size_t)col, (size_t)cols, (size_t)rows);
}

static void wide_tile(const wide *w, int64_t tile, int thread)
{
  const lm_product_shape *s = &w->whole->shape;
  const place p = place_of(s, &w->t, tile);
  float *a = w->scratch + (size_t)thread * w->scratch_size, *b = a + w->t.m * WIDE_K, *c = b + w->t.n * WIDE_K;
  float *result = s->to == LM_F32 ? (float *)(void *)w->whole->c + p.i * s->c_row + p.j : c;

  for (int64_t k = 0; k < s->k; k += WIDE_K) {
    int64_t n = least(WIDE_K, s->k - k);
    bool add = s->add || k > 0;
    widen((lm_dtype)s->type, a, w->whole->a, p.i, k, p.m, n, s->a_row, s->a_col);
    widen((lm_dtype)s->type, b, w->whole->b, k, p.j, n, p.n, s->b_row, s->b_col);
    lm_product_run(w->products[p.last_row][p.last_col][k + WIDE_K >= s->k][add], thread, a, b, NULL, result);
  }
  if (s->to != LM_F32)
    lm_cpu_level()->narrow((lm_dtype)s->type, (uint16_t *)(void *)w->whole->c + p.i * s->c_row + p.j, (size_t)s->c_row,
                           c, s->bias ? (const uint16_t *)(const void *)w->whole->bias + p.j : NULL, (size_t)p.m,
                           (size_t)p.n);
}

static void multiply_wide(const product *whole)
{
  const lm_product_shape *s = &whole->shape;
  wide w = {.whole = whole, .t = cut(s)};

  lm_products_begin();
  for (int i = 0; i < 16; i++) {
    bool last_row = i & 8, last_col = i & 4, last_k = i & 2, add = i & 1;
    int64_t blocks = ceil_div(s->k, WIDE_K);
    lm_product_shape shape = wide_shape(s, last_row ? s->m - (w.t.rows - 1) * w.t.m : w.t.m,
                                        last_col ? s->n - (w.t.cols - 1) * w.t.n : w.t.n,
                                        last_k ? s->k - (blocks - 1) * WIDE_K : least(WIDE_K, s->k), add);
    w.products[last_row][last_col][last_k][add] = lm_product_get(&shape);
  }
  w.scratch_size = (size_t)((w.t.m + w.t.n) * WIDE_K + w.t.m * w.t.n);
  w.scratch = lm_cpu_scratch(w.scratch_size * (size_t)omp_get_max_threads());
#pragma omp parallel
  {
    omp_set_num_threads(1);
#pragma omp for schedule(dynamic)
    for (int64_t tile = 0; tile < w.t.rows * w.t.cols; tile++) wide_tile(&w, tile, omp_get_thread_num());
  }
}

static void compute(const product *p)
{
  if (p->shape.type == LM_F16 || (p->shape.type == LM_BF16 && !lm_cpu_bf16_is_fast()))
    multiply_wide(p);
  else
    multiply(p);
}

void lm_linear_fwd_cpu(lm_dtype t, void *y, const void *x, const void *w, const void *bias, size_t M, int N, int K)
{
  if (M == 0) return;
  if (M <= LM_FEW_ROWS) {
    lm_cpu_level()->few_rows(t, y, x, w, bias, M, (size_t)N, (size_t)K);
    return;
  }
  compute(&(product){.shape = {.type = t,
                               .to = t,
                               .bias = bias != NULL,
                               .m = (int64_t)M,
                               .n = N,
                               .k = K,
                               .a_row = K,
                               .a_col = 1,
                               .b_row = 1,
                               .b_col = K,
                               .c_row = N}, /* b [K,N] is w^T */
                     .a = x,
                     .b = w,
                     .bias = bias,
                     .c = y});
}

void lm_linear_bwd_input_cpu(lm_dtype t, void *dx, const void *dy, const void *w, size_t M, int N, int K)
{
  if (M == 0) return;
  compute(&(product){.shape = {.type = t,
                               .to = t,
                               .m = (int64_t)M,
                               .n = K,
                               .k = N,
                               .a_row = N,
                               .a_col = 1,
                               .b_row = K,
                               .b_col = 1,
                               .c_row = K},
                     .a = dy,
                     .b = w,
                     .c = dx});
}

void lm_linear_bwd_weight_cpu(lm_dtype t, bool add, float *dw, float *dbias, const void *dy, const void *x, size_t M,
                              int N, int K)
{
  if (!add && dbias != NULL) memset(dbias, 0, (size_t)N * sizeof *dbias);
  if (!add && M == 0) memset(dw, 0, (size_t)N * (size_t)K * sizeof *dw);
  if (M == 0) return;
  compute(&(product){.shape = {.type = t,
                               .to = LM_F32,
                               .add = add,
                               .m = N,
                               .n = K,
                               .k = (int64_t)M,
                               .a_row = 1,
                               .a_col = N,
                               .b_row = K,
                               .b_col = 1,
                               .c_row = K}, /* a [N,M] is dy^T */
                     .a = dy,
                     .b = x,
                     .c = (char *)dw});
  if (dbias != NULL) lm_cpu_level()->column_sums(t, dbias, dy, M, N);
}
