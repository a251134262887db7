/* benchmarks/operand.h - a backend's operations, and tensors for them. */
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

static inline const lm_kernels *operand_kernels(lm_backend backend)
{
  const lm_kernels *k;
  lm_error err;
  operand_check(lm_kernels_select(&k, backend, &err), &err);
  return k;
}

/* n elements of both signs, none of them rare. Free with k->release(). */
static inline void *operand(const lm_kernels *k, lm_dtype t, size_t n)
{
  enum { SOME = 1 << 18 }; /* a multiple of 2048, after which they come again */
  static float values[SOME];
  static lm_bf16 halves[SOME];
  const size_t size = lm_dtype_size(t), bytes = n * size, chunk = SOME * size;
  char *p;
  lm_error err;
  operand_check(k->alloc((void **)&p, bytes, "a tensor of the benchmark", &err), &err);
  for (size_t i = 0; i < SOME; i++) {
    values[i] = (float)((i * 2654435761U) % 2048) / 1024 - 1;
    halves[i] = lm_bf16_from_f32(values[i]);
  }
  for (size_t done = 0; done < bytes; done += chunk)
    k->to_device(p + done, t == LM_F32 ? (const void *)values : halves, bytes - done < chunk ? bytes - done : chunk);
  return p;
}

#endif
