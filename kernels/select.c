/* kernels/select.c - which backend computes. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"
#include "kernels/kernels.h"

bool lm_cpu_bf16_is_fast(void)
{
#if defined __x86_64__
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

lm_status lm_kernels_select(const lm_kernels **out, lm_backend which, lm_error *err)
{
  *out = NULL;
  if (which == LM_BACKEND_CUDA) return lm_fail(err, LM_EINVAL, "--backend=cuda: this build of mpilm has no CUDA");
  *out = &lm_kernels_ref;
  return LM_OK;
}
