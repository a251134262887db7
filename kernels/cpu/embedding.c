/* kernels/cpu/embedding.c - token and position embedding. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cpu/loop_files.h"
#include "kernels/cpu/vector.h"

#include <omp.h>

enum { SMALL = 1 << 15 /* elements that do not pay for a second thread */ };

LM_INLINE void forward_row(lm_dtype t, void *y, size_t at, const void *wte, size_t id, const void *wpe, size_t pos,
                           size_t C)
{
  if (wpe != NULL) {
#pragma omp simd
    for (size_t c = 0; c < C; c++)
      lm_store(t, y, at * C + c, lm_load(t, wte, id * C + c) + lm_load(t, wpe, pos * C + c));
  } else {
#pragma omp simd
    for (size_t c = 0; c < C; c++) lm_store(t, y, at * C + c, lm_load(t, wte, id * C + c));
  }
}

void LM_LEVEL(lm_embedding_fwd)(lm_dtype t, void *y, const int32_t *token, const void *wte, const void *wpe, int B,
                                int T, int C)
{
  size_t n = (size_t)B * (size_t)T;
#pragma omp parallel for schedule(static) if (n * (size_t)C > SMALL)
  for (size_t i = 0; i < n; i++) { /* i is (b,t) */
    LM_FOR_TYPE(t, forward_row(LM_TYPE, y, i, wte, (size_t)token[i], wpe, i % (size_t)T, (size_t)C));
  }
}

LM_INLINE void add_row(lm_dtype t, float *dw, const void *dy, size_t at, size_t n)
{
#pragma omp simd
  for (size_t c = 0; c < n; c++) dw[c] += lm_load(t, dy, at + c);
}

/* Columns [c, c + n): each element of a gradient is summed in the order of (b,t), whoever does it. */
LM_INLINE void backward_columns(lm_dtype t, float *dwte, float *dwpe, const void *dy, const int32_t *token, size_t B,
                                size_t T, size_t C, size_t c, size_t n)
{
  for (size_t i = 0; i < B * T; i++) {
    add_row(t, dwte + (size_t)token[i] * C + c, dy, i * C + c, n);
    if (dwpe != NULL) add_row(t, dwpe + i % T * C + c, dy, i * C + c, n);
  }
}

void LM_LEVEL(lm_embedding_bwd)(lm_dtype t, float *dwte, float *dwpe, const void *dy, const int32_t *token, int B,
                                int T, int C)
{
  enum { LINE = 16 }; /* f32 in a cache line: no two threads write to one */
  size_t B_ = (size_t)B, T_ = (size_t)T, C_ = (size_t)C, lines = (C_ + LINE - 1) / LINE;
#pragma omp parallel if (B_ * T_ * C_ > SMALL)
  {
    size_t me = (size_t)omp_get_thread_num(), threads = (size_t)omp_get_num_threads();
    size_t c = lines * me / threads * LINE, end = lines * (me + 1) / threads * LINE;
    size_t n = (end < C_ ? end : C_) - c;
    LM_FOR_TYPE(t, backward_columns(LM_TYPE, dwte, dwpe, dy, token, B_, T_, C_, c, n));
  }
}
