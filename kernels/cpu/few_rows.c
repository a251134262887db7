/* kernels/cpu/few_rows.c - products of few rows with all weights of a layer: limited by reading the weights. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cpu/loop_files.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/vector.h"

/* y[m,n] is summed in LM_LANES parts along k, each in its order, whatever M, the blocks and the threads are. */

typedef float vec __attribute__((vector_size(4 * LM_LANES)));
typedef uint32_t words __attribute__((vector_size(4 * LM_LANES)));
typedef uint16_t halves __attribute__((vector_size(2 * LM_LANES)));

LM_INLINE vec load(lm_dtype t, const void *p, size_t i)
{
  vec v;
  if (t == LM_F32) {
    memcpy(&v, (const float *)p + i, sizeof v);
  } else if (t == LM_BF16) {
    halves h;
    memcpy(&h, (const uint16_t *)p + i, sizeof h);
    words w = __builtin_convertvector(h, words) << 16;
    memcpy(&v, &w, sizeof v);
  } else {
    float lane[LM_LANES];
#pragma omp simd
    for (size_t l = 0; l < LM_LANES; l++) lane[l] = lm_load(t, p, i + l);
    memcpy(&v, lane, sizeof v);
  }
  return v;
}

typedef float quad __attribute__((vector_size(16)));

/* Lanes l, l + 4, l + 8, l + 12 added up, half and half: 4 sums. */
LM_INLINE quad fold(vec v)
{
#if LM_LANES >= 8
  quad part[LM_LANES / 4];
  memcpy(part, &v, sizeof v);
#if LM_LANES >= 16
  part[0] += part[2];
  part[1] += part[3];
#endif
  return part[0] + part[1];
#else
  return v;
#endif
}

/* The sum of the lanes of each of four, half and half. */
LM_INLINE quad totals(const vec *v)
{
  quad a = fold(v[0]), b = fold(v[1]), c = fold(v[2]), d = fold(v[3]);
  quad ab = __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
  quad cd = __builtin_shufflevector(c, d, 0, 1, 4, 5) + __builtin_shufflevector(c, d, 2, 3, 6, 7);
  return __builtin_shufflevector(ab, cd, 0, 2, 4, 6) + __builtin_shufflevector(ab, cd, 1, 3, 5, 7);
}

#if defined __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 4")
#endif

/* The registers of a block hold PARTS sums for each of ROWS rows and OUTPUTS outputs. */
enum { ROWS = 2, OUTPUTS = 4, PARTS = 2 };

typedef struct operands {
  void *y;
  const float *x; /* [M,K] */
  const void *w, *bias;
  size_t N, K;
} operands;

/* What vectors leave of a sum, and the bias. */
LM_INLINE void finish(lm_dtype t, const operands *o, size_t m, size_t n, size_t k, float sum)
{
  for (; k < o->K; k++) sum += o->x[m * o->K + k] * lm_load(t, o->w, n * o->K + k);
  if (o->bias != NULL) sum += lm_load(t, o->bias, n);
  lm_store(t, o->y, m * o->N + n, sum);
}

/* y of `rows` rows from m on and `outs` outputs from n on. */
LM_INLINE void block(lm_dtype t, const operands *o, size_t m, size_t n, size_t rows, size_t outs)
{
  enum { STEP = PARTS * LM_LANES };
  vec sum[ROWS][OUTPUTS][PARTS];
  size_t K = o->K, whole = K / STEP * STEP, size = lm_dtype_size(t);
  const float *x = o->x + m * K;
  UNROLL
  for (size_t r = 0; r < rows; r++) {
    UNROLL
    for (size_t c = 0; c < outs; c++) {
      UNROLL
      for (size_t p = 0; p < PARTS; p++) sum[r][c][p] = (vec){0};
    }
  }
  for (size_t k = 0; k < whole; k += STEP) {
    UNROLL
    for (size_t p = 0; p < PARTS; p++) {
      vec a[ROWS];
      size_t at = k + p * LM_LANES;
      UNROLL
      for (size_t r = 0; r < rows; r++) memcpy(&a[r], x + r * K + at, sizeof *a);
      UNROLL
      for (size_t c = 0; c < outs; c++) {
        /* The rows that come next: the processor takes so short ones for unrelated. */
        if (p == 0 || size == 4) __builtin_prefetch((const char *)o->w + ((n + outs + c) * K + at) * size);
        vec w = load(t, o->w, (n + c) * K + at);
        UNROLL
        for (size_t r = 0; r < rows; r++) sum[r][c][p] += a[r] * w;
      }
    }
  }
  UNROLL
  for (size_t r = 0; r < rows; r++) {
    vec whole_sum[OUTPUTS] = {0};
    UNROLL
    for (size_t c = 0; c < outs; c++) whole_sum[c] = sum[r][c][0] + sum[r][c][1];
    quad y = totals(whole_sum);
    for (size_t c = 0; c < outs; c++) finish(t, o, m + r, n + c, whole, y[c]);
  }
}

/* The same of four rows, one part of the sums after the other: a vector of weights is converted for four products. */
LM_INLINE void block4(lm_dtype t, const operands *o, size_t m, size_t n)
{
  enum { STEP = PARTS * LM_LANES };
  vec sum[PARTS][4][OUTPUTS];
  size_t K = o->K, whole = K / STEP * STEP;
  const float *x = o->x + m * K;
  for (size_t p = 0; p < PARTS; p++) {
    vec part[4][OUTPUTS];
    UNROLL
    for (size_t r = 0; r < 4; r++) {
      UNROLL
      for (size_t c = 0; c < OUTPUTS; c++) part[r][c] = (vec){0};
    }
    for (size_t at = p * LM_LANES; at < whole; at += STEP) {
      vec w[OUTPUTS];
      UNROLL
      for (size_t c = 0; c < OUTPUTS; c++) w[c] = load(t, o->w, (n + c) * K + at);
      UNROLL
      for (size_t r = 0; r < 4; r++) {
        vec a;
        memcpy(&a, x + r * K + at, sizeof a);
        UNROLL
        for (size_t c = 0; c < OUTPUTS; c++) part[r][c] += a * w[c];
      }
      if (m == 0) {
        size_t size = lm_dtype_size(t);
        UNROLL
        for (size_t c = 0; c < OUTPUTS; c++)
          if (p == 0 || size == 4) __builtin_prefetch((const char *)o->w + ((n + OUTPUTS + c) * K + at) * size);
      }
    }
    memcpy(sum[p], part, sizeof part);
  }
  for (size_t r = 0; r < 4; r++) {
    vec whole_sum[OUTPUTS];
    UNROLL
    for (size_t c = 0; c < OUTPUTS; c++) whole_sum[c] = sum[0][r][c] + sum[1][r][c];
    quad y = totals(whole_sum);
    for (size_t c = 0; c < OUTPUTS; c++) finish(t, o, m + r, n + c, whole, y[c]);
  }
}

/* Outputs [n, n + outs) of rows [m, end). */
LM_INLINE void strip(lm_dtype t, const operands *o, size_t m, size_t end, size_t n, size_t outs)
{
  if (t != LM_F32 && outs == OUTPUTS)
    for (; m + 4 <= end; m += 4) block4(t, o, m, n);
  for (; m + ROWS <= end; m += ROWS) block(t, o, m, n, ROWS, outs);
  for (; m < end; m++) block(t, o, m, n, 1, outs);
}

/* Outputs [n, end) of all rows: these weights come from memory once. More rows than the first cache holds go by groups,
 * with the weights in the second. */
LM_INLINE void share(lm_dtype t, const operands *o, size_t M, size_t n, size_t end)
{
  enum { GROUP = 8 };
  for (size_t m = 0; m < M; m += GROUP) {
    size_t last = M - m < GROUP ? M : m + GROUP, i = n;
    for (; i + OUTPUTS <= end; i += OUTPUTS) strip(t, o, m, last, i, OUTPUTS);
    for (; i < end; i++) strip(t, o, m, last, i, 1);
  }
}

void LM_LEVEL(lm_few_rows)(lm_dtype t, void *y, const void *x, const void *w, const void *bias, size_t M, size_t N,
                           size_t K)
{
  enum { SHARE = 64, SMALL = 1 << 15 /* products that do not pay for a second thread */ };
  operands o = {.y = y, .x = x, .w = w, .bias = bias, .N = N, .K = K};
  if (t != LM_F32) {
    float *wide = lm_cpu_scratch(M * K);
    LM_LEVEL(lm_widen)(t, wide, x, K, M, K);
    o.x = wide;
  }
#pragma omp parallel for schedule(static) if (M * N * K > SMALL)
  for (size_t n = 0; n < N; n += SHARE) {
    size_t end = N - n < SHARE ? N : n + SHARE;
    LM_FOR_TYPE(t, share(LM_TYPE, &o, M, n, end));
  }
}
