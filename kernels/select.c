/* kernels/select.c - which backend computes. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"
#include "kernels/cpu/cpu.h"

lm_status lm_kernels_select(const lm_kernels **out, lm_backend which, lm_error *err)
{
  *out = NULL;
  if (which == LM_BACKEND_CUDA) return lm_fail(err, LM_EINVAL, "--backend=cuda: this build of mpilm has no CUDA");
  if (which == LM_BACKEND_REF) {
    *out = &lm_kernels_ref;
    return LM_OK;
  }
  return lm_cpu_start(out, err);
}
