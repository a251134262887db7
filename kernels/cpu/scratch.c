/* kernels/cpu/scratch.c - memory for intermediate results of one operation, kept for the next. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cpu/scratch.h"

#include "base/status.h"
#include <stdlib.h>

float *lm_cpu_scratch(size_t n)
{
  static void *memory;
  static size_t size;
  if (n > size) {
    free(memory);
    LM_ASSERT(posix_memalign(&memory, 64, n * sizeof(float)) == 0);
    size = n;
  }
  return memory;
}
