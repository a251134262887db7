/* kernels/cpu/loops.c - one level's table of loops. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "kernels/cpu/loop_files.h"
#include "kernels/cpu/loops.h"

const lm_cpu_loops LM_LEVEL(lm_cpu_loops) = {
    .table = {.isa = LM_LEVEL_NAME},
    .column_sums = LM_LEVEL(lm_column_sums),
    .widen = LM_LEVEL(lm_widen),
    .narrow = LM_LEVEL(lm_narrow),
};
