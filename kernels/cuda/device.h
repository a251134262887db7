/* kernels/cuda/device.h - what kernels share: conversions, wide accesses, sums over a warp and a block. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_KERNELS_CUDA_DEVICE_H
#define LM_KERNELS_CUDA_DEVICE_H

#include "kernels/cuda/cuda.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>

typedef __nv_bfloat16 bf16;
typedef __half f16;

enum { WARP = 32 };
#define ALL_LANES 0xffffffffu

/* ---- elements ---- */

static __device__ __forceinline__ float to_float(float x)
{
  return x;
}
static __device__ __forceinline__ float to_float(bf16 x)
{
  return __bfloat162float(x);
}
static __device__ __forceinline__ float to_float(f16 x)
{
  return __half2float(x);
}

/* To nearest, ties to even. */
template <typename T> static __device__ __forceinline__ T from_float(float x)
{
  if constexpr (std::is_same<T, float>::value)
    return x;
  else if constexpr (std::is_same<T, bf16>::value)
    return __float2bfloat16_rn(x);
  else
    return __float2half_rn(x);
}

/* exp(x), with the precision that a result of type T can show. */
template <typename T> static __device__ __forceinline__ float exp_for(float x)
{
  return std::is_same<T, float>::value ? expf(x) : __expf(x);
}

/* a / b, likewise. */
template <typename T> static __device__ __forceinline__ float divide_for(float a, float b)
{
  return std::is_same<T, float>::value ? a / b : __fdividef(a, b);
}

/* ---- N elements by accesses of 16 bytes, or of what they have if that is less ---- */

template <typename T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) pack {
  T v[N];
};

template <int N, typename T> static __device__ __forceinline__ pack<T, N> load(const T *p)
{
  return *reinterpret_cast<const pack<T, N> *>(p);
}

template <typename T, int N> static __device__ __forceinline__ void store(T *p, const pack<T, N> &x)
{
  *reinterpret_cast<pack<T, N> *>(p) = x;
}

/* ---- sums: in an order that depends on nothing but the number of threads ---- */

static __device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
  for (int step = WARP / 2; step > 0; step /= 2) x += __shfl_xor_sync(ALL_LANES, x, step);
  return x;
}

static __device__ __forceinline__ float warp_max(float x)
{
#pragma unroll
  for (int step = WARP / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, step));
  return x;
}

/* The sums of a and b over a block of whole warps, for all of its threads. shared: 2 floats a warp, which nobody uses
 * before all threads have called the next barrier. */
static __device__ __forceinline__ float2 block_sum2(float a, float b, float2 *shared)
{
  int lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
  a = warp_sum(a), b = warp_sum(b);
  if (lane == 0) shared[threadIdx.x / WARP] = make_float2(a, b);
  __syncthreads();
  float2 mine = lane < warps ? shared[lane] : make_float2(0, 0);
  return make_float2(warp_sum(mine.x), warp_sum(mine.y));
}

/* ---- on the host ---- */

/* f(T{}) for the element type that t names. */
template <typename F> static inline void by_type(lm_dtype t, F f)
{
  if (t == LM_F32)
    f(float{});
  else if (t == LM_BF16)
    f(bf16{});
  else
    f(f16{});
}

/* f(std::integral_constant<int, W>{}) with W = wide or 1. */
template <int WIDE, typename F> static inline void by_width(bool wide, F f)
{
  if (wide)
    f(std::integral_constant<int, WIDE>{});
  else
    f(std::integral_constant<int, 1>{});
}

template <typename T> static constexpr int WIDTH = 16 / sizeof(T); /* elements of a 16-byte access */

static inline bool aligned_to(size_t bytes)
{
  (void)bytes;
  return true;
}
/* Are all of these multiples of `bytes`? NULL is. */
template <typename P, typename... Q> static inline bool aligned_to(size_t bytes, const P *p, Q... q)
{
  return reinterpret_cast<uintptr_t>(p) % bytes == 0 && aligned_to(bytes, q...);
}

static inline unsigned blocks_for(size_t n, size_t each)
{
  return static_cast<unsigned>((n + each - 1) / each);
}

#endif
