/* kernels/cpu/scratch.h - memory for intermediate results of one operation, kept for the next. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_KERNELS_CPU_SCRATCH_H
#define LM_KERNELS_CPU_SCRATCH_H

#include <stddef.h>

/** At least n f32 numbers, aligned to 64 bytes, of any value: valid until the next call, which may be the next
 *  operation's. Grows only. Outside parallel regions. Local; ends the program where memory is short. */
float *lm_cpu_scratch(size_t n);

#endif
