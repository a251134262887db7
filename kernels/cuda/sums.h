/* kernels/cuda/sums.h - sums over rows, for operations that make gradients of weights. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_KERNELS_CUDA_SUMS_H
#define LM_KERNELS_CUDA_SUMS_H

#include "kernels/cuda/device.h"

/** out[i] += sum_p partial[p * stride + i], i < n, p < parts: queued, in an order that depends on parts only. Local. */
void lm_cuda_add_partials(const char *what, float *out, const float *partial, int parts, size_t n, size_t stride);

/** out[c] += sum_r x[r,c], x [rows,C] in t. Queued; uses lm_cuda_scratch(). Local. */
void lm_cuda_add_columns(const char *what, lm_dtype t, float *out, const void *x, size_t rows, int C);

#endif
