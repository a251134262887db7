/* kernels/cpu/loop_files.h - what each file of loops gives to its level's table, loops.c. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_KERNELS_CPU_LOOP_FILES_H
#define LM_KERNELS_CPU_LOOP_FILES_H

#include "kernels/cpu/level.h"
#include "kernels/kernels.h"

/* column_sums.c */
void LM_LEVEL(lm_column_sums)(lm_dtype t, float *sum, const void *x, size_t rows, int C);

#endif
