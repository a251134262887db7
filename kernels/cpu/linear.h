/* kernels/cpu/linear.h - the products of a linear layer: as in kernels.h. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_KERNELS_CPU_LINEAR_H
#define LM_KERNELS_CPU_LINEAR_H

#include "kernels/kernels.h"

void lm_linear_fwd_cpu(lm_dtype t, void *y, const void *x, const void *w, const void *bias, size_t M, int N, int K);
void lm_linear_bwd_input_cpu(lm_dtype t, void *dx, const void *dy, const void *w, size_t M, int N, int K);
void lm_linear_bwd_weight_cpu(lm_dtype t, bool add, float *dw, float *dbias, const void *dy, const void *x, size_t M,
                              int N, int K);

#endif
