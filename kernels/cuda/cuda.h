/* kernels/cuda/cuda.h - what the files of the CUDA module share: the stream, errors, launches, scratch memory. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_KERNELS_CUDA_CUDA_H
#define LM_KERNELS_CUDA_CUDA_H

#include "kernels/cuda/module.h"

#include <cuda_runtime.h>

/* An operation queues its work on one stream, in the order of the calls, and returns. to_host() and sum_squares() wait
 * for what was queued, since the host looks at their results. What fails after it was queued cannot be agreed on: the
 * job ends, with the operation's name and CUDA's words. */

typedef struct lm_cuda_state {
  const lm_cuda_host *host;
  cudaStream_t compute;
  int device;
  int major, minor;    /* compute capability */
  int multiprocessors; /* a grid much larger than this many blocks has waves enough to balance */
} lm_cuda_state;

extern lm_cuda_state lm_cuda; /* of this process: one device */

/** End the job where e is a failure: "attention_fwd: an illegal memory access was encountered". Local. */
void lm_cuda_check(cudaError_t e, const char *what);

/** Memory for intermediate results of one operation: valid until the next call of it by an operation on the stream.
 *  Grows to the largest request, so that a step allocates nothing once warmed up. Aligned to 256 bytes. Local. */
void *lm_cuda_scratch(size_t bytes, const char *what);

/** Queue kernel<<<grid, block, shared>>>(args...) on the stream of computation. More than 48 KiB of shared memory have
 *  been asked for with lm_cuda_allow_shared(). Local. */
template <typename... P, typename... A>
static inline void lm_cuda_launch(const char *what, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                                  A... args)
{
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return; /* nothing to do */
  kernel<<<grid, block, shared, lm_cuda.compute>>>(static_cast<P>(args)...);
  lm_cuda_check(cudaGetLastError(), what);
}

/** Let kernel have up to `bytes` of dynamic shared memory. Local. */
template <typename... P> static inline void lm_cuda_allow_shared(const char *what, void (*kernel)(P...), size_t bytes)
{
  if (bytes <= 48 << 10) return;
  lm_cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
                what);
}

/** How GPUs exchange: nccl.cu. Local. */
const lm_fabric *lm_cuda_fabric(void);

/* ---- the operations: those of kernels.h, a file each ---- */

lm_status lm_alloc_cuda(void **out, size_t bytes, const char *what, lm_error *err);
void lm_release_cuda(void *p);
void lm_zero_cuda(void *p, size_t bytes);
void lm_to_device_cuda(void *device, const void *host, size_t bytes);
void lm_to_host_cuda(void *host, const void *device, size_t bytes);

#endif
