/* benchmarks/operand.h - the CPU's operations, and tensors for them. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_BENCHMARKS_OPERAND_H
#define LM_BENCHMARKS_OPERAND_H

#include "kernels/kernels.h"
#include <stdio.h>
#include <stdlib.h>

static inline void operand_check(lm_status s, const lm_error *err)
{
  if (s == LM_OK) return;
  fprintf(stderr, "%s\n", err->text);
  exit(1);
}

static inline const lm_kernels *operand_kernels(void)
{
  const lm_kernels *k;
  lm_error err;
  operand_check(lm_kernels_select(&k, LM_BACKEND_CPU, &err), &err);
  return k;
}

/* n elements of both signs, none of them rare. Free with k->release(). */
static inline void *operand(const lm_kernels *k, lm_dtype t, size_t n)
{
  void *p;
  lm_error err;
  operand_check(k->alloc(&p, n * lm_dtype_size(t), "a tensor of the benchmark", &err), &err);
  for (size_t i = 0; i < n; i++) {
    float x = (float)((i * 2654435761U) % 2048) / 1024 - 1;
    if (t == LM_F32)
      ((float *)p)[i] = x;
    else
      ((lm_bf16 *)p)[i] = lm_bf16_from_f32(x);
  }
  return p;
}

#endif
