/* kernels/cpu/scratch.c - memory for intermediate results of one operation, kept for the next. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cpu/scratch.h"

#include "base/memory.h"
#include <stdlib.h>

float *lm_cpu_scratch(size_t n)
{
  static void *memory;
  static size_t size;
  if (n > size) {
    free(memory);
    memory = lm_reserve(n * sizeof(float));
    LM_ASSERT(memory != NULL);
    size = n;
  }
  return memory;
}
