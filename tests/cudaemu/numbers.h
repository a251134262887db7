/* tests/cudaemu/numbers.h - integers by width, 16-bit floats, results rounded once. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EMU_NUMBERS_H
#define EMU_NUMBERS_H

#include <cmath>
#include <cstdint>
#include <cstring>

namespace emu
{
using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s8 = int8_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;

template <class To, class From> inline To bits_as(From v)
{
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To r;
  memcpy(&r, &v, sizeof r);
  return r;
}

inline float as_float(u32 bits)
{
  return bits_as<float>(bits);
}

inline u32 as_bits(float f)
{
  return bits_as<u32>(f);
}

inline float bf16_to_f32(u16 h)
{
  return as_float((u32)h << 16);
}

/* To nearest even; the device's NaN is 0x7fff. */
inline u16 f32_to_bf16(float f)
{
  const u32 b = as_bits(f);
  return (b & 0x7fffffff) > 0x7f800000 ? 0x7fff : (u16)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}

inline float f16_to_f32(u16 h)
{
  const u32 sign = (u32)(h & 0x8000) << 16, rest = (u32)(h & 0x7fff) << 13;
  const float small = as_float(rest) * 0x1p112f; /* moves the exponent's bias from 15 to 127, subnormals too */
  return as_float(sign | ((h & 0x7c00) == 0x7c00 ? rest | 0x7f800000 : as_bits(small)));
}

inline u16 f32_to_f16(float f)
{
  const u32 sign = as_bits(f) >> 16 & 0x8000, x = as_bits(f) & 0x7fffffff;
  if (x > 0x7f800000) return 0x7fff;
  if (x >= 0x477ff000) return (u16)(sign | 0x7c00); /* 65520 and up round to infinity */
  /* 0.5f has the spacing of half's subnormals: the addition rounds as wanted. */
  if (x < 0x38800000) return (u16)(sign | (as_bits(as_float(x) + 0.5f) - 0x3f000000));
  return (u16)(sign | (x - (112u << 23) + 0xfff + (x >> 13 & 1)) >> 13);
}

/* A double as a float whose last bit is set if anything was lost: rounding that again rounds the double once. */
inline float to_odd(double x)
{
  const float f = (float)x;
  if ((double)f == x || x != x || std::isinf(f)) return f;
  const u32 down = std::fabs((double)f) > std::fabs(x) ? 1 : 0;
  return as_float((as_bits(f) - down) | 1);
}

inline u16 to_half(double x, bool bf16)
{
  return bf16 ? f32_to_bf16(to_odd(x)) : f32_to_f16(to_odd(x));
}

inline float from_half(u16 h, bool bf16)
{
  return bf16 ? bf16_to_f32(h) : f16_to_f32(h);
}

/* Half number `which` of a packed pair. */
inline float half_of(u32 pair, int which, bool bf16)
{
  return from_half((u16)(pair >> 16 * which), bf16);
}

/* Subnormals become zero of their sign. */
inline float flush(float f)
{
  const u32 b = as_bits(f);
  return b & 0x7f800000 ? f : as_float(b & 0x80000000);
}

/* a b + c as a double that is odd wherever it is inexact: rounded to float it is right, whatever the rounding. */
inline double fused_to_odd(float a, float b, float c)
{
  const double p = (double)a * b, s = p + c; /* p is exact */
  const double t = s - p, lost = (p - (s - t)) + (c - t);
  if (lost == 0 || !std::isfinite(s)) return s;
  u64 bits = bits_as<u64>(s);
  if (!(bits & 1)) bits += (lost > 0) == (s > 0) ? 1 : (u64)-1; /* towards what was lost: the odd neighbour */
  return bits_as<double>(bits);
}

inline float fused(float a, float b, float c)
{
#ifdef __FMA__
  return __builtin_fmaf(a, b, c);
#else
  return (float)fused_to_odd(a, b, c);
#endif
}
} // namespace emu

#endif
