/* src/train/backend.c - start a backend on the device that is this rank's own. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/backend.h"

#include "base/log.h"

lm_status lm_backend_device(int *out, int local_rank, int local_size, int visible, lm_error *err)
{
  *out = 0;
  if (visible == 1) return LM_OK;
  if (visible < 1) return lm_fail(err, LM_EINVAL, "no visible GPU: look at CUDA_VISIBLE_DEVICES and the job's GPUs");
  if (visible < local_size)
    return lm_fail(err, LM_EINVAL, "this node has %d ranks, which see %d GPUs; want a GPU a rank", local_size, visible);
  *out = local_rank;
  return LM_OK;
}

/* A machine without a driver is not made to open CUDA's libraries, which takes half a second. */
static lm_backend resolve(lm_backend which)
{
  lm_error why = {0};
  int visible;
  if (which != LM_BACKEND_AUTO) return which;
  lm_status s = lm_cuda_driver(&why);
  if (s == LM_OK) s = lm_cuda_devices(NULL, 0, &visible, &why);
  if (s == LM_OK) return LM_BACKEND_CUDA;
  if (*why.text != '\0') lm_info("the CPU computes: %s", why.text);
  return LM_BACKEND_CPU;
}

lm_status lm_backend_start(const lm_kernels **out, const lm_comm *comm, lm_backend which, lm_error *err)
{
  bool named = which == LM_BACKEND_CUDA;
  which = resolve(which);
  if (which == LM_BACKEND_CUDA) {
    int visible, device;
    *out = NULL;
    lm_status s = lm_cuda_devices(NULL, 0, &visible, err);
    if (s == LM_OK) s = lm_backend_device(&device, comm->local_rank, comm->local_size, visible, err);
    if (s != LM_OK) return lm_fail_in(err, s, named ? "--backend=cuda" : "--backend=auto");
    lm_cuda_use_device(device);
  }
  return lm_kernels_select(out, which, err);
}
