/* kernels/cpu/norm.h - what LayerNorm and RMSNorm share. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_KERNELS_CPU_NORM_H
#define LM_KERNELS_CPU_NORM_H

#include "kernels/cpu/vector.h"

enum {
  SMALL = 1 << 14, /* elements that do not pay for a second thread */
  ROWS = 128,      /* of a block of the backward, which stays in cache while its sums are made */
  COLUMNS = 64,    /* of a thread's piece of the sums; in bf16 two cache lines */
};

/* The residual's sum, of the row that begins at element `at`. */
LM_INLINE void add_branch(lm_dtype t, void *sum, const void *x, const void *branch, size_t at, size_t C)
{
#pragma omp simd
  for (size_t i = at; i < at + C; i++) lm_store(t, sum, i, lm_load(t, x, i) + lm_load(t, branch, i));
}

#endif
