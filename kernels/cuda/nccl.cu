/* kernels/cuda/nccl.cu - the fabric of GPUs: NCCL's collectives on a stream of their own, ordered by events. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cuda/cuda.h"

#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A group of ranks as this one knows it. */
struct group {
  ncclComm_t comm;
  cudaStream_t stream;
  cudaEvent_t forked, *marks; /* [n] */
  int n, rank, size;
};

static void check(ncclResult_t r, const struct group *g, const char *what)
{
  char why[512];
  if (r == ncclSuccess) return;
  snprintf(why, sizeof why, "NCCL: %s: %s%s%s", what, ncclGetErrorString(r), *ncclGetLastError(g->comm) ? ": " : "",
           ncclGetLastError(g->comm));
  lm_cuda.host->stop(why);
}

/* A communicator that does not block answers ncclInProgress until a call has been taken. */
static void settle(const struct group *g, ncclResult_t r, const char *what)
{
  while (r == ncclInProgress) {
    ncclResult_t state = ncclSuccess;
    r = ncclCommGetAsyncError(g->comm, &state);
    if (r == ncclSuccess) r = state;
  }
  check(r, g, what);
}

static lm_status make_id(void *id, lm_error *err)
{
  static_assert(sizeof(ncclUniqueId) <= LM_FABRIC_ID, "an id of NCCL has more bytes than ours");
  ncclUniqueId made;
  ncclResult_t r = ncclGetUniqueId(&made);
  if (r != ncclSuccess)
    return lm_cuda.host->fail(err, LM_EIO, "NCCL makes no id: %s: %s", ncclGetErrorString(r), ncclGetLastError(NULL));
  memcpy(id, &made, sizeof made);
  return LM_OK;
}

static double now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Until all ranks have come, or one has failed, or the time is up. */
static ncclResult_t wait_for_ranks(struct group *g, double seconds, bool *late)
{
  ncclResult_t state = ncclInProgress;
  double until = now() + seconds;
  while (state == ncclInProgress) {
    ncclResult_t r = ncclCommGetAsyncError(g->comm, &state);
    if (r != ncclSuccess) return r;
    if (state != ncclInProgress) break;
    *late = now() > until;
    if (*late) return ncclInProgress;
    const struct timespec pause = {0, 2000000};
    nanosleep(&pause, NULL);
  }
  return state;
}

static cudaError_t make_queue(struct group *g)
{
  int least, greatest;
  cudaError_t e = cudaDeviceGetStreamPriorityRange(&least, &greatest);
  if (e == cudaSuccess) e = cudaStreamCreateWithPriority(&g->stream, cudaStreamNonBlocking, greatest);
  if (e == cudaSuccess) e = cudaEventCreateWithFlags(&g->forked, cudaEventDisableTiming);
  for (int i = 0; e == cudaSuccess && i < g->n; i++) e = cudaEventCreateWithFlags(&g->marks[i], cudaEventDisableTiming);
  return e;
}

static lm_status connect_ranks(struct group *g, const void *id, double seconds, lm_error *err)
{
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclUniqueId given;
  bool late = false;
  config.blocking = 0;
  memcpy(&given, id, sizeof given);
  ncclResult_t r = ncclCommInitRankConfig(&g->comm, g->size, given, g->rank, &config);
  if (r == ncclSuccess || r == ncclInProgress) r = wait_for_ranks(g, seconds, &late);
  if (late)
    return lm_cuda.host->fail(err, LM_EIO, "NCCL: the %d ranks have not met within %.0f s; NCCL_DEBUG=INFO says more",
                              g->size, seconds);
  if (r != ncclSuccess)
    return lm_cuda.host->fail(err, LM_EIO, "NCCL cannot join GPU %d as rank %d of %d: %s: %s", lm_cuda.device, g->rank,
                              g->size, ncclGetErrorString(r), ncclGetLastError(g->comm));
  return LM_OK;
}

static void end_queue(struct group *g)
{
  for (int i = 0; g->marks != NULL && i < g->n; i++)
    if (g->marks[i] != NULL) cudaEventDestroy(g->marks[i]);
  if (g->forked != NULL) cudaEventDestroy(g->forked);
  if (g->stream != NULL) cudaStreamDestroy(g->stream);
  free(g->marks);
  free(g);
}

static void abort_group(void *group)
{
  struct group *g = (struct group *)group;
  if (g->comm != NULL) ncclCommAbort(g->comm);
  g->comm = NULL;
}

static lm_status join(void **out, const void *id, int rank, int size, int marks, double seconds, lm_error *err)
{
  *out = NULL;
  struct group *g = (struct group *)calloc(1, sizeof *g);
  if (g != NULL) g->marks = (cudaEvent_t *)calloc((size_t)marks, sizeof *g->marks);
  if (g == NULL || g->marks == NULL) {
    free(g);
    return lm_cuda.host->fail(err, LM_ENOMEM, "no memory for %d events", marks);
  }
  g->rank = rank;
  g->size = size;
  g->n = marks;
  cudaError_t e = make_queue(g);
  lm_status s = e == cudaSuccess
                    ? connect_ranks(g, id, seconds, err)
                    : lm_cuda.host->fail(err, LM_EIO, "CUDA: no stream for NCCL: %s", cudaGetErrorString(e));
  if (s != LM_OK) {
    abort_group(g);
    end_queue(g);
    return s;
  }
  *out = g;
  return LM_OK;
}

static void leave(void *group)
{
  struct group *g = (struct group *)group;
  if (g == NULL) return;
  cudaStreamSynchronize(g->stream);
  if (g->comm != NULL) {
    settle(g, ncclCommFinalize(g->comm), "finalize");
    ncclCommDestroy(g->comm);
  }
  end_queue(g);
}

static lm_status poll(void *group, lm_error *err)
{
  struct group *g = (struct group *)group;
  ncclResult_t state = ncclSuccess, r = ncclCommGetAsyncError(g->comm, &state);
  if (r == ncclSuccess) r = state;
  if (r == ncclSuccess || r == ncclInProgress) return LM_OK;
  return lm_cuda.host->fail(err, LM_EIO, "NCCL: a collective failed: %s: %s", ncclGetErrorString(r),
                            ncclGetLastError(g->comm));
}

/* ---- the two queues ---- */

static void fork_queue(void *group)
{
  struct group *g = (struct group *)group;
  lm_cuda_check(cudaEventRecord(g->forked, lm_cuda.compute), "fork");
  lm_cuda_check(cudaStreamWaitEvent(g->stream, g->forked, 0), "fork");
}

static void mark(void *group, int i)
{
  struct group *g = (struct group *)group;
  lm_cuda_check(cudaEventRecord(g->marks[i], g->stream), "mark");
}

static void await(void *group, int i)
{
  struct group *g = (struct group *)group;
  lm_cuda_check(cudaStreamWaitEvent(lm_cuda.compute, g->marks[i], 0), "await");
}

/* ---- the collectives ---- */

static void all_reduce(void *group, float *x, size_t n)
{
  struct group *g = (struct group *)group;
  settle(g, ncclAllReduce(x, x, n, ncclFloat32, ncclSum, g->comm, g->stream), "all-reduce");
}

static void reduce_scatter(void *group, float *to, const float *from, size_t each)
{
  struct group *g = (struct group *)group;
  settle(g, ncclReduceScatter(from, to, each, ncclFloat32, ncclSum, g->comm, g->stream), "reduce-scatter");
}

static void all_gather(void *group, void *to, const void *from, size_t each)
{
  struct group *g = (struct group *)group;
  settle(g, ncclAllGather(from, to, each, ncclUint8, g->comm, g->stream), "all-gather");
}

static __global__ void add_kernel(float *x, const float *y, size_t n)
{
  size_t stride = (size_t)gridDim.x * blockDim.x;
  for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) x[i] += y[i];
}

static void add(void *group, float *x, const float *y, size_t n)
{
  struct group *g = (struct group *)group;
  if (n == 0) return;
  size_t blocks = (n + 1023) / 1024, most = (size_t)lm_cuda.multiprocessors * 4;
  add_kernel<<<(unsigned)(blocks < most ? blocks : most), 256, 0, g->stream>>>(x, y, n);
  lm_cuda_check(cudaGetLastError(), "add");
}

static void copy(void *group, void *to, const void *from, size_t bytes)
{
  struct group *g = (struct group *)group;
  if (bytes > 0) lm_cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, g->stream), "copy");
}

static char name[32];
static const lm_fabric fabric = {name, make_id, join,       leave,          abort_group, poll, fork_queue,
                                 mark, await,   all_reduce, reduce_scatter, all_gather,  add,  copy};

const lm_fabric *lm_cuda_fabric(void)
{
  int v = 0;
  ncclGetVersion(&v);
  snprintf(name, sizeof name, "NCCL %d.%d.%d", v / 10000, v / 100 % 100, v % 100);
  return &fabric;
}
