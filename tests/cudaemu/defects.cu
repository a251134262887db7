/* tests/cudaemu/defects.cu - one planted defect a call; the emulator must say which. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include <cuda_bf16.h>
#include <map>
#include <nccl.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

typedef unsigned u32;
typedef unsigned long long u64;

__device__ u32 shared_address(const void *p)
{
  return (u32)__cvta_generic_to_shared(p);
}

__global__ void past_the_end(float *p)
{
  p[threadIdx.x + 1] = 1; /* DEFECT past_the_end */
}

__global__ void past_shared(float *p)
{
  __shared__ float s[64];
  s[threadIdx.x + 1] = 1; /* DEFECT past_shared */
  __syncthreads();
  p[threadIdx.x] = s[threadIdx.x];
}

__global__ void read_one(const float *from, float *p)
{
  p[threadIdx.x] = from[0]; /* DEFECT host_pointer freed */
}

__global__ void misaligned(float *p)
{
  *reinterpret_cast<float4 *>(p + 1) = make_float4(1, 2, 3, 4); /* DEFECT misaligned */
}

__global__ void uninitialised(const float *from, float *p)
{
  p[threadIdx.x] = from[threadIdx.x]; /* DEFECT uninitialised */
}

__global__ void uninitialised_shared(float *p)
{
  __shared__ float s[64];
  if (threadIdx.x < 63) s[threadIdx.x] = 1;
  __syncthreads();
  p[threadIdx.x] = s[threadIdx.x]; /* DEFECT uninitialised_shared */
}

__global__ void race_shared(float *p)
{
  __shared__ float s[64];
  s[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  s[threadIdx.x] = s[63 - threadIdx.x]; /* DEFECT race_shared */
  __syncthreads();
  p[threadIdx.x] = s[threadIdx.x];
}

__global__ void race_warp(float *p)
{
  __shared__ float s[32];
  s[threadIdx.x] = (float)threadIdx.x;
  p[threadIdx.x] = s[threadIdx.x ^ 1]; /* DEFECT race_warp */
}

__global__ void race_blocks(float *p)
{
  p[threadIdx.x] += 1; /* DEFECT race_blocks */
}

__global__ void no_threadfence(float *p)
{
  __shared__ bool last;
  p[1 + blockIdx.x] = 1;
  if (threadIdx.x == 0) last = atomicAdd(p, 1.f) == 2.f; /* p[0] was 1 */
  __syncthreads();
  if (last) p[0] = p[1] + p[2]; /* DEFECT no_threadfence */
}

__global__ void divergent_barrier(float *p)
{
  if (threadIdx.x < 40) {
    p[threadIdx.x] = 1;
    __syncthreads(); /* DEFECT divergent_barrier */
    p[threadIdx.x] += 2;
  } else {
    p[threadIdx.x] = 3;
    __syncthreads(); /* DEFECT divergent_barrier */
    p[threadIdx.x] *= 4;
  }
}

__global__ void missing_barrier(float *p)
{
  p[threadIdx.x] = 1;
  if (threadIdx.x >= 32) asm volatile("bar.sync 4, 64;"); /* DEFECT missing_barrier */
}

__global__ void dead_lane(float *p)
{
  float v = p[threadIdx.x];
  if (threadIdx.x < 16) v += __shfl_xor_sync(0xffff, v, 16); /* DEFECT dead_lane */
  p[threadIdx.x] = v;
}

__global__ void no_wait(float *p)
{
  __shared__ __align__(16) float s[128];
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(&s[threadIdx.x * 4])),
               "l"(p + threadIdx.x * 4)
               : "memory");
  asm volatile("cp.async.commit_group;" ::: "memory");
  __syncthreads();
  p[128 + threadIdx.x] = s[threadIdx.x]; /* DEFECT no_wait */
}

__global__ void endless(volatile float *p)
{
  while (p[0] >= 0) continue; /* DEFECT endless */
}

__global__ void unknown_instruction(float *p)
{
  int r;
  asm volatile("dp4a.s32.s32 %0, %1, %1, %1;" : "=r"(r) : "r"((int)threadIdx.x)); /* DEFECT unknown_instruction */
  p[threadIdx.x] = (float)r;
}

__global__ void asserts(float *p)
{
  p[threadIdx.x] = 1;
  if (threadIdx.x == 5) __trap(); /* DEFECT trap */
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
__global__ void bulk(float *p, int which)
{
  __shared__ __align__(128) float s[64];
  __shared__ u64 bar;
  const u32 b = shared_address(&bar), to = shared_address(s);
  s[threadIdx.x] = 5;
  if (threadIdx.x == 0 && which != 1) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(b) : "memory");
  if (which == 3) asm volatile("fence.proxy.async;" ::: "memory");
  if (which != 2) __syncthreads();
  if (threadIdx.x == 0 && which == 4) { /* the row is stored without a fence.proxy.async */
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(p), "r"(to)
                 : "memory"); /* DEFECT no_proxy_fence */
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
    return;
  }
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;" ::"r"(b)
                 : "memory"); /* DEFECT no_mbarrier */
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(to),
                 "l"(p), "r"(b)
                 : "memory"); /* DEFECT overwrites */
  }
  __syncthreads();
  p[64 + threadIdx.x] = s[threadIdx.x]; /* DEFECT no_mbarrier_wait */
}

/* Waits for the second copy and reads the first, which may come later. */
__global__ void wrong_mbarrier(float *p)
{
  __shared__ __align__(128) float s[2][64];
  __shared__ u64 full[2];
  const u32 second = shared_address(&full[1]);
  if (threadIdx.x == 0) {
    for (int k = 0; k < 2; k++)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full[k])) : "memory");
    for (int k = 0; k < 2; k++) {
      const u32 b = shared_address(&full[k]);
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;" ::"r"(b) : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(
                       shared_address(s[k])),
                   "l"(p), "r"(b)
                   : "memory");
    }
  }
  __syncthreads();
  asm volatile(
      "{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra again; }" ::"r"(second)
      : "memory");
  p[64 + threadIdx.x] = s[0][threadIdx.x]; /* DEFECT wrong_mbarrier */
}

/* A copy overwrites what a product reads, since its warpgroup says too early that it is done. */
__global__ void early_release(float *p)
{
  __shared__ __align__(1024) float s[2048]; /* [64][64] of 16 bits */
  __shared__ u64 free_again, full;
  const u32 to = shared_address(s), again = shared_address(&free_again), bar = shared_address(&full);
  for (u32 i = threadIdx.x; i < 2048; i += blockDim.x) s[i] = 0;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 128;" ::"r"(again) : "memory");
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar) : "memory");
  }
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  if (threadIdx.x < 128) {
    float d[4] = {};
    const u64 tile = (u64)(to >> 4) | 64ull << 32 | 1ull << 62;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %4, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "l"(tile));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(again) : "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" : "+f"(d[0])::"memory");
    p[threadIdx.x] = d[0];
  } else if (threadIdx.x == 128) {
    asm volatile(
        "{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra again; }" ::"r"(again)
        : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;" ::"r"(bar) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(to),
                 "l"(p), "r"(bar)
                 : "memory"); /* DEFECT early_release */
  }
}
#else
__global__ void bulk(float *, int) {}
__global__ void wrong_mbarrier(float *) {}
__global__ void early_release(float *) {}
#endif

static void missing_event(float *p)
{
  cudaStream_t a, b;
  float *host;
  CUDA(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
  CUDA(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
  CUDA(cudaMallocHost(&host, 256));
  CUDA(cudaMemsetAsync(p, 0, 256, a));
  CUDA(cudaMemcpyAsync(host, p, 256, cudaMemcpyDeviceToHost, b)); /* no event between a and b */
  CUDA(cudaStreamSynchronize(b));
  printf("%s\n", host[3] == 0 ? "in order" : "out of order");
}

static void nccl_mismatch()
{
  ncclUniqueId id;
  ncclComm_t c;
  int status;
  ncclGetUniqueId(&id);
  const pid_t child = fork();
  const int rank = child == 0;
  ncclCommInitRank(&c, 2, id, rank);
  float *p = to_device(std::vector<float>(64, 1));
  ncclAllReduce(p, p, rank ? 32 : 64, ncclFloat32, ncclSum, c, nullptr);
  if (child > 0) waitpid(child, &status, 0);
}

int main(int, char **argv)
{
  const std::string which = argv[1];
  if (which == "nccl_mismatch") return nccl_mismatch(), 0;
  begin();
  float *p = to_device(std::vector<float>(256, 1)), *raw = on_device<float>(64), *freed = on_device<float>(1);
  CUDA(cudaFree(freed));
  float on_host = 1;
  if (which == "past_the_end") past_the_end<<<4, 64>>>(raw);
  if (which == "past_shared") past_shared<<<1, 64>>>(p);
  if (which == "host_pointer") read_one<<<1, 1>>>(&on_host, p);
  if (which == "freed") read_one<<<1, 1>>>(freed, p);
  if (which == "misaligned") misaligned<<<1, 1>>>(p);
  if (which == "uninitialised") uninitialised<<<1, 64>>>(raw, p);
  if (which == "uninitialised_shared") uninitialised_shared<<<1, 64>>>(p);
  if (which == "race_shared") race_shared<<<1, 64>>>(p);
  if (which == "race_warp") race_warp<<<1, 32>>>(p);
  if (which == "race_blocks") race_blocks<<<2, 32>>>(p);
  if (which == "no_threadfence") no_threadfence<<<2, 1>>>(p);
  if (which == "divergent_barrier") divergent_barrier<<<1, 64>>>(p);
  if (which == "missing_barrier") missing_barrier<<<1, 64>>>(p);
  if (which == "dead_lane") dead_lane<<<1, 32>>>(p);
  if (which == "no_wait") no_wait<<<1, 32>>>(p);
  if (which == "endless") endless<<<1, 1>>>(p);
  if (which == "unknown_instruction") unknown_instruction<<<1, 32>>>(p);
  if (which == "trap") asserts<<<1, 32>>>(p);
  if (which == "no_mbarrier") bulk<<<1, 64>>>(p, 1);
  if (which == "overwrites") bulk<<<1, 64>>>(p, 2);
  if (which == "no_mbarrier_wait") bulk<<<1, 64>>>(p, 3);
  if (which == "no_proxy_fence") bulk<<<1, 64>>>(p, 4);
  if (which == "wrong_mbarrier") wrong_mbarrier<<<1, 64>>>(p);
  if (which == "early_release") early_release<<<1, 256>>>(p);
  if (which == "missing_event") missing_event(p);
  if (which == "device_pointer_on_host") printf("%f\n", p[0]);
  if (which == "copy_past_the_end") cudaMemcpy(raw, p, 65 * sizeof(float), cudaMemcpyDeviceToDevice);
  const cudaError_t e = cudaDeviceSynchronize();
  printf("%s\n", cudaGetErrorString(e));
  return 0;
}
