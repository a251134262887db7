/* kernels/cpu/level.h - what the loops know about the level of the instruction set they are compiled for. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_KERNELS_CPU_LEVEL_H
#define LM_KERNELS_CPU_LEVEL_H

/* Every .c file of the loops is compiled once a level, with -DLM_LEVEL_SUFFIX=_v4 and the like. What a file shares with
 * others carries the suffix: LM_LEVEL(lm_gelu_fwd) is lm_gelu_fwd_v4. All else is static, so that no level can call
 * into another. Such files include no header with functions that are not static inline. */
#define LM_LEVEL_PASTE(name, suffix)  name##suffix
#define LM_LEVEL_EXPAND(name, suffix) LM_LEVEL_PASTE(name, suffix)
#define LM_LEVEL(name)                LM_LEVEL_EXPAND(name, LM_LEVEL_SUFFIX)

/* f32 numbers in a vector register. */
#if defined __AVX512F__
#define LM_LANES 16
#elif defined __AVX__
#define LM_LANES 8
#else
#define LM_LANES 4
#endif

#endif
