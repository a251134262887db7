/* kernels/cuda/mma.h - tensor cores by mma.sync (sm_80 and up): tiles in shared memory, fragments, products. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_KERNELS_CUDA_MMA_H
#define LM_KERNELS_CUDA_MMA_H

#include "kernels/cuda/device.h"

/* PTX ISA, "Matrix multiply-accumulate operation using mma instruction", m16n8k16. With g = lane / 4 and q = lane % 4 a
 * lane has of C [16,8] the elements (g, 2q), (g, 2q + 1), (g + 8, 2q), (g + 8, 2q + 1). */

static __device__ __forceinline__ unsigned shared_address(const void *p)
{
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

/* ---- copies from global to shared memory that go on while the thread computes ---- */

/* 16 bytes, zeros where wanted is false; `from` is an address that exists in any case. */
static __device__ __forceinline__ void copy16(void *to, const void *from, bool wanted)
{
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(wanted ? 16 : 0)
               : "memory");
}
static __device__ __forceinline__ void copy4(void *to, const void *from, bool wanted)
{
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from), "r"(wanted ? 4 : 0)
               : "memory");
}
/* What was begun since the last call is a group. */
static __device__ __forceinline__ void copies_begun()
{
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Wait until at most PENDING of this thread's groups are not there yet. Others' need a barrier as well. */
template <int PENDING> static __device__ __forceinline__ void wait_for_copies()
{
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

/* ---- a tile of rows of WIDTH elements of 16 bits, WIDTH a multiple of 64 ---- */

/* Where 8 elements of a row are. Neighbouring rows have them in different banks, so that ldmatrix, which reads 8 rows
 * at a time, meets no bank twice. */
template <int WIDTH_, typename E> static __device__ __forceinline__ E *chunk_of(E *tile, int row, int chunk)
{
  return tile + row * WIDTH_ + ((chunk ^ (row & 7)) << 3);
}

/* Begin to copy rows first .. first + ROWS - 1 of x, of which there are T; what is behind the end or behind D is 0. */
template <int ROWS, int WIDTH_, int THREADS, typename E>
static __device__ __forceinline__ void copy_tile(E *tile, const E *x, size_t stride, int first, int T, int D)
{
#pragma unroll
  for (int n = threadIdx.x; n < ROWS * (WIDTH_ / 8); n += THREADS) {
    int row = n / (WIDTH_ / 8), chunk = n % (WIDTH_ / 8);
    bool wanted = first + row < T && chunk * 8 < D;
    copy16(chunk_of<WIDTH_>(tile, row, chunk), wanted ? x + (first + row) * stride + chunk * 8 : x, wanted);
  }
}

/* ---- fragments ---- */

static __device__ __forceinline__ void load4(unsigned (&r)[4], const void *p)
{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(p))
               : "memory");
}
static __device__ __forceinline__ void load4_transposed(unsigned (&r)[4], const void *p)
{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(p))
               : "memory");
}

/* A [16,16]: rows row .. row + 15, elements 16 k .. + 15 of the tile. */
template <int WIDTH_, typename E>
static __device__ __forceinline__ void load_a(unsigned (&a)[4], const E *tile, int row, int k)
{
  int lane = threadIdx.x % WARP;
  load4(a, chunk_of<WIDTH_>(tile, row + lane % 16, 2 * k + lane / 16));
}

/* B of two products side by side, [16,8] each: B(k, n) = tile[row + n][16 k + ..]. The first is b[0], b[1]. */
template <int WIDTH_, typename E>
static __device__ __forceinline__ void load_b(unsigned (&b)[4], const E *tile, int row, int k)
{
  int lane = threadIdx.x % WARP;
  load4(b, chunk_of<WIDTH_>(tile, row + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
}

/* The same from a tile that has k as its rows: B(k, n) = tile[row + k][16 n + ..]. */
template <int WIDTH_, typename E>
static __device__ __forceinline__ void load_b_transposed(unsigned (&b)[4], const E *tile, int row, int n)
{
  int lane = threadIdx.x % WARP;
  load4_transposed(b, chunk_of<WIDTH_>(tile, row + lane % 16, 2 * n + lane / 16));
}

/* c += A B, in f32. */
template <typename E>
static __device__ __forceinline__ void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
  if constexpr (std::is_same<E, bf16>::value)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Two elements in a register, the first in its lower half. */
template <typename E> static __device__ __forceinline__ unsigned two(float x, float y)
{
  pack<E, 2> p;
  p.v[0] = from_float<E>(x), p.v[1] = from_float<E>(y);
  return *reinterpret_cast<unsigned *>(&p);
}

/* The A of the next product out of the C of two that lay side by side. */
template <typename E>
static __device__ __forceinline__ void a_of_c(unsigned (&a)[4], const float (&left)[4], const float (&right)[4])
{
  a[0] = two<E>(left[0], left[1]), a[1] = two<E>(left[2], left[3]);
  a[2] = two<E>(right[0], right[1]), a[3] = two<E>(right[2], right[3]);
}

#endif
