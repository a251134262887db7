/* tests/cudaemu/conversions.cu - cvt and 16-bit arithmetic against NVIDIA's own functions for the host. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include <climits>
#include <cmath>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef unsigned u32;
typedef long long s64;
typedef unsigned short u16;

static float from_bits(u32 b)
{
  float f;
  memcpy(&f, &b, 4);
  return f;
}

template <class T> static u16 bits_of(T h)
{
  u16 b;
  memcpy(&b, &h, 2);
  return b;
}

/* Every pattern of the upper half, with lower halves around the ties. */
static std::vector<float> many_floats()
{
  std::vector<float> v;
  for (u32 top = 0; top < 65536; top += 3)
    for (u32 low : {0u, 0x1000u, 0x7fffu, 0x8000u, 0x8001u}) v.push_back(from_bits(top << 16 | low));
  for (float f : {65504.f, 65519.f, 65520.f, 5.96e-8f, 2.98e-8f, 2.99e-8f, 6.1e-5f, 6.09e-5f}) v.push_back(f);
  return v;
}

__global__ void to_halves(u16 *h, u16 *b, u16 *bz, u32 *pair, const float *f, int n)
{
  const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  asm volatile("cvt.rn.f16.f32 %0, %1;" : "=h"(h[i]) : "f"(f[i]));
  asm volatile("cvt.rn.bf16.f32 %0, %1;" : "=h"(b[i]) : "f"(f[i]));
  asm volatile("cvt.rz.bf16.f32 %0, %1;" : "=h"(bz[i]) : "f"(f[i]));
  asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair[i]) : "f"(f[i]), "f"(-f[i]));
}

__global__ void from_halves(float *h, float *b, int n)
{
  const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  const u16 x = (u16)i;
  asm volatile("cvt.f32.f16 %0, %1;" : "=f"(h[i]) : "h"(x));
  asm volatile("cvt.f32.bf16 %0, %1;" : "=f"(b[i]) : "h"(x));
}

/* NaN has one pattern on the device, another on the host. */
static bool same(u16 got, u16 want, u16 infinity)
{
  return got == want || ((want & 0x7fff) > infinity && got == 0x7fff);
}

static void halves()
{
  const std::vector<float> f = many_floats();
  const int n = (int)f.size();
  u16 *h = on_device<u16>(f.size()), *b = on_device<u16>(f.size()), *bz = on_device<u16>(f.size());
  u32 *p = on_device<u32>(f.size());
  to_halves<<<(n + 127) / 128, 128>>>(h, b, bz, p, to_device(f), n);
  CUDA(cudaDeviceSynchronize());
  const std::vector<u16> H = from_device(h, f.size()), B = from_device(b, f.size()), Z = from_device(bz, f.size());
  const std::vector<u32> P = from_device(p, f.size());
  int wrong[4] = {0, 0, 0, 0};
  for (size_t i = 0; i < f.size(); i++) {
    wrong[0] += !same(H[i], bits_of(__float2half_rn(f[i])), 0x7c00);
    wrong[1] += !same(B[i], bits_of(__float2bfloat16_rn(f[i])), 0x7f80);
    wrong[2] += !same(Z[i], bits_of(__float2bfloat16_rz(f[i])), 0x7f80);
    wrong[3] += !same((u16)(P[i] >> 16), bits_of(__float2bfloat16_rn(f[i])), 0x7f80) ||
                !same((u16)P[i], bits_of(__float2bfloat16_rn(-f[i])), 0x7f80);
  }
  check(!wrong[0], "f32 to f16, %d numbers", n);
  check(!wrong[1], "f32 to bf16");
  check(!wrong[2], "f32 to bf16 towards zero");
  check(!wrong[3], "two f32 to a pair, the first above");
  float *fh = on_device<float>(65536), *fb = on_device<float>(65536);
  from_halves<<<512, 128>>>(fh, fb, 65536);
  const std::vector<float> FH = from_device(fh, 65536), FB = from_device(fb, 65536);
  int bad = 0;
  for (u32 i = 0; i < 65536; i++) {
    __half_raw r;
    r.x = (u16)i;
    const float want = __half2float(__half(r)), b32 = from_bits(i << 16);
    bad += memcmp(&FH[i], &want, 4) && want == want;
    bad += memcmp(&FB[i], &b32, 4) && b32 == b32;
  }
  check(!bad, "all f16 and bf16 to f32");
}

__global__ void to_integers(s64 *out, const float *f, int n)
{
  const int i = (int)threadIdx.x;
  if (i >= n) return;
  int a, b, c, d;
  u32 e;
  short s;
  u16 u;
  asm volatile("cvt.rni.s32.f32 %0, %1;" : "=r"(a) : "f"(f[i]));
  asm volatile("cvt.rzi.s32.f32 %0, %1;" : "=r"(b) : "f"(f[i]));
  asm volatile("cvt.rmi.s32.f32 %0, %1;" : "=r"(c) : "f"(f[i]));
  asm volatile("cvt.rpi.s32.f32 %0, %1;" : "=r"(d) : "f"(f[i]));
  asm volatile("cvt.rzi.u32.f32 %0, %1;" : "=r"(e) : "f"(f[i]));
  asm volatile("cvt.rzi.s64.f32 %0, %1;" : "=l"(out[6 * n + i]) : "f"(f[i]));
  asm volatile("cvt.sat.s16.s32 %0, %1;" : "=h"(s) : "r"(b));
  asm volatile("cvt.u16.u32 %0, %1;" : "=h"(u) : "r"(e));
  out[i] = a;
  out[n + i] = b;
  out[2 * n + i] = c;
  out[3 * n + i] = d;
  out[4 * n + i] = (s64)e;
  out[5 * n + i] = s;
  out[7 * n + i] = u;
}

static s64 clamp(double v, double lo, double hi, s64 low, s64 high)
{
  return v != v ? 0 : v <= lo ? low : v >= hi ? high : (s64)v;
}

static void integers()
{
  const std::vector<float> f = {0,    -0.f,  0.5f, 1.5f,   2.5f,    -0.5f,    -1.5f,  1e9f,    3e9f,     -3e9f,
                                5e9f, 1e19f, NAN,  -1e19f, 40000.f, -40000.f, 0.999f, -0.999f, INFINITY, -INFINITY};
  const int n = (int)f.size();
  s64 *out = on_device<s64>((size_t)(8 * n));
  to_integers<<<1, 32>>>(out, to_device(f), n);
  const std::vector<s64> got = from_device(out, (size_t)(8 * n));
  int wrong = 0;
  for (int i = 0; i < n; i++) {
    const double x = f[(size_t)i], r[] = {std::nearbyint(x), std::trunc(x), std::floor(x), std::ceil(x)};
    auto at = [&](int row) { return got[(size_t)(row * n + i)]; };
    for (int k = 0; k < 4; k++) wrong += at(k) != clamp(r[k], INT_MIN, INT_MAX, INT_MIN, INT_MAX);
    wrong += at(4) != clamp(r[1], 0, UINT_MAX, 0, UINT_MAX);
    wrong += at(5) != clamp((double)at(1), SHRT_MIN, SHRT_MAX, SHRT_MIN, SHRT_MAX);
    wrong += at(6) !=
             (x != x ? LLONG_MIN : clamp(r[1], -9.2233720368547758e18, 9.2233720368547758e18, LLONG_MIN, LLONG_MAX));
    wrong += at(7) != (at(4) & 0xffff);
  }
  check(!wrong, "f32 to integers: four roundings, saturation, NaN");
}

__global__ void from_integers(float *out, double *wide, s64 *low, const s64 *v, int n)
{
  const int i = (int)threadIdx.x;
  if (i >= n) return;
  asm volatile("cvt.rn.f32.s64 %0, %1;" : "=f"(out[i]) : "l"(v[i]));
  asm volatile("cvt.rn.f32.u32 %0, %1;" : "=f"(out[n + i]) : "r"((u32)v[i]));
  asm volatile("cvt.rz.f32.s32 %0, %1;" : "=f"(out[2 * n + i]) : "r"((int)v[i]));
  asm volatile("cvt.rn.f64.s64 %0, %1;" : "=d"(wide[i]) : "l"(v[i]));
  asm volatile("cvt.s64.s32 %0, %1;" : "=l"(low[i]) : "l"(v[i])); /* of a wider register */
}

static float cut(int v) /* to 24 bits, towards zero */
{
  u32 a = v < 0 ? 0u - (u32)v : (u32)v;
  for (u32 bit = 0; a >> 24 >> bit; bit++) a &= ~(1u << bit);
  return v < 0 ? -(float)a : (float)a;
}

static void reals()
{
  const std::vector<s64> v = {0,
                              1,
                              -1,
                              16777217,
                              33554435,
                              INT_MAX,
                              INT_MIN,
                              0xffffffffll,
                              1ll << 53,
                              (1ll << 53) + 1,
                              LLONG_MAX,
                              LLONG_MIN,
                              0x7fffff4000000001ll,
                              -16777219};
  const int n = (int)v.size();
  float *f = on_device<float>((size_t)(3 * n));
  double *d = on_device<double>((size_t)n);
  s64 *low = on_device<s64>((size_t)n);
  from_integers<<<1, 32>>>(f, d, low, to_device(v), n);
  const std::vector<float> F = from_device(f, (size_t)(3 * n));
  const std::vector<double> D = from_device(d, (size_t)n);
  const std::vector<s64> L = from_device(low, (size_t)n);
  int wrong = 0;
  for (size_t i = 0; i < v.size(); i++) {
    wrong += F[i] != (float)v[i] || F[v.size() + i] != (float)(u32)v[i] || D[i] != (double)v[i];
    wrong += F[2 * v.size() + i] != cut((int)v[i]) || L[i] != (int)v[i];
  }
  check(!wrong, "integers to f32 and f64, and the lower part of a wider register");
}

__global__ void half_arithmetic(u16 *out, const u16 *a, const u16 *b, const u16 *c, int n)
{
  const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  asm volatile("add.rn.f16 %0, %1, %2;" : "=h"(out[i]) : "h"(a[i]), "h"(b[i]));
  asm volatile("fma.rn.f16 %0, %1, %2, %3;" : "=h"(out[n + i]) : "h"(a[i]), "h"(b[i]), "h"(c[i]));
  asm volatile("fma.rn.bf16 %0, %1, %2, %3;" : "=h"(out[2 * n + i]) : "h"(a[i]), "h"(b[i]), "h"(c[i]));
  const u32 x = a[i] | (u32)b[i] << 16, y = b[i] | (u32)c[i] << 16;
  u32 r;
  asm volatile("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(0x3f803f80), "r"(y)); /* x + y */
  out[3 * n + i] = (u16)(r >> 16);
  asm volatile("max.f16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y));
  out[4 * n + i] = (u16)r;
}

static float half_value(u16 b)
{
  __half_raw r;
  r.x = b;
  return __half2float(__half(r));
}

static float bf16_value(u16 b)
{
  return from_bits((u32)b << 16);
}

static void sixteen_bits()
{
  const int n = 4000;
  std::vector<u16> a, b, c;
  for (int i = 0; i < n; i++) {
    a.push_back((u16)random_word());
    b.push_back((u16)(a.back() + random_word() % 4000));
    c.push_back((u16)(b.back() ^ random_word() % 70000));
  }
  u16 *out = on_device<u16>((size_t)(5 * n));
  half_arithmetic<<<(n + 127) / 128, 128>>>(out, to_device(a), to_device(b), to_device(c), n);
  const std::vector<u16> got = from_device(out, (size_t)(5 * n));
  int wrong[4] = {0, 0, 0, 0};
  for (size_t i = 0; i < a.size(); i++) {
    auto at = [&](size_t row) { return got[row * (size_t)n + i]; };
    const double x = half_value(a[i]), y = half_value(b[i]), z = half_value(c[i]);
    const double p = bf16_value(a[i]), q = bf16_value(b[i]), r = bf16_value(c[i]);
    wrong[0] += !same(at(0), bits_of(__double2half(x + y)), 0x7c00);
    wrong[1] += !same(at(1), bits_of(__double2half((double)((long double)x * y + z))), 0x7c00);
    wrong[2] += !same(at(2), bits_of(__double2bfloat16((double)((long double)p * q + r))), 0x7f80) ||
                !same(at(3), bits_of(__double2bfloat16(q + r)), 0x7f80);
    if (x == x && y == y) wrong[3] += half_value(at(4)) != (x > y ? x : y);
  }
  check(!wrong[0], "add.f16 rounds once");
  check(!wrong[1], "fma.f16 rounds once");
  check(!wrong[2], "fma.bf16 and of pairs");
  check(!wrong[3], "max of pairs");
}

__global__ void approximations(float *out, const float *x, int n)
{
  const int i = (int)threadIdx.x;
  if (i >= n) return;
  asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(out[i]) : "f"(x[i]));
  asm volatile("lg2.approx.f32 %0, %1;" : "=f"(out[n + i]) : "f"(x[i]));
  asm volatile("tanh.approx.f32 %0, %1;" : "=f"(out[2 * n + i]) : "f"(x[i]));
  asm volatile("rsqrt.approx.f32 %0, %1;" : "=f"(out[3 * n + i]) : "f"(x[i]));
  out[4 * n + i] = __expf(x[i]) + sinf(x[i]) + erff(x[i]) + powf(x[i], 1.5f); /* nvcc's own library */
}

static void functions()
{
  const std::vector<float> x = {0.001f, 0.1f, 0.5f, 1, 2, 3.3f, 7, 10.5f};
  const size_t n = x.size();
  float *out = on_device<float>(5 * n);
  approximations<<<1, 32>>>(out, to_device(x), (int)n);
  const std::vector<float> got = from_device(out, 5 * n);
  double worst = 0;
  for (size_t i = 0; i < n; i++) {
    const double v = x[i], want[] = {exp2(v), log2(v), tanh(v), 1 / sqrt(v), exp(v) + sin(v) + erf(v) + pow(v, 1.5)};
    for (size_t k = 0; k < 5; k++) {
      const double e = std::fabs(got[k * n + i] - want[k]) / (1 + std::fabs(want[k]));
      if (!(e <= worst)) worst = e; /* NaN is the worst */
    }
  }
  check(worst < 3e-6, "exp2, log2, tanh, rsqrt, and exp, sin, erf, pow as nvcc compiles them: %.1e", worst);
}

int main()
{
  begin();
  halves();
  integers();
  reals();
  sixteen_bits();
  functions();
  return finish();
}
