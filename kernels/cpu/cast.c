/* kernels/cpu/cast.c - conversions between the types. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cpu/loop_files.h"
#include "kernels/cpu/vector.h"

enum { BLOCK = 1 << 14 };

LM_INLINE void convert(void *y, lm_dtype to, const void *x, lm_dtype from, size_t begin, size_t end)
{
#pragma omp simd
  for (size_t i = begin; i < end; i++) lm_store(to, y, i, lm_load(from, x, i));
}

void LM_LEVEL(lm_cast)(void *y, lm_dtype to, const void *x, lm_dtype from, size_t n)
{
#pragma omp parallel for schedule(static) if (n > 2 * BLOCK)
  for (size_t i = 0; i < n; i += BLOCK) {
    size_t end = n - i < BLOCK ? n : i + BLOCK, size = lm_dtype_size(to);
    if (to == from)
      memcpy((char *)y + i * size, (const char *)x + i * size, (end - i) * size);
    else if (from == LM_F32)
      LM_FOR_TYPE(to, convert(y, LM_TYPE, x, LM_F32, i, end));
    else if (from == LM_BF16)
      LM_FOR_TYPE(to, convert(y, LM_TYPE, x, LM_BF16, i, end));
    else
      LM_FOR_TYPE(to, convert(y, LM_TYPE, x, LM_F16, i, end));
  }
}
