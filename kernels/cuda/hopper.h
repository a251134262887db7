/* kernels/cuda/hopper.h - what sm_90a has: copies of tensor tiles that count at a barrier, products of a warpgroup. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_KERNELS_CUDA_HOPPER_H
#define LM_KERNELS_CUDA_HOPPER_H

#include "kernels/cuda/mma.h"

#include <cuda.h>

/* Its instructions are those of exactly this device: kernels that use them are empty where this is 0. */
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define LM_HOPPER 1
#else
#define LM_HOPPER 0
#endif

enum { WARPGROUP = 128, CHUNK = 64 }; /* threads; elements of 16 bits in a row of 128 bytes */

/* ---- barriers in shared memory: PTX ISA, "mbarrier" ---- */

/* A phase ends when `arrivals` have come, and the bytes that they said were to be expected. */
static __device__ __forceinline__ void barrier_begin(uint64_t *barrier, unsigned arrivals)
{
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
static __device__ __forceinline__ void arrive(uint64_t *barrier)
{
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
static __device__ __forceinline__ void arrive_expecting(uint64_t *barrier, unsigned bytes)
{
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
/* Wait for the end of the phase of this parity: 0, 1, 0 .. The one before the first counts as over. */
static __device__ __forceinline__ void wait_for(uint64_t *barrier, unsigned parity)
{
  asm volatile("{\n.reg .pred over;\n"
               "again: mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
               "@!over bra again;\n}" ::"r"(shared_address(barrier)),
               "r"(parity)
               : "memory");
}

/* Barriers that were begun are seen by copies, and what was written to shared memory is seen by copies and products. */
static __device__ __forceinline__ void barriers_begun()
{
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
static __device__ __forceinline__ void written_for_copies()
{
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* STAGES places that one side fills and the other empties, and where a side is in them. */
template <int STAGES> struct ring {
  uint64_t full[STAGES], empty[STAGES];

  __device__ __forceinline__ void begin(unsigned who_empty)
  {
    for (int i = 0; i < STAGES; i++) barrier_begin(&full[i], 1), barrier_begin(&empty[i], who_empty);
  }
};
template <int STAGES> struct turn {
  int stage = 0;
  unsigned parity = 0;

  __device__ __forceinline__ void next()
  {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
};

/* Two warpgroups, 0 and 1, take turns: one waits until the other has given it the turn, which it does without waiting.
 */
static __device__ __forceinline__ void take_turn(int group)
{
  asm volatile("bar.sync %0, 256;" ::"r"(1 + group) : "memory");
}
static __device__ __forceinline__ void give_turn(int group)
{
  asm volatile("bar.arrive %0, 256;" ::"r"(1 + group) : "memory");
}

/* ---- tiles of a tensor [sequence, position, head, channel] ---- */

/* A box of CHUNK channels of one head, at as many positions as the map says. What is outside of the tensor is 0. */
static __device__ __forceinline__ void load_box(void *to, const CUtensorMap *map, int channel, int head, int position,
                                                int sequence, uint64_t *barrier)
{
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
               "[%1, {%2, %3, %4, %5}], [%6];" ::"r"(shared_address(to)),
               "l"(map), "r"(channel), "r"(head), "r"(position), "r"(sequence), "r"(shared_address(barrier))
               : "memory");
}
static __device__ __forceinline__ void store_box(const CUtensorMap *map, const void *from, int channel, int head,
                                                 int position, int sequence)
{
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(map),
               "r"(channel), "r"(head), "r"(position), "r"(sequence), "r"(shared_address(from))
               : "memory");
}
static __device__ __forceinline__ void stores_begun()
{
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/* What this thread's stores read may be written again. */
static __device__ __forceinline__ void stores_have_read()
{
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
/* `bytes` side by side, a multiple of 16. */
static __device__ __forceinline__ void load_bytes(void *to, const void *from, unsigned bytes, uint64_t *barrier)
{
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}

/* Registers of a thread from here on; what some warpgroups give the others may take. */
template <int N> static __device__ __forceinline__ void fewer_registers()
{
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> static __device__ __forceinline__ void more_registers()
{
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* ---- products of a warpgroup: PTX ISA, "wgmma.mma_async" ---- */

/* A tile is [chunks][ROWS][CHUNK], rows of 128 bytes, their 16-byte columns exchanged by the row (128-byte swizzle),
 * and begins at a multiple of 1024 bytes. As an operand it is either [ROWS, k] or, turned over, [k, channels]. The
 * descriptors are those of the manual's "Matrix Descriptor": atoms of 8 rows are 1024 bytes apart. */
static __device__ __forceinline__ uint64_t operand_at(unsigned at, unsigned chunks_apart)
{
  return static_cast<uint64_t>(at >> 4 & 0x3fff) | static_cast<uint64_t>(chunks_apart >> 4) << 16 |
         static_cast<uint64_t>(1024 >> 4) << 32 | static_cast<uint64_t>(1) << 62;
}
/* Columns 16 k .. of rows `row` and on, a multiple of 8. */
template <int ROWS> static __device__ __forceinline__ uint64_t rows_of(const void *tile, int row, int k)
{
  return operand_at(shared_address(tile) + row * 128 + k / 4 * ROWS * 128 + k % 4 * 32, 16);
}
/* Rows 16 k .. of all columns, as the second factor. */
template <int ROWS> static __device__ __forceinline__ uint64_t turned_over(const void *tile, int k)
{
  return operand_at(shared_address(tile) + k * 16 * 128, ROWS * 128);
}

/* Products run behind the program, in order: what is in registers must not be touched between the product and the wait
 * for it. products_begin() comes behind the last use of registers, products_begun() ends a group, and
 * wait_for_products<N>() waits until at most N groups are not over. settle() says to the compiler that it is only now
 * that these have their values. */
static __device__ __forceinline__ void products_begin()
{
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void products_begun()
{
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int N> static __device__ __forceinline__ void wait_for_products()
{
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
template <int N> static __device__ __forceinline__ void settle(float (&d)[N][4])
{
#pragma unroll
  for (int n = 0; n < N; n++)
#pragma unroll
    for (int e = 0; e < 4; e++) asm volatile("" : "+f"(d[n][e])::"memory");
}
template <int N> static __device__ __forceinline__ void settle(unsigned (&a)[N][4])
{
#pragma unroll
  for (int n = 0; n < N; n++)
#pragma unroll
    for (int e = 0; e < 4; e++) asm volatile("" : "+r"(a[n][e])::"memory");
}

/* clang-format off */
#define LM_D1(d, n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define LM_D4(d, n) LM_D1(d, n), LM_D1(d, n + 1), LM_D1(d, n + 2), LM_D1(d, n + 3)
#define LM_D8(d) LM_D4(d, 0), LM_D4(d, 4)
#define LM_D16(d) LM_D4(d, 0), LM_D4(d, 4), LM_D4(d, 8), LM_D4(d, 12)
#define LM_NAMES32 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25," \
  "%26,%27,%28,%29,%30,%31"
#define LM_NAMES64 LM_NAMES32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52," \
  "%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"

/* d (+)= a b, m64nNk16: a in shared memory or in registers, b in shared memory. */
#define LM_PRODUCT(n, type, names, registers, a, b, add, turned, ...) \
  asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " add ", 0;\n" \
               "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" names "}, " a ", " b \
               ", add, 1, 1, " turned ";\n}" : registers : __VA_ARGS__)
#define LM_PRODUCT_SHARED(type) \
  if constexpr (N == 8) \
    LM_PRODUCT(64, type, LM_NAMES32, LM_D8(d), "%32", "%33", "%34", "0, %35", "l"(a), "l"(b), "r"(+add), "n"(TURNED)); \
  else \
    LM_PRODUCT(128, type, LM_NAMES64, LM_D16(d), "%64", "%65", "%66", "0, %67", "l"(a), "l"(b), "r"(+add), "n"(TURNED))
#define LM_PRODUCT_REGISTERS(type) \
  if constexpr (N == 8) \
    LM_PRODUCT(64, type, LM_NAMES32, LM_D8(d), "{%32,%33,%34,%35}", "%36", "%37", "%38", \
               "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(+add), "n"(TURNED)); \
  else \
    LM_PRODUCT(128, type, LM_NAMES64, LM_D16(d), "{%64,%65,%66,%67}", "%68", "%69", "%70", \
               "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(+add), "n"(TURNED))
/* clang-format on */

/* d [64, 8 N]; add: to what d is, else to 0; TURNED: b is a tile turned over. */
template <typename E, bool TURNED, int N>
static __device__ __forceinline__ void product(float (&d)[N][4], uint64_t a, uint64_t b, bool add)
{
  static_assert(N == 8 || N == 16, "64 or 128 columns");
  if constexpr (std::is_same<E, bf16>::value) {
    LM_PRODUCT_SHARED("bf16");
  } else {
    LM_PRODUCT_SHARED("f16");
  }
}
template <typename E, bool TURNED, int N>
static __device__ __forceinline__ void product(float (&d)[N][4], const unsigned (&a)[4], uint64_t b, bool add)
{
  static_assert(N == 8 || N == 16, "64 or 128 columns");
  if constexpr (std::is_same<E, bf16>::value) {
    LM_PRODUCT_REGISTERS("bf16");
  } else {
    LM_PRODUCT_REGISTERS("f16");
  }
}

#undef LM_D1
#undef LM_D4
#undef LM_D8
#undef LM_D16
#undef LM_NAMES32
#undef LM_NAMES64
#undef LM_PRODUCT
#undef LM_PRODUCT_SHARED
#undef LM_PRODUCT_REGISTERS

#endif
