/* tests/cudaemu/hopper.cu - mbarrier, bulk and tensor copies, wgmma: the instructions of sm_90a. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include <cmath>
#include <cuda.h>
#include <cuda_bf16.h>

typedef unsigned u32;
typedef unsigned long long u64;
typedef unsigned short u16;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define SM90 1
#else
#define SM90 0
#endif

__device__ u32 shared_address(const void *p)
{
  return (u32)__cvta_generic_to_shared(p);
}

__device__ void mbarrier_init(u64 *b, int n)
{
#if SM90
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(n) : "memory");
#endif
}

__device__ void arrive(u64 *b)
{
#if SM90
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
#endif
}

__device__ void expect(u64 *b, u32 bytes)
{
#if SM90
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes)
               : "memory");
#endif
}

__device__ void wait(u64 *b, u32 parity)
{
#if SM90
  asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra again; }" ::"r"(
                   shared_address(b)),
               "r"(parity)
               : "memory");
#endif
}

__device__ void proxy_fence()
{
#if SM90
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

__device__ void tile_load(void *to, const CUtensorMap *m, int x, int y, u64 *b)
{
#if SM90
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
          "r"(shared_address(to)),
      "l"(m), "r"(x), "r"(y), "r"(shared_address(b))
      : "memory");
#endif
}

/* --- bulk copies: a producer warp, two consumer warps, two stages --- */

__global__ void pipeline(int *out, const int *in, int stages)
{
#if SM90
  __shared__ __align__(128) int s[2][64];
  __shared__ u64 full[2], empty[2];
  const int t = (int)threadIdx.x;
  if (t == 0)
    for (int k = 0; k < 2; k++) {
      mbarrier_init(&full[k], 1);
      mbarrier_init(&empty[k], 2);
    }
  __syncthreads();
  for (int k = 0; k < stages; k++) {
    const u32 parity = (u32)(k / 2 & 1);
    if (t == 64) {
      if (k >= 2) wait(&empty[k % 2], parity ^ 1);
      expect(&full[k % 2], 256);
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(
                       shared_address(s[k % 2])),
                   "l"(in + k * 64), "r"(shared_address(&full[k % 2]))
                   : "memory");
    } else if (t < 64) {
      wait(&full[k % 2], parity);
      out[k * 64 + t] = s[k % 2][63 - t];
      __syncwarp();
      if (t % 32 == 0) arrive(&empty[k % 2]);
    }
  }
#endif
}

__global__ void store_row(int *out)
{
#if SM90
  __shared__ __align__(128) int s[64];
  s[threadIdx.x] = (int)threadIdx.x * 3;
  proxy_fence();
  __syncthreads();
  if (threadIdx.x > 0) return;
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(out), "r"(shared_address(s))
               : "memory");
  asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
}

static void test_bulk()
{
  std::vector<int> in(7 * 64);
  for (int &v : in) v = (int)random_word();
  int *out = on_device<int>(in.size());
  pipeline<<<1, 96>>>(out, to_device(in), 7);
  std::vector<int> g = from_device(out, in.size());
  int wrong = 0;
  for (size_t i = 0; i < in.size(); i++) wrong += g[i] != in[i / 64 * 64 + 63 - i % 64];
  check(!wrong, "bulk loads between a producer and two consumers");
  store_row<<<1, 64>>>(out);
  g = from_device(out, 64);
  for (int i = 0; i < 64; i++) wrong += g[(size_t)i] != 3 * i;
  check(!wrong, "a bulk store");
}

/* --- tensor copies --- */

static CUresult encode(CUtensorMap *m, void *p, u32 columns, u32 rows, u32 box_x, u32 box_y, CUtensorMapSwizzle swizzle)
{
  static decltype(&cuTensorMapEncodeTiled) f;
  cudaDriverEntryPointQueryResult found;
  CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&f, 12000, cudaEnableDefault, &found));
  const cuuint64_t size[] = {columns, rows}, stride[] = {columns * 2};
  const cuuint32_t box[] = {box_x, box_y}, one[] = {1, 1};
  return f(m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, p, size, stride, box, one, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
           CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

__global__ void load_tile(u16 *out, const __grid_constant__ CUtensorMap map, int x, int y, int n)
{
#if SM90
  __shared__ __align__(1024) u16 s[64 * 64];
  __shared__ u64 bar;
  if (threadIdx.x == 0) {
    mbarrier_init(&bar, 1);
    expect(&bar, (u32)n * 2);
    tile_load(s, &map, x, y, &bar);
  }
  __syncthreads();
  wait(&bar, 0);
  for (int k = (int)threadIdx.x; k < n; k += (int)blockDim.x) out[k] = s[k];
#endif
}

__global__ void store_tile(const __grid_constant__ CUtensorMap map, int x, int y)
{
#if SM90
  __shared__ __align__(1024) u16 s[8 * 16];
  for (int k = (int)threadIdx.x; k < 128; k += 32) s[k] = (u16)(1000 + k);
  proxy_fence();
  __syncwarp();
  if (threadIdx.x > 0) return;
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(x),
               "r"(y), "r"(shared_address(s))
               : "memory");
  asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
#endif
}

/* CUTLASS' Swizzle<B, 4, 3>: of a byte's offset, bits 7.. are added (xor) to bits 4... */
static void test_tiles()
{
  std::vector<u16> a(50 * 80);
  for (size_t i = 0; i < a.size(); i++) a[i] = (u16)(i + 1);
  u16 *d = to_device(a), *out = on_device<u16>(64 * 64);
  const struct {
    CUtensorMapSwizzle swizzle;
    u32 box_x, mask;
  } modes[] = {{CU_TENSOR_MAP_SWIZZLE_NONE, 32, 0},
               {CU_TENSOR_MAP_SWIZZLE_32B, 16, 1},
               {CU_TENSOR_MAP_SWIZZLE_64B, 32, 3},
               {CU_TENSOR_MAP_SWIZZLE_128B, 64, 7}};
  for (const auto &mode : modes) {
    CUtensorMap m;
    const u32 box_y = 16, n = mode.box_x * box_y;
    int wrong = encode(&m, d, 80, 50, mode.box_x, box_y, mode.swizzle) != CUDA_SUCCESS;
    load_tile<<<1, 64>>>(out, m, 24, 40, (int)n); /* past the last row, and for the wide box past the last column */
    const std::vector<u16> g = from_device(out, n);
    for (u32 y = 0; y < box_y; y++)
      for (u32 x = 0; x < mode.box_x; x++) {
        u32 at = (y * mode.box_x + x) * 2;
        at ^= (at >> 7 & mode.mask) << 4;
        wrong += g[at / 2] != (40 + y < 50 && 24 + x < 80 ? a[(40 + y) * 80 + 24 + x] : 0);
      }
    check(!wrong, "tensor tiles, swizzle %d, cut off at the edges", (int)mode.swizzle);
  }
  CUtensorMap m;
  int wrong = encode(&m, d, 80, 50, 16, 8, CU_TENSOR_MAP_SWIZZLE_NONE) != CUDA_SUCCESS;
  store_tile<<<1, 32>>>(m, 72, 10); /* half of it lies outside */
  const std::vector<u16> g = from_device(d, a.size());
  for (u32 y = 0; y < 50; y++)
    for (u32 x = 0; x < 80; x++)
      wrong += g[y * 80 + x] != (y >= 10 && y < 18 && x >= 72 ? 1000 + (y - 10) * 16 + x - 72 : a[y * 80 + x]);
  check(!wrong, "a tile stored across the edge");
  check(encode(&m, d, 80, 50, 64, 16, CU_TENSOR_MAP_SWIZZLE_64B) != CUDA_SUCCESS,
        "a box wider than its swizzle is refused");
  check(encode(&m, d + 4, 80, 50, 16, 16, CU_TENSOR_MAP_SWIZZLE_NONE) != CUDA_SUCCESS, "a base of 8 bytes is refused");
}

/* A tensor [b][t][h][d] of 2, 5, 3 and 40, a box of 8 t and 16 d: the heads between rows, and what lies behind a b's
 * last t is not the next b's. */
__global__ void load_box(u16 *out, const __grid_constant__ CUtensorMap map, int d, int h, int t, int b)
{
#if SM90
  __shared__ __align__(1024) u16 s[8 * 16];
  __shared__ u64 bar;
  if (threadIdx.x == 0) {
    mbarrier_init(&bar, 1);
    expect(&bar, 256);
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
                 "[%1, {%2, %3, %4, %5}], [%6];" ::"r"(shared_address(s)),
                 "l"(&map), "r"(d), "r"(h), "r"(t), "r"(b), "r"(shared_address(&bar))
                 : "memory");
  }
  __syncthreads();
  wait(&bar, 0);
  for (int k = (int)threadIdx.x; k < 128; k += (int)blockDim.x) out[k] = s[k];
#endif
}

static void test_box()
{
  std::vector<u16> a(2 * 5 * 3 * 40);
  for (size_t i = 0; i < a.size(); i++) a[i] = (u16)(i + 1);
  decltype(&cuTensorMapEncodeTiled) f;
  cudaDriverEntryPointQueryResult found;
  CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&f, 12000, cudaEnableDefault, &found));
  const cuuint64_t size[] = {40, 3, 5, 2}, stride[] = {80, 240, 1200};
  const cuuint32_t box[] = {16, 1, 8, 1}, one[] = {1, 1, 1, 1};
  CUtensorMap m;
  int wrong =
      f(&m, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, to_device(a), size, stride, box, one, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS;
  u16 *out = on_device<u16>(128);
  load_box<<<1, 32>>>(out, m, 32, 1, 2, 0);
  const std::vector<u16> g = from_device(out, 128);
  for (u32 t = 0; t < 8; t++)
    for (u32 d = 0; d < 16; d++)
      wrong += g[t * 16 + d] != (2 + t < 5 && 32 + d < 40 ? a[((2 + t) * 3 + 1) * 40 + 32 + d] : 0);
  check(!wrong, "a box of a tensor of four dimensions, cut off at the end of two");
}

/* --- wgmma m64n32k16: operands laid out by hand --- */

constexpr int N = 32, KS = 64; /* columns of d, depth: four products */

/* Operand X[mn][k] of `rows` rows, K-major, rows of 128 bytes swizzled; or MN-major: 64 of mn a row. */
__device__ u32 k_major(int mn, int k)
{
  const u32 at = (u32)(mn / 8 * 1024 + mn % 8 * 128 + k * 2);
  return at ^ (at >> 7 & 7) << 4;
}

__device__ u32 mn_major(int mn, int k) /* atoms of 64 x 8: along k 1024 bytes apart */
{
  const u32 at = (u32)(mn / 64 * 8192 + k / 8 * 1024 + k % 8 * 128 + mn % 64 * 2);
  return at ^ (at >> 7 & 7) << 4;
}

__device__ u64 descriptor(u32 at, u32 leading, u32 stride)
{
  return (u64)(at >> 4 & 0x3fff) | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32 | 1ull << 62;
}

template <bool A_IN_REGISTERS, bool B_MN_MAJOR> __global__ void wgmma(float *d, const u16 *a, const u16 *b)
{
#if SM90
  __shared__ __align__(1024) unsigned char sa[64 * KS * 2], sb[64 * KS * 2];
  const int t = (int)threadIdx.x, l = t % 32, w = t / 32;
  for (int i = t; i < 64 * KS; i += 128) memcpy(sa + k_major(i / KS, i % KS), a + i, 2);
  for (int i = t; i < 64 * KS; i += 128) {
    const int n = i / KS, k = i % KS;
    const u16 v = n < N ? b[n * KS + k] : 0;
    memcpy(sb + (B_MN_MAJOR ? mn_major(n, k) : k_major(n, k)), &v, 2);
  }
  proxy_fence();
  __syncthreads();
  float x[16] = {};
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#define D "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}"
#define OUT                                                                                                            \
  "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3]), "+f"(x[4]), "+f"(x[5]), "+f"(x[6]), "+f"(x[7]), "+f"(x[8]),          \
      "+f"(x[9]), "+f"(x[10]), "+f"(x[11]), "+f"(x[12]), "+f"(x[13]), "+f"(x[14]), "+f"(x[15])
  for (int k = 0; k < KS; k += 16) {
    const u64 db = B_MN_MAJOR ? descriptor(shared_address(sb) + (u32)k / 8 * 1024, 8192, 1024)
                              : descriptor(shared_address(sb) + (u32)k * 2, 16, 1024);
    if (A_IN_REGISTERS) {
      u32 r[4];
      for (int q = 0; q < 4; q++)
        memcpy(&r[q], a + (16 * w + l / 4 + 8 * (q & 1)) * KS + k + l % 4 * 2 + 8 * (q >> 1), 4);
      asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 " D ", {%16,%17,%18,%19}, %20, 1, 1, 1, %21;"
                   : OUT
                   : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "l"(db), "n"(B_MN_MAJOR));
    } else {
      asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 " D ", %16, %17, 1, 1, 1, 0, %18;"
                   : OUT
                   : "l"(descriptor(shared_address(sa) + (u32)k * 2, 16, 1024)), "l"(db), "n"(B_MN_MAJOR));
    }
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" : OUT::"memory");
  }
  for (int r = 0; r < 16; r++) d[(16 * w + l / 4 + 8 * (r / 2 % 2)) * N + r / 4 * 8 + l % 4 * 2 + r % 2] = x[r];
#endif
}

static void test_wgmma()
{
  std::vector<u16> a, b;
  auto next = [] { return (float)((int)(random_word() % 33) - 16) / 16; };
  auto bits = [](float f) {
    u32 u;
    memcpy(&u, &f, 4);
    return (u16)(u >> 16);
  };
  std::vector<float> fa, fb;
  for (int i = 0; i < 64 * KS; i++) fa.push_back(next());
  for (int i = 0; i < N * KS; i++) fb.push_back(next());
  for (float f : fa) a.push_back(bits(f));
  for (float f : fb) b.push_back(bits(f));
  float *d = on_device<float>(64 * N);
  const u16 *da = to_device(a), *db = to_device(b);
  for (int which = 0; which < 4; which++) {
    if (which == 0) wgmma<false, false><<<1, 128>>>(d, da, db);
    if (which == 1) wgmma<true, false><<<1, 128>>>(d, da, db);
    if (which == 2) wgmma<false, true><<<1, 128>>>(d, da, db);
    if (which == 3) wgmma<true, true><<<1, 128>>>(d, da, db);
    const std::vector<float> g = from_device(d, 64 * N);
    int wrong = 0;
    for (int r = 0; r < 64; r++)
      for (int n = 0; n < N; n++) {
        float want = 0;
        for (int k = 0; k < KS; k++) want += fa[(size_t)(r * KS + k)] * fb[(size_t)(n * KS + k)];
        wrong += g[(size_t)(r * N + n)] != want;
      }
    check(!wrong, "wgmma, a in %s, b %s-major", which & 1 ? "registers" : "shared memory", which & 2 ? "MN" : "K");
  }
}

/* m64n128k16 in f16: b [16][128] turned over, its columns in two atoms that lie 2048 bytes apart; d begins as 1, and
 * the product is added or not. */
__global__ void wide_wgmma(float *d, const u16 *a, const u16 *b, int add)
{
#if SM90
  __shared__ __align__(1024) unsigned char s[2 * 2048];
  const int t = (int)threadIdx.x, l = t % 32, w = t / 32;
  for (int i = t; i < 16 * 128; i += 128) {
    const u32 at = (u32)(i / 128 * 128 + i % 64 * 2);
    memcpy(s + i % 128 / 64 * 2048 + (at ^ (at >> 7 & 7) << 4), b + i, 2);
  }
  proxy_fence();
  __syncthreads();
  float x[16][4];
  for (auto &part : x)
    for (float &v : part) v = 1;
  u32 r[4];
  for (int q = 0; q < 4; q++) memcpy(&r[q], a + (16 * w + l / 4 + 8 * (q & 1)) * 16 + l % 4 * 2 + 8 * (q >> 1), 4);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#define X1(n) "+f"(x[n][0]), "+f"(x[n][1]), "+f"(x[n][2]), "+f"(x[n][3])
#define X4(n) X1(n), X1(n + 1), X1(n + 2), X1(n + 3)
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %69, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,"
      "%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,"
      "%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, {%64,%65,%66,%67}, %68, p, 1, 1, 1; }"
      : X4(0), X4(4), X4(8), X4(12)
      : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "l"(descriptor(shared_address(s), 2048, 1024)), "r"(add));
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;"
               : X4(0), X4(4), X4(8), X4(12)::"memory");
  for (int n = 0; n < 16; n++)
    for (int e = 0; e < 4; e++) d[(16 * w + l / 4 + e / 2 * 8) * 128 + 8 * n + l % 4 * 2 + e % 2] = x[n][e];
#endif
}

static void test_wide()
{
  static const u16 halves[] = {0x0000, 0x3c00, 0xbc00, 0x3800, 0x4000, 0xb800}; /* IEEE: 0, 1, -1, 1/2, 2, -1/2 */
  static const float values[] = {0, 1, -1, 0.5f, 2, -0.5f};
  std::vector<u16> a, b;
  std::vector<float> fa, fb;
  for (int i = 0; i < (64 + 128) * 16; i++) {
    const u32 k = random_word() % 6;
    (i < 64 * 16 ? a : b).push_back(halves[k]);
    (i < 64 * 16 ? fa : fb).push_back(values[k]);
  }
  float *d = on_device<float>(64 * 128);
  for (int add = 0; add < 2; add++) {
    wide_wgmma<<<1, 128>>>(d, to_device(a), to_device(b), add);
    const std::vector<float> g = from_device(d, 64 * 128);
    int wrong = 0;
    for (size_t r = 0; r < 64; r++)
      for (size_t n = 0; n < 128; n++) {
        float want = (float)add;
        for (size_t k = 0; k < 16; k++) want += fa[r * 16 + k] * fb[k * 128 + n];
        wrong += g[r * 128 + n] != want;
      }
    check(!wrong, "wgmma of 128 columns in f16, b MN-major in two atoms, %s", add ? "added" : "not added");
  }
}

int main()
{
  begin();
  test_bulk();
  test_tiles();
  test_box();
  test_wide();
  test_wgmma();
  return finish();
}
