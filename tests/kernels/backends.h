/* tests/kernels/backends.h - the backends that this machine can run, one after another. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TESTS_KERNELS_BACKENDS_H
#define LM_TESTS_KERNELS_BACKENDS_H

#include "kernels/kernels.h"
#include <stdio.h>
#include <stdlib.h>

/* Where the environment asks for the CUDA backend, it alone; test programs whose tensors are all made by k->alloc(). */
static inline bool only_cuda(void)
{
  const char *wanted = getenv("MPILM_TEST_BACKEND");
  return wanted != NULL && strcmp(wanted, "cuda") == 0;
}

static inline const lm_kernels *cuda_backend(void)
{
  const lm_kernels *k;
  lm_error err;
  if (lm_kernels_select(&k, LM_BACKEND_CUDA, &err) == LM_OK) return k;
  printf("# %s\n", err.text);
  return NULL;
}

/* Backend i, i = 0, 1 .., or NULL where this machine or this build has not got it; *done behind the last one. The CPU
 * backend comes once for each level of the instruction set. */
static inline const lm_kernels *backend_at(int i, bool *done)
{
  static const char *const levels[] = {"x86-64", "x86-64-v3", "x86-64-v4", "portable"};
  const lm_kernels *k;
  lm_error err;
  *done = i >= (int)(sizeof levels / sizeof levels[0]);
  if (*done || setenv("MPILM_ISA", levels[i], 1) != 0) return NULL;
  return lm_kernels_select(&k, LM_BACKEND_CPU, &err) == LM_OK ? k : NULL;
}

/* What an operation puts into a double of the backend's memory. */
static inline double backend_sum(const lm_kernels *k, void (*op)(double *sum, const float *x, size_t n), const float *x,
                                 size_t n)
{
  double *sum, result;
  lm_error err;
  LM_ASSERT(k->alloc((void **)&sum, sizeof *sum, "a sum", &err) == LM_OK);
  op(sum, x, n);
  k->to_host(&result, sum, sizeof result);
  k->release(sum);
  return result;
}

#endif
