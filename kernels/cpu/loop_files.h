/* kernels/cpu/loop_files.h - what each file of loops gives to its level's table, loops.c. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_KERNELS_CPU_LOOP_FILES_H
#define LM_KERNELS_CPU_LOOP_FILES_H

#include "kernels/cpu/level.h"
#include "kernels/kernels.h"

/* column_sums.c */
void LM_LEVEL(lm_column_sums)(lm_dtype t, float *sum, const void *x, size_t rows, int C);

/* widen.c */
void LM_LEVEL(lm_widen)(float *y, const lm_bf16 *x, size_t x_row, size_t rows, size_t n);
void LM_LEVEL(lm_narrow)(lm_bf16 *y, size_t y_row, const float *x, const lm_bf16 *bias, size_t rows, size_t n);

#endif
