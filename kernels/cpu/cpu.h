/* kernels/cpu/cpu.h - the CPU backend: oneDNN for the products, loops compiled for this machine for the rest. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_KERNELS_CPU_CPU_H
#define LM_KERNELS_CPU_CPU_H

#include "kernels/cpu/loops.h"

/** The CPU backend's table with the loops of this machine's highest level, or of the lower one that the environment
 *  variable MPILM_ISA names. Local. LM_EINVAL where MPILM_ISA names no level of this machine. */
lm_status lm_cpu_start(const lm_kernels **out, lm_error *err) LM_NODISCARD;

/** The level chosen by lm_cpu_start(). Local. */
const lm_cpu_loops *lm_cpu_level(void);

#endif
