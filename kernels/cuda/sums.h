/* kernels/cuda/sums.h - sums over rows, for operations that make gradients of weights. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_KERNELS_CUDA_SUMS_H
#define LM_KERNELS_CUDA_SUMS_H

#include "kernels/cuda/device.h"

/** out[i] = sum_p partial[p * stride + i], with add +=; i < n, p < parts. Queued, in an order that depends on parts
 *  only. Local. */
void lm_cuda_sum_partials(const char *what, bool add, float *out, const float *partial, int parts, size_t n,
                          size_t stride);

/** out[c] = sum_r x[r,c], with add +=; x [rows,C] in t, rows > 0. Queued; uses lm_cuda_scratch(). Local. */
void lm_cuda_sum_columns(const char *what, lm_dtype t, bool add, float *out, const void *x, size_t rows, int C);

#endif
