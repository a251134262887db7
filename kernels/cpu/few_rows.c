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

/* The sum of the lanes, half and half. */
LM_INLINE float total(vec v)
{
  float lane[LM_LANES];
  memcpy(lane, &v, sizeof v);
#if LM_LANES >= 16
#pragma omp simd
  for (int l = 0; l < 8; l++) lane[l] += lane[l + 8];
#endif
#if LM_LANES >= 8
#pragma omp simd
  for (int l = 0; l < 4; l++) lane[l] += lane[l + 4];
#endif
  return (lane[0] + lane[2]) + (lane[1] + lane[3]);
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
  for (size_t r = 0; r < rows; r++)
    for (size_t c = 0; c < outs; c++) {
      vec parts = sum[r][c][0];
      for (size_t p = 1; p < PARTS; p++) parts += sum[r][c][p];
      float y = total(parts);
      for (size_t k = whole; k < K; k++) y += x[r * K + k] * lm_load(t, o->w, (n + c) * K + k);
      if (o->bias != NULL) y += lm_load(t, o->bias, n + c);
      lm_store(t, o->y, (m + r) * o->N + n + c, y);
    }
}

/* Outputs [n, n + outs) of all rows: these weights come from memory once. */
LM_INLINE void strip(lm_dtype t, const operands *o, size_t M, size_t n, size_t outs)
{
  size_t m = 0;
  for (; m + ROWS <= M; m += ROWS) block(t, o, m, n, ROWS, outs);
  for (; m < M; m++) block(t, o, m, n, 1, outs);
}

LM_INLINE void strips(lm_dtype t, const operands *o, size_t M, size_t n, size_t end)
{
  for (; n + OUTPUTS <= end; n += OUTPUTS) strip(t, o, M, n, OUTPUTS);
  for (; n < end; n++) strip(t, o, M, n, 1);
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
    LM_FOR_TYPE(t, strips(LM_TYPE, &o, M, n, end));
  }
}
