/* tests/cudaemu/runtime.cu - streams, events, graphs, copies, errors. Run at once and lazily. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include <string>

__global__ void add(int *p, int v, int n)
{
  const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) p[i] += v;
}

static bool all_are(const int *p, int n, int v)
{
  for (int i = 0; i < n; i++)
    if (p[i] != v) return false;
  return true;
}

constexpr int n = 100;

static void test_streams()
{
  cudaStream_t a, b;
  cudaEvent_t e;
  int *host, *d = to_device(std::vector<int>(n, 1));
  CUDA(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
  CUDA(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
  CUDA(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  CUDA(cudaMallocHost(&host, n * sizeof(int)));
  add<<<1, 128, 0, a>>>(d, 4, n);
  CUDA(cudaEventRecord(e, a));
  CUDA(cudaStreamWaitEvent(b, e, 0));
  CUDA(cudaMemcpyAsync(host, d, n * sizeof(int), cudaMemcpyDeviceToHost, b));
  CUDA(cudaStreamSynchronize(b));
  check(all_are(host, n, 5), "an event orders two streams");
  CUDA(cudaMemsetAsync(d, 0, n * sizeof(int), a));
  add<<<1, 128, 0, a>>>(d, 9, n);
  std::vector<int> pageable(n);
  CUDA(cudaMemcpyAsync(pageable.data(), d, n * sizeof(int), cudaMemcpyDeviceToHost, a));
  check(all_are(pageable.data(), n, 9), "a copy into pageable memory is over when it returns");
  pageable.assign(n, 7);
  CUDA(cudaMemcpyAsync(d, pageable.data(), n * sizeof(int), cudaMemcpyHostToDevice, a));
  pageable.assign(n, -1);
  CUDA(cudaStreamSynchronize(a));
  check(all_are(from_device(d, n).data(), n, 7), "and one out of it may be forgotten");
  add<<<1, 128, 0, a>>>(d, 1, n);
  CUDA(cudaEventRecord(e, a));
  while (cudaEventQuery(e) == cudaErrorNotReady) continue;
  check(all_are(from_device(d, n).data(), n, 8), "asking for an event comes to an end");
  float ms;
  check(cudaEventElapsedTime(&ms, e, e) == cudaErrorInvalidResourceHandle, "an event without times has none");
}

static void test_graphs()
{
  cudaStream_t a, b;
  cudaEvent_t fork, joins;
  cudaGraph_t graph, other;
  cudaGraphExec_t exec;
  cudaGraphExecUpdateResultInfo info;
  int *d = to_device(std::vector<int>(n, 0)), *p;
  CUDA(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
  CUDA(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
  CUDA(cudaEventCreate(&fork));
  CUDA(cudaEventCreate(&joins));
  CUDA(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
  add<<<1, 128, 0, a>>>(d, 1, n);
  CUDA(cudaEventRecord(fork, a));
  CUDA(cudaStreamWaitEvent(b, fork, 0));
  add<<<1, 128, 0, b>>>(d, 2, n);
  CUDA(cudaEventRecord(joins, b));
  CUDA(cudaStreamWaitEvent(a, joins, 0));
  check(cudaMalloc(&p, 4) == cudaErrorStreamCaptureUnsupported, "no allocation while capturing");
  check(cudaStreamSynchronize(a) == cudaErrorStreamCaptureUnsupported, "no waiting while capturing");
  CUDA(cudaStreamEndCapture(a, &graph));
  cudaGetLastError();
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  check(all_are(from_device(d, n).data(), n, 0), "capturing executes nothing");
  for (int k = 0; k < 3; k++) CUDA(cudaGraphLaunch(exec, a));
  CUDA(cudaStreamSynchronize(a));
  check(all_are(from_device(d, n).data(), n, 9), "a graph of two streams, three times");
  CUDA(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
  add<<<1, 128, 0, a>>>(d, 10, n);
  add<<<1, 128, 0, a>>>(d, 20, n);
  CUDA(cudaStreamEndCapture(a, &other));
  CUDA(cudaGraphExecUpdate(exec, other, &info));
  CUDA(cudaGraphLaunch(exec, a));
  CUDA(cudaStreamSynchronize(a));
  check(all_are(from_device(d, n).data(), n, 39), "a graph is updated with other arguments");
  CUDA(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
  CUDA(cudaMemsetAsync(d, 0, 4, a));
  CUDA(cudaStreamEndCapture(a, &other));
  check(cudaGraphExecUpdate(exec, other, &info) == cudaErrorGraphExecUpdateFailure, "but not with another shape");
  CUDA(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
  CUDA(cudaEventRecord(fork, a));
  CUDA(cudaStreamWaitEvent(b, fork, 0));
  add<<<1, 128, 0, b>>>(d, 2, n);
  check(cudaStreamEndCapture(a, &other) == cudaErrorStreamCaptureUnjoined, "a stream that is not joined again");
}

__device__ int symbol[3] = {1, 2, 3};

static void test_errors()
{
  int *d = on_device<int>(4), v[3], *big;
  size_t before, after, total;
  cudaDeviceProp p;
  cudaGetLastError();
  add<<<1, 2048>>>(d, 1, 4);
  check(cudaGetLastError() == cudaErrorInvalidConfiguration, "2048 threads a block");
  check(cudaGetLastError() == cudaSuccess, "the error is told once");
  add<<<1, 32, 64 << 10>>>(d, 1, 4);
  check(cudaGetLastError() == cudaErrorInvalidValue, "64 KiB of shared memory that nobody asked for");
  CUDA(cudaMemcpyFromSymbol(v, symbol, sizeof v));
  check(v[0] == 1 && v[2] == 3, "a variable has its initial values");
  check(cudaMemcpy(d, v, 4, cudaMemcpyDeviceToHost) == cudaErrorInvalidMemcpyDirection,
        "a copy in the wrong direction");
  CUDA(cudaMemGetInfo(&before, &total));
  check(cudaMalloc(&big, total + 1) == cudaErrorMemoryAllocation, "more memory than there is");
  int *some = on_device<int>(1 << 20);
  CUDA(cudaMemGetInfo(&after, &total));
  check(before - after == 4 << 20, "memory in use is counted");
  CUDA(cudaFree(some));
  CUDA(cudaMemGetInfo(&after, &total));
  check(before == after, "and given back");
  CUDA(cudaGetDeviceProperties(&p, 0));
  check(std::string(p.name).find(std::to_string(10 * p.major + p.minor)) != std::string::npos, "%s", p.name);
  check(std::string(cudaGetErrorName(cudaErrorNoDevice)) == "cudaErrorNoDevice", "names of errors");
}

int main()
{
  begin();
  test_streams();
  test_graphs();
  test_errors();
  return finish();
}
