/* kernels/cpu/loops.h - the loops of the CPU backend, as each level of the instruction set exports them. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_KERNELS_CPU_LOOPS_H
#define LM_KERNELS_CPU_LOOPS_H

#include "kernels/kernels.h"

/** One level's loops. */
typedef struct lm_cpu_loops {
  lm_kernels table; /* the operations that are loops; the products (linear_*) stay NULL here */

  /** sum[c] += sum_r x[r,c], in an order that only rows and C decide. x [rows,C] in t, sum [C]. */
  void (*column_sums)(lm_dtype t, float *sum, const void *x, size_t rows, int C);
} lm_cpu_loops;

#if LM_X86_LEVELS
extern const lm_cpu_loops lm_cpu_loops_v1, lm_cpu_loops_v3, lm_cpu_loops_v4; /* x86-64, x86-64-v3, x86-64-v4 */
#else
extern const lm_cpu_loops lm_cpu_loops_portable;
#endif

#endif
