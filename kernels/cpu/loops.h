/* kernels/cpu/loops.h - the loops of the CPU backend, as each level of the instruction set exports them. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_KERNELS_CPU_LOOPS_H
#define LM_KERNELS_CPU_LOOPS_H

#include "config.h"
#include "kernels/kernels.h"

/** One level's loops. */
typedef struct lm_cpu_loops {
  lm_kernels table; /* the operations that are loops; the products (linear_*) stay NULL here */

  /** sum[c] += sum_r x[r,c], in an order that only rows and C decide. x [rows,C] in t, sum [C]. */
  void (*column_sums)(lm_dtype t, float *sum, const void *x, size_t rows, int C);

  /** y [rows,n] without gaps = x [rows,n] in t, 16 bits, with rows x_row elements apart. On the calling thread alone.
   */
  void (*widen)(lm_dtype t, float *y, const uint16_t *x, size_t x_row, size_t rows, size_t n);
  /** y [rows,n] with rows y_row elements apart = x [rows,n] without gaps + bias [n] or NULL. On the calling thread. */
  void (*narrow)(lm_dtype t, uint16_t *y, size_t y_row, const float *x, const uint16_t *bias, size_t rows, size_t n);

  /** linear_fwd where M <= LM_FEW_ROWS: it reads the weights once, which is what takes the time. */
  void (*few_rows)(lm_dtype t, void *y, const void *x, const void *w, const void *bias, size_t M, size_t N, size_t K);
} lm_cpu_loops;

#if LM_X86_LEVELS
extern const lm_cpu_loops lm_cpu_loops_v1, lm_cpu_loops_v3, lm_cpu_loops_v4; /* x86-64, x86-64-v3, x86-64-v4 */
#else
extern const lm_cpu_loops lm_cpu_loops_portable;
#endif

#endif
