/* tests/cudaemu/matrices.cu - ldmatrix, stmatrix, mma.sync and cp.async against products on the host. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include <cmath>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef unsigned u32;
typedef unsigned short u16;

__device__ u32 shared_address(const void *p)
{
  return (u32)__cvta_generic_to_shared(p);
}

/* --- ldmatrix: the manual's rule, element by element --- */

__global__ void load_matrices(u32 *out)
{
  __shared__ __align__(16) u16 s[32 * 8];
  const u32 l = threadIdx.x, row = shared_address(&s[l * 8]);
  for (u32 k = 0; k < 8; k++) s[l * 8 + k] = (u16)(l * 256 + k);
  __syncwarp();
  u32 r[4], t[2], one;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(t[0]), "=r"(t[1])
               : "r"(row)
               : "memory");
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared::cta.b16 {%0}, [%1+16];" : "=r"(one) : "r"(row) : "memory");
  for (u32 k = 0; k < 4; k++) out[k * 32 + l] = r[k];
  for (u32 k = 0; k < 2; k++) out[(4 + k) * 32 + l] = t[k];
  out[6 * 32 + l] = one;
}

static void test_ldmatrix()
{
  u32 *out = on_device<u32>(7 * 32);
  load_matrices<<<1, 32>>>(out);
  const std::vector<u32> g = from_device(out, 7 * 32);
  int wrong[3] = {0, 0, 0};
  auto value = [](u32 row, u32 column) { return row * 256 + column; };
  for (u32 l = 0; l < 32; l++) {
    const u32 r = l / 4, c = l % 4 * 2;
    for (u32 k = 0; k < 4; k++) wrong[0] += g[k * 32 + l] != (value(8 * k + r, c) | value(8 * k + r, c + 1) << 16);
    for (u32 k = 0; k < 2; k++)
      wrong[1] += g[(4 + k) * 32 + l] != (value(8 * k + c, r) | value(8 * k + c + 1, r) << 16);
    wrong[2] += g[6 * 32 + l] != (value(r + 1, c) | value(r + 1, c + 1) << 16);
  }
  check(!wrong[0], "ldmatrix.x4");
  check(!wrong[1], "ldmatrix.x2.trans");
  check(!wrong[2], "ldmatrix.x1 with an offset");
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
__global__ void store_matrices(u16 *out)
{
  __shared__ __align__(16) u16 s[2 * 16 * 8];
  const u32 l = threadIdx.x, r0 = l * 2 | (l * 2 + 1) << 16, r1 = r0 + 64 + (64 << 16);
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1,%2};" ::"r"(shared_address(&s[l % 16 * 8])), "r"(r0),
               "r"(r1)
               : "memory");
  asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(shared_address(&s[128 + l % 8 * 8])),
               "r"(r0)
               : "memory");
  __syncwarp();
  for (u32 k = l; k < 192; k += 32) out[k] = s[k];
}
#else
__global__ void store_matrices(u16 *) {}
#endif

static void test_stmatrix()
{
  u16 *out = on_device<u16>(192);
  store_matrices<<<1, 32>>>(out);
  const std::vector<u16> g = from_device(out, 192);
  int wrong = 0;
  for (u32 k = 0; k < 128; k++) wrong += g[k] != k;
  for (u32 k = 0; k < 64; k++) wrong += g[128 + k] != k % 8 * 8 + k / 8;
  check(!wrong, "stmatrix, also .trans");
}

/* --- mma.sync: a warp, fragments filled as the manual's tables say --- */

enum Kind { bf16, f16, f16_sums, tf32 };

template <Kind KIND, int K> __device__ void multiply(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2])
{
#define MMA(shape, in, regs_a, regs_b, ...)                                                                            \
  asm volatile("mma.sync.aligned." shape ".row.col.f32." in "." in ".f32 {%0,%1,%2,%3}, {" regs_a "}, {" regs_b        \
               "}, {%0,%1,%2,%3};"                                                                                     \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                        \
               : __VA_ARGS__)
  if constexpr (KIND == bf16 && K == 16)
    MMA("m16n8k16", "bf16", "%4,%5,%6,%7", "%8,%9", "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  if constexpr (KIND == bf16 && K == 8) MMA("m16n8k8", "bf16", "%4,%5", "%6", "r"(a[0]), "r"(a[1]), "r"(b[0]));
  if constexpr (KIND == f16 && K == 16)
    MMA("m16n8k16", "f16", "%4,%5,%6,%7", "%8,%9", "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  if constexpr (KIND == tf32 && K == 8)
    MMA("m16n8k8", "tf32", "%4,%5,%6,%7", "%8,%9", "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  if constexpr (KIND == f16_sums && K == 16) {
    __half2 c0 = __floats2half2_rn(d[0], d[1]), c1 = __floats2half2_rn(d[2], d[3]);
    u32 x, y;
    memcpy(&x, &c0, 4);
    memcpy(&y, &c1, 4);
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};"
                 : "+r"(x), "+r"(y)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    memcpy(&c0, &x, 4);
    memcpy(&c1, &y, 4);
    d[0] = __low2float(c0);
    d[1] = __high2float(c0);
    d[2] = __low2float(c1);
    d[3] = __high2float(c1);
  }
}

template <Kind KIND> __device__ u32 as_input(float x, float y) /* a pair, or the first as tf32 */
{
  u32 r;
  if (KIND == tf32) return __float_as_uint(x);
  if (KIND == bf16) {
    const __nv_bfloat162 p = __floats2bfloat162_rn(x, y);
    memcpy(&r, &p, 4);
  } else {
    const __half2 p = __floats2half2_rn(x, y);
    memcpy(&r, &p, 4);
  }
  return r;
}

template <Kind KIND, int K> __global__ void product(float *d, const float *a, const float *b, const float *c)
{
  const int g = (int)threadIdx.x / 4, t = (int)threadIdx.x % 4;
  u32 fa[4], fb[2];
  float acc[4];
  for (int r = 0; r < 4; r++) {
    const int row = g + 8 * (r & 1), k = KIND == tf32 ? t + 4 * (r >> 1) : 2 * t + 8 * (r >> 1);
    fa[r] = k < K ? as_input<KIND>(a[row * K + k], a[row * K + (k + 1) % K]) : 0;
    acc[r] = c[(g + 8 * (r >> 1)) * 8 + 2 * t + (r & 1)];
  }
  for (int r = 0; r < 2; r++) {
    const int k = KIND == tf32 ? t + 4 * r : 2 * t + 8 * r;
    fb[r] = k < K ? as_input<KIND>(b[k * 8 + g], b[(k + 1) % K * 8 + g]) : 0;
  }
  multiply<KIND, K>(acc, fa, fb);
  for (int r = 0; r < 4; r++) d[(g + 8 * (r >> 1)) * 8 + 2 * t + (r & 1)] = acc[r];
}

template <Kind KIND, int K> static void test_mma(const char *name)
{
  std::vector<float> a, b, c; /* sixteenths: exact in every type */
  for (int i = 0; i < 16 * K; i++) a.push_back((float)((int)(random_word() % 33) - 16) / 16);
  for (int i = 0; i < K * 8; i++) b.push_back((float)((int)(random_word() % 33) - 16) / 16);
  for (int i = 0; i < 16 * 8; i++) c.push_back((float)((int)(random_word() % 33) - 16) / 4);
  float *d = on_device<float>(128);
  product<KIND, K><<<1, 32>>>(d, to_device(a), to_device(b), to_device(c));
  const std::vector<float> got = from_device(d, 128);
  int wrong = 0;
  for (int r = 0; r < 16; r++)
    for (int n = 0; n < 8; n++) {
      double want = c[(size_t)(r * 8 + n)];
      for (int k = 0; k < K; k++) want += (double)a[(size_t)(r * K + k)] * b[(size_t)(k * 8 + n)];
      wrong +=
          KIND == f16_sums ? !(std::fabs(got[(size_t)(r * 8 + n)] - want) < 0.01) : got[(size_t)(r * 8 + n)] != want;
    }
  check(!wrong, "mma.sync %s", name);
}

/* --- cp.async --- */

__global__ void copies(int *out, const int *in, int n)
{
  __shared__ __align__(16) int s[3][128];
  const int t = (int)threadIdx.x;
  auto load = [&](int stage) {
    const int valid = n - (stage * 128 + t * 4), bytes = valid >= 4 ? 16 : valid > 0 ? valid * 4 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(&s[stage % 3][t * 4])),
                 "l"(in + (bytes ? stage * 128 + t * 4 : 0)), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  load(0);
  load(1);
  for (int stage = 0; stage < 4; stage++) { /* the last is cut off by n */
    if (stage + 2 < 4)
      load(stage + 2);
    else
      asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group 2;" ::: "memory");
    __syncthreads();
    for (int k = 0; k < 4; k++) out[stage * 128 + k * 32 + t] = s[stage % 3][127 - (k * 32 + t)];
    __syncthreads();
  }
}

static void test_copies()
{
  std::vector<int> in(450);
  for (int &v : in) v = (int)random_word();
  int *out = on_device<int>(512);
  copies<<<1, 32>>>(out, to_device(in), (int)in.size());
  const std::vector<int> g = from_device(out, 512);
  int wrong = 0;
  for (size_t i = 0; i < 512; i++) {
    const size_t from = i / 128 * 128 + 127 - i % 128;
    wrong += g[i] != (from < in.size() ? in[from] : 0);
  }
  check(!wrong, "cp.async in three stages, zeros past the end");
}

int main()
{
  cudaDeviceProp p;
  begin();
  CUDA(cudaGetDeviceProperties(&p, 0));
  test_ldmatrix();
  if (p.major >= 9) test_stmatrix();
  test_mma<bf16, 16>("m16n8k16 bf16");
  test_mma<bf16, 8>("m16n8k8 bf16");
  test_mma<f16, 16>("m16n8k16 f16");
  test_mma<f16_sums, 16>("m16n8k16 f16, sums in f16");
  test_mma<tf32, 8>("m16n8k8 tf32");
  test_copies();
  return finish();
}
