/* tests/cudaemu/arithmetic.cu - one instruction a kernel, on edge cases and random numbers, against the host. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include <cfenv>
#include <climits>
#include <cmath>
#include <functional>

typedef unsigned u32;
typedef int s32;
typedef unsigned long long u64;
typedef long long s64;
typedef unsigned short u16;
typedef short s16;

/* name(d, a, b, c): d = what the assembly makes of a, b, c */
#define KERNEL(name, D, T, cd, ct, text)                                                                               \
  __global__ void name(D *d, const T *a, const T *b, const T *c, int n)                                                \
  {                                                                                                                    \
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);                                                        \
    D r = 0;                                                                                                           \
    if (i >= n) return;                                                                                                \
    asm volatile("{ .reg .pred p; " text " }" : "=" cd(r) : ct(a[i]), ct(b[i]), ct(c[i]));                             \
    d[i] = r;                                                                                                          \
  }

template <class T> std::vector<T> edges();
template <> std::vector<u32> edges()
{
  return {0, 1, 2, 3, 31, 32, 33, 255, 0x7fff, 0x8000, 0xffff, 0x10000, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};
}
template <> std::vector<s32> edges()
{
  return {0, 1, -1, 2, -2, 31, 32, -32, 0x7fff, -0x8000, 65536, INT_MAX, INT_MIN, INT_MAX - 1, INT_MIN + 1, -12345};
}
template <> std::vector<u64> edges()
{
  return {0, 1, 2, 63, 64, 0xffffffff, 0x100000000ull, 0x7fffffffffffffffull, 1ull << 63, ~0ull, ~0ull - 1, 1ull << 62};
}
template <> std::vector<s64> edges()
{
  return {0, 1, -1, 2, -2, 63, INT_MAX, INT_MIN, LLONG_MAX, LLONG_MIN, LLONG_MIN + 1, -(1ll << 40)};
}
template <> std::vector<u16> edges()
{
  return {0, 1, 2, 15, 16, 255, 256, 0x7fff, 0x8000, 0xfffe, 0xffff, 300};
}
template <> std::vector<s16> edges()
{
  return {0, 1, -1, 2, 15, 16, 255, -256, 0x7fff, -0x8000, -300, 77};
}
template <> std::vector<float> edges()
{
  return {0.f,   -0.f,  1.f,    -1.f,     0.5f, 1.5f,      3.1415927f, -2.75f, 1e-38f, 1e-40f, -1e-42f,
          1e38f, 3e38f, -3e38f, INFINITY, NAN,  -INFINITY, 1e-20f,     7e7f,   1e20f,  0.1f,   1.0000001f};
}
template <> std::vector<double> edges()
{
  return {0., -0., 1., -1., 0.5, 1.5, 3.14159265358979, -2.75, 1e-308, 1e-310, 1e308, INFINITY, NAN, 1e-20, 0.1};
}

template <class T> struct Inputs {
  std::vector<T> a, b, c;
  Inputs()
  {
    const std::vector<T> e = edges<T>();
    for (T x : e)
      for (T y : e) add(x, y, e[random_word() % e.size()]);
    while (a.size() < 1024) add(random(), random(), random());
  }
  void add(T x, T y, T z)
  {
    a.push_back(x);
    b.push_back(y);
    c.push_back(z);
  }
  static T random()
  {
    if (std::is_floating_point<T>::value) return (T)((int)random_word() * pow(2, (int)(random_word() % 60) - 60));
    return (T)(((u64)random_word() << 32 | random_word()) >> random_word() % (8 * sizeof(T)));
  }
};

template <class D> bool same(D x, D y)
{
  if (x != x && y != y) return true;
  return memcmp(&x, &y, sizeof x) == 0;
}

template <class D, class T>
void try_op(const char *name, void (*kernel)(D *, const T *, const T *, const T *, int), std::function<D(T, T, T)> want)
{
  static const Inputs<T> in;
  static T *const a = to_device(in.a), *const b = to_device(in.b), *const c = to_device(in.c);
  const int n = (int)in.a.size();
  D *d = on_device<D>((size_t)n);
  kernel<<<(n + 95) / 96, 96>>>(d, a, b, c, n); /* three warps; the last block is not full */
  CUDA(cudaGetLastError());
  const std::vector<D> got = from_device(d, (size_t)n);
  CUDA(cudaFree(d));
  int wrong = 0;
  for (int i = 0; i < n; i++)
    if (!same<D>(got[(size_t)i], want(in.a[(size_t)i], in.b[(size_t)i], in.c[(size_t)i])) && wrong++ == 0)
      printf("# %s: of %.9g %.9g %.9g: %.17g, want %.17g\n", name, (double)in.a[(size_t)i], (double)in.b[(size_t)i],
             (double)in.c[(size_t)i], (double)got[(size_t)i],
             (double)want(in.a[(size_t)i], in.b[(size_t)i], in.c[(size_t)i]));
  check(wrong == 0, "%s, %d cases", name, n);
}

#define TRY(name, D, T, ...)                                                                                           \
  try_op<D, T>(#name, name, [](T a, T b, T c) -> D {                                                                   \
    (void)a, (void)b, (void)c;                                                                                         \
    __VA_ARGS__;                                                                                                       \
  })

/* --- integers --- */

#define INTEGER(T, s)                                                                                                  \
  KERNEL(add_##T, T, T, s, s, "add." #T " %0, %1, %2;")                                                                \
  KERNEL(sub_##T, T, T, s, s, "sub." #T " %0, %1, %2;")                                                                \
  KERNEL(mul_##T, T, T, s, s, "mul.lo." #T " %0, %1, %2;")                                                             \
  KERNEL(mad_##T, T, T, s, s, "mad.lo." #T " %0, %1, %2, %3;")                                                         \
  KERNEL(mulhi_##T, T, T, s, s, "mul.hi." #T " %0, %1, %2;")                                                           \
  KERNEL(div_##T, T, T, s, s, "setp.eq." #T " p, %2, 0; @!p div." #T " %0, %1, %2; @p mov.b" W_##T " %0, 0;")          \
  KERNEL(rem_##T, T, T, s, s, "setp.eq." #T " p, %2, 0; @!p rem." #T " %0, %1, %2; @p mov.b" W_##T " %0, 0;")          \
  KERNEL(min_##T, T, T, s, s, "min." #T " %0, %1, %2;")                                                                \
  KERNEL(max_##T, T, T, s, s, "max." #T " %0, %1, %2;")                                                                \
  KERNEL(lt_##T, T, T, s, s, "setp.lt." #T " p, %1, %2; selp.b" W_##T " %0, %1, %3, p;")
#define W_u32 "32"
#define W_s32 "32"
#define W_u64 "64"
#define W_s64 "64"
#define W_u16 "16"
#define W_s16 "16"
INTEGER(u32, "r")
INTEGER(s32, "r")
INTEGER(u64, "l")
INTEGER(s64, "l")
INTEGER(u16, "h")
INTEGER(s16, "h")

/* In 128 bits, cut at the end: nothing overflows on the way. */
typedef __int128 wide;
#define TRY_INTEGER(T)                                                                                                 \
  TRY(add_##T, T, T, return (T)((wide)a + b));                                                                         \
  TRY(sub_##T, T, T, return (T)((wide)a - b));                                                                         \
  TRY(mul_##T, T, T, return (T)((unsigned __int128)a * (unsigned __int128)b));                                         \
  TRY(mad_##T, T, T, return (T)((unsigned __int128)a * (unsigned __int128)b + (unsigned __int128)c));                  \
  TRY(mulhi_##T, T, T,                                                                                                 \
      return (T)(std::is_signed<T>::value ? (unsigned __int128)((wide)a * b) >> 8 * sizeof(T)                          \
                                          : ((unsigned __int128)a * (unsigned __int128)b) >> 8 * sizeof(T)));          \
  TRY(div_##T, T, T, return b == 0 ? 0 : (T)((wide)a / b));                                                            \
  TRY(rem_##T, T, T, return b == 0 ? 0 : (T)((wide)a % b));                                                            \
  TRY(min_##T, T, T, return a < b ? a : b);                                                                            \
  TRY(max_##T, T, T, return a < b ? b : a);                                                                            \
  TRY(lt_##T, T, T, return a < b ? a : c)

KERNEL(mul_wide_u32, u64, u32, "l", "r", "mul.wide.u32 %0, %1, %2;")
KERNEL(mad_wide_s32, s64, s32, "l", "r", ".reg .s64 t; cvt.s64.s32 t, %3; mad.wide.s32 %0, %1, %2, t;")
KERNEL(abs_s32, s32, s32, "r", "r", "abs.s32 %0, %1;")
KERNEL(neg_s64, s64, s64, "l", "l", "neg.s64 %0, %1;")
KERNEL(sad_u32, u32, u32, "r", "r", "sad.u32 %0, %1, %2, %3;")
KERNEL(not_b32, u32, u32, "r", "r", "not.b32 %0, %1;")
KERNEL(logic_b64, u64, u64, "l", "l", "and.b64 %0, %1, %2; xor.b64 %0, %0, %3; or.b64 %0, %0, 5;")
KERNEL(shl_b32, u32, u32, "r", "r", "shl.b32 %0, %1, %2;")
KERNEL(shr_u32, u32, u32, "r", "r", "shr.u32 %0, %1, %2;")
KERNEL(shr_s32, s32, s32, "r", "r", "shr.s32 %0, %1, %2;")
KERNEL(shr_s64, s64, s64, "l", "l", ".reg .b32 t; cvt.u32.u64 t, %2; shr.s64 %0, %1, t;")
KERNEL(shf_l_wrap, u32, u32, "r", "r", "shf.l.wrap.b32 %0, %1, %2, %3;")
KERNEL(shf_r_clamp, u32, u32, "r", "r", "shf.r.clamp.b32 %0, %1, %2, %3;")
KERNEL(bfe_u32, u32, u32, "r", "r", "bfe.u32 %0, %1, %2, %3;")
KERNEL(bfe_s32, s32, s32, "r", "r", "bfe.s32 %0, %1, %2, %3;")
KERNEL(bfi_b32, u32, u32, "r", "r", "bfi.b32 %0, %1, %2, %3, 7;")
KERNEL(prmt_b32, u32, u32, "r", "r", "prmt.b32 %0, %1, %2, %3;")
KERNEL(lop3_b32, u32, u32, "r", "r", "lop3.b32 %0, %1, %2, %3, 0xe8;")
KERNEL(popc_b64, u32, u64, "r", "l", "popc.b64 %0, %1;")
KERNEL(clz_b32, u32, u32, "r", "r", "clz.b32 %0, %1;")
KERNEL(brev_b32, u32, u32, "r", "r", "brev.b32 %0, %1;")
KERNEL(bfind_u64, u32, u64, "r", "l", "bfind.u64 %0, %1;")
KERNEL(bfind_s32, u32, s32, "r", "r", "bfind.s32 %0, %1;")
KERNEL(add_carry, u64, u64, "l", "l",
       ".reg .u32 a, b, c, d; mov.b64 {a, b}, %1; mov.b64 {c, d}, %2; add.cc.u32 a, a, c; addc.u32 b, b, d; "
       "mov.b64 %0, {a, b};")
KERNEL(sub_carry, u64, u64, "l", "l",
       ".reg .u32 a, b, c, d; mov.b64 {a, b}, %1; mov.b64 {c, d}, %2; sub.cc.u32 a, a, c; subc.u32 b, b, d; "
       "mov.b64 %0, {a, b};")
KERNEL(
    setp_bool, u32, u32, "r", "r",
    ".reg .pred q, r; setp.lo.u32 q, %2, %3; setp.ge.and.u32 p|r, %1, %2, q; selp.u32 %0, 1, 0, p; @r add.u32 %0, %0, "
    "2; @!q add.u32 %0, %0, 4;")

static u32 field(u64 a, u32 at, u32 n, bool is_signed) /* bit by bit */
{
  u32 r = 0, sign = 0;
  at &= 255;
  n &= 255;
  if (is_signed && n > 0) sign = a >> (at + n - 1 < 31 ? at + n - 1 : 31) & 1;
  for (u32 k = 0; k < 32; k++) r |= (k < n && at + k < 32 ? (u32)(a >> (at + k)) & 1 : sign) << k;
  return r;
}

static void integers()
{
  TRY_INTEGER(u32);
  TRY_INTEGER(s32);
  TRY_INTEGER(u64);
  TRY_INTEGER(s64);
  TRY_INTEGER(u16);
  TRY_INTEGER(s16);
  TRY(mul_wide_u32, u64, u32, return (u64)a * b);
  TRY(mad_wide_s32, s64, s32, return (s64)((wide)a * b + c));
  TRY(abs_s32, s32, s32, return (s32)(a < 0 ? -(s64)a : a));
  TRY(neg_s64, s64, s64, return (s64)(-(wide)a));
  TRY(sad_u32, u32, u32, return (u32)((a > b ? a - b : b - a) + c));
  TRY(not_b32, u32, u32, return a ^ 0xffffffff);
  TRY(logic_b64, u64, u64, return ((a & b) ^ c) | 5);
  TRY(shl_b32, u32, u32, return b > 31 ? 0 : a << b);
  TRY(shr_u32, u32, u32, return b > 31 ? 0 : a >> b);
  TRY(shr_s32, s32, s32, return (u32)b > 31 ? (a < 0 ? -1 : 0) : a >> b);
  TRY(shr_s64, s64, s64, return (u32)b > 63 ? (a < 0 ? -1 : 0) : a >> (u32)b);
  TRY(shf_l_wrap, u32, u32, c &= 31; return c ? b << c | a >> (32 - c) : b);
  TRY(shf_r_clamp, u32, u32, return c > 31 ? b : c ? a >> c | b << (32 - c) : a);
  TRY(bfe_u32, u32, u32, return field(a, b, c, false));
  TRY(bfe_s32, s32, s32, return (s32)field((u32)a, (u32)b, (u32)c, true));
  TRY(bfi_b32, u32, u32, u32 r = b; for (u32 k = 0; k < 7 && (c & 255) + k < 32; k++) r =
                                        (r & ~(1u << ((c & 255) + k))) | (a >> k & 1) << ((c & 255) + k);
      return r);
  TRY(
      prmt_b32, u32, u32, u32 r = 0; for (int k = 0; k < 4; k++) {
        const u32 s = c >> 4 * k & 15, from = s & 4 ? b : a, byte = from >> 8 * (s & 3) & 255;
        r |= (s & 8 ? (byte > 127 ? 255 : 0) : byte) << 8 * k;
      } return r);
  TRY(lop3_b32, u32, u32, return (a & b) | (a & c) | (b & c)); /* 0xe8: the majority */
  TRY(popc_b64, u32, u64, u32 n = 0; for (; a; a &= a - 1) n++; return n);
  TRY(clz_b32, u32, u32, u32 n = 0; while (n < 32 && !(a >> (31 - n) & 1)) n++; return n);
  TRY(brev_b32, u32, u32, u32 r = 0; for (int k = 0; k < 32; k++) r = r << 1 | (a >> k & 1); return r);
  TRY(bfind_u64, u32, u64, u32 r = ~0u; for (u32 k = 0; k < 64; k++) if (a >> k & 1) r = k; return r);
  TRY(bfind_s32, u32, s32, u32 r = ~0u; for (u32 k = 0; k < 31; k++) if ((a >> k & 1) != (a < 0)) r = k; return r);
  TRY(add_carry, u64, u64, return a + b);
  TRY(sub_carry, u64, u64, return a - b);
  TRY(setp_bool, u32, u32, const bool q = b < c; return (a >= b && q) + 2 * (!(a >= b) && q) + 4 * !q);
}

/* --- floats: the host rounds the same way --- */

#define FLOAT(T, x, s)                                                                                                 \
  KERNEL(add_rn_##x, T, T, s, s, "add.rn." #x " %0, %1, %2;")                                                          \
  KERNEL(sub_rn_##x, T, T, s, s, "sub.rn." #x " %0, %1, %2;")                                                          \
  KERNEL(mul_rn_##x, T, T, s, s, "mul.rn." #x " %0, %1, %2;")                                                          \
  KERNEL(div_rn_##x, T, T, s, s, "div.rn." #x " %0, %1, %2;")                                                          \
  KERNEL(fma_rn_##x, T, T, s, s, "fma.rn." #x " %0, %1, %2, %3;")                                                      \
  KERNEL(sqrt_rn_##x, T, T, s, s, "sqrt.rn." #x " %0, %1;")                                                            \
  KERNEL(rcp_rn_##x, T, T, s, s, "rcp.rn." #x " %0, %1;")                                                              \
  KERNEL(min_##x, T, T, s, s, "min." #x " %0, %1, %2;")                                                                \
  KERNEL(max_##x, T, T, s, s, "max." #x " %0, %1, %2;")                                                                \
  KERNEL(neg_abs_##x, T, T, s, s, "abs." #x " %0, %1; neg." #x " %0, %0;")                                             \
  KERNEL(copysign_##x, T, T, s, s, "copysign." #x " %0, %1, %2;")                                                      \
  KERNEL(setp_##x, u32, T, "r", s,                                                                                     \
         "mov.u32 %0, 0; setp.lt." #x " p, %1, %2; @p add.u32 %0, %0, 1; setp.ne." #x                                  \
         " p, %1, %2; @p add.u32 %0, %0, 2; "                                                                          \
         "setp.geu." #x " p, %1, %2; @p add.u32 %0, %0, 4; setp.num." #x " p, %1, %2; @p add.u32 %0, %0, 8; "          \
         "setp.equ." #x " p, %1, %2; @p add.u32 %0, %0, 16;")
FLOAT(float, f32, "f")
FLOAT(double, f64, "d")

#define ROUNDED(mode)                                                                                                  \
  KERNEL(add_##mode, float, float, "f", "f", "add." #mode ".f32 %0, %1, %2;")                                          \
  KERNEL(mul_##mode, float, float, "f", "f", "mul." #mode ".f32 %0, %1, %2;")                                          \
  KERNEL(fma_##mode, float, float, "f", "f", "fma." #mode ".f32 %0, %1, %2, %3;")
ROUNDED(rz)
ROUNDED(rm)
ROUNDED(rp)
KERNEL(add_ftz, float, float, "f", "f", "add.ftz.f32 %0, %1, %2;")
KERNEL(fma_sat, float, float, "f", "f", "fma.rn.sat.f32 %0, %1, %2, %3;")
KERNEL(max_nan, float, float, "f", "f", "max.NaN.f32 %0, %1, %2;")

template <class T> T apply(int mode, char op, T a, T b, T c)
{
  volatile T x = a, y = b, z = c, r; /* not folded: rounded as the mode says */
  fesetround(mode);
  switch (op) {
  case '+': r = x + y; break;
  case '-': r = x - y; break;
  case '*': r = x * y; break;
  case '/': r = x / y; break;
  case 's': r = std::sqrt(x); break;
  default: r = std::fma(x, y, z);
  }
  fesetround(FE_TONEAREST);
  return r;
}

static float flushed(float x)
{
  return std::fabs(x) < 1.17549435e-38f ? std::copysign(0.f, x) : x;
}

#define TRY_FLOAT(T, x)                                                                                                \
  TRY(add_rn_##x, T, T, return apply(FE_TONEAREST, '+', a, b, c));                                                     \
  TRY(sub_rn_##x, T, T, return apply(FE_TONEAREST, '-', a, b, c));                                                     \
  TRY(mul_rn_##x, T, T, return apply(FE_TONEAREST, '*', a, b, c));                                                     \
  TRY(div_rn_##x, T, T, return apply(FE_TONEAREST, '/', a, b, c));                                                     \
  TRY(fma_rn_##x, T, T, return apply(FE_TONEAREST, 'f', a, b, c));                                                     \
  TRY(sqrt_rn_##x, T, T, return apply(FE_TONEAREST, 's', a, b, c));                                                    \
  TRY(rcp_rn_##x, T, T, return apply(FE_TONEAREST, '/', (T)1, a, c));                                                  \
  TRY(min_##x, T, T, return a == 0 && b == 0 ? (std::signbit(a) ? a : b) : a != a ? b : b != b ? a : a < b ? a : b);   \
  TRY(max_##x, T, T, return a == 0 && b == 0 ? (std::signbit(a) ? b : a) : a != a ? b : b != b ? a : a > b ? a : b);   \
  TRY(neg_abs_##x, T, T, return -std::fabs(a));                                                                        \
  TRY(copysign_##x, T, T, return std::copysign(b, a));                                                                 \
  TRY(setp_##x, u32, T, const bool n = a == a && b == b;                                                               \
      return (a < b) + 2 * (n && a != b) + 4 * !(a < b) + 8 * n + 16 * (!n || a == b))

#define TRY_ROUNDED(mode, fe)                                                                                          \
  TRY(add_##mode, float, float, return apply(fe, '+', a, b, c));                                                       \
  TRY(mul_##mode, float, float, return apply(fe, '*', a, b, c));                                                       \
  TRY(fma_##mode, float, float, return apply(fe, 'f', a, b, c))

static void floats()
{
  TRY_FLOAT(float, f32);
  TRY_FLOAT(double, f64);
  TRY_ROUNDED(rz, FE_TOWARDZERO);
  TRY_ROUNDED(rm, FE_DOWNWARD);
  TRY_ROUNDED(rp, FE_UPWARD);
  TRY(add_ftz, float, float, return flushed(flushed(a) + flushed(b)));
  TRY(fma_sat, float, float, const float r = std::fma(a, b, c); return r > 0 ? (r < 1 ? r : 1) : 0);
  TRY(max_nan, float, float,
      return a != a || b != b   ? NAN
             : a == 0 && b == 0 ? (std::signbit(a) ? b : a)
             : a > b            ? a
                                : b);
}

int main()
{
  begin();
  integers();
  floats();
  return finish();
}
