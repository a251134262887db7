/* kernels/cuda/copies.cu - copies to the host on a stream of their own, and the times of the stream of computation. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cuda/cuda.h"

#include <string.h>

static struct {
  cudaStream_t stream;
  cudaEvent_t from, done; /* what is copied is there to be read; the copies are there */
  cudaEvent_t marks[LM_MARKS];
} copies;

static lm_status alloc(void **out, size_t bytes, const char *what, lm_error *err)
{
  cudaError_t e = cudaMallocHost(out, bytes == 0 ? 64 : bytes);
  if (e == cudaSuccess) return LM_OK;
  *out = NULL;
  cudaGetLastError(); /* it was said, and is over */
  return lm_cuda.host->fail(err, LM_ENOMEM, "no pinned memory for %s (%zu bytes): %s", what, bytes,
                            cudaGetErrorString(e));
}

static void release(void *p)
{
  if (p != NULL) lm_cuda_check(cudaFreeHost(p), "release");
}

static void begin(void)
{
  lm_cuda_check(cudaEventRecord(copies.from, lm_cuda.compute), "copies");
  lm_cuda_check(cudaStreamWaitEvent(copies.stream, copies.from, 0), "copies");
}

static void copy(void *host, const void *device, size_t bytes)
{
  lm_cuda_check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, copies.stream), "copies");
}

static void end(void)
{
  lm_cuda_check(cudaEventRecord(copies.done, copies.stream), "copies");
}

static void await(void)
{
  lm_cuda_check(cudaStreamWaitEvent(lm_cuda.compute, copies.done, 0), "copies");
}

static void wait(void)
{
  lm_cuda_check(cudaEventSynchronize(copies.done), "copies, or an operation before them");
}

static const lm_copies table = {alloc, release, begin, copy, end, await, wait};

cudaError_t lm_cuda_start_copies(void)
{
  cudaError_t e = cudaStreamCreateWithFlags(&copies.stream, cudaStreamNonBlocking);
  if (e == cudaSuccess) e = cudaEventCreateWithFlags(&copies.from, cudaEventDisableTiming);
  if (e == cudaSuccess) e = cudaEventCreateWithFlags(&copies.done, cudaEventDisableTiming);
  for (int i = 0; e == cudaSuccess && i < LM_MARKS; i++) e = cudaEventCreate(&copies.marks[i]);
  return e;
}

const lm_copies *lm_cuda_copies(void)
{
  return &table;
}

void lm_mark_cuda(int i)
{
  lm_cuda_check(cudaEventRecord(copies.marks[i], lm_cuda.compute), "mark");
}

double lm_between_cuda(int from, int to)
{
  float ms;
  lm_cuda_check(cudaEventElapsedTime(&ms, copies.marks[from], copies.marks[to]), "between");
  return 1e-3 * ms;
}
