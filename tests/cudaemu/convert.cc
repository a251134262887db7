/* tests/cudaemu/convert.cc - cvt. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "alu.h"
#include <cmath>
#include <limits>

namespace emu
{
namespace
{
enum Rounding : u32 { to_nearest, to_zero, down, up };

struct Conversion { /* how an Inst stores it: sub = from, aux = to | rounding << 8 | integral << 16 */
  Type from, to;
  Rounding rounding;
  bool integral; /* .rni and its kin: to a whole number, even between floats */
};

Conversion conversion_of(const Inst &i)
{
  return {(Type)i.sub, (Type)(i.aux & 255), (Rounding)(i.aux >> 8 & 255), (bool)(i.aux >> 16)};
}

s64 integer_from(u64 v, Type from)
{
  switch (from) {
  case Type::u8: return (u8)v;
  case Type::s8: return (s8)v;
  case Type::u16: return (u16)v;
  case Type::s16: return (s16)v;
  case Type::u32: return (u32)v;
  case Type::s32: return (s32)v;
  default: return (s64)v;
  }
}

template <class T> T clamped(__int128 v)
{
  using Limits = std::numeric_limits<T>;
  return (T)(v < (__int128)Limits::min()   ? (__int128)Limits::min()
             : v > (__int128)Limits::max() ? (__int128)Limits::max()
                                           : v);
}

/* A narrow result in a wider register is extended by its sign or by zeros. */
template <class To> void integer_to_integer(Warp &w, const Inst &i, u32 mask)
{
  const Type from = (Type)i.sub;
  FOR_LANES(l, mask)
  {
    const s64 v = integer_from(get(w, i.a, l), from);
    To r = (To)v;
    if (i.flags & saturate) r = clamped<To>(from == Type::u64 ? (__int128)(u64)v : v);
    put(w, i.d, l, (u64)(s64)r);
  }
}

void s32_to_s64(Warp &w, const Inst &i, u32 mask)
{
  u64 *d = lanes<u64>(w, i.d);
  const u32 *a = lanes<u32>(w, i.a);
  EACH_LANE((u64)(s64)(s32)a[l])
}

void u32_to_u64(Warp &w, const Inst &i, u32 mask)
{
  u64 *d = lanes<u64>(w, i.d);
  const u32 *a = lanes<u32>(w, i.a);
  EACH_LANE((u64)a[l])
}

void u64_to_u32(Warp &w, const Inst &i, u32 mask)
{
  u32 *d = lanes<u32>(w, i.d);
  const u64 *a = lanes<u64>(w, i.a);
  EACH_LANE((u32)a[l])
}

void s32_to_f32(Warp &w, const Inst &i, u32 mask)
{
  u32 *d = lanes<u32>(w, i.d);
  const u32 *a = lanes<u32>(w, i.a);
  EACH_LANE(as_bits((float)(s32)a[l]))
}

void f32_to_bf16_lanes(Warp &w, const Inst &i, u32 mask)
{
  u32 *d = lanes<u32>(w, i.d);
  const u32 *a = lanes<u32>(w, i.a);
  EACH_LANE(f32_to_bf16(as_float(a[l])))
}

double whole(double x, Rounding r)
{
  return r == to_zero ? std::trunc(x) : r == down ? std::floor(x) : r == up ? std::ceil(x) : std::nearbyint(x);
}

template <class T> u64 whole_to(double v)
{
  /* The largest double that fits: 2^63 - 1 and 2^64 - 1 do not. */
  const double lo = (double)std::numeric_limits<T>::min(), hi = (double)std::numeric_limits<T>::max();
  if (v <= lo) return (u64)std::numeric_limits<T>::min();
  return v >= hi ? (u64)std::numeric_limits<T>::max() : (u64)(T)v;
}

u64 float_to_integer(double v, Type to, Rounding r)
{
  if (v != v) return bytes_of(to) == 8 ? (u64)1 << 63 : 0;
  v = whole(v, r);
  switch (to) {
  case Type::u8: return whole_to<u8>(v);
  case Type::s8: return whole_to<s8>(v);
  case Type::u16: return whole_to<u16>(v);
  case Type::s16: return whole_to<s16>(v);
  case Type::u32: return whole_to<u32>(v);
  case Type::s32: return whole_to<s32>(v);
  case Type::u64: return whole_to<u64>(v);
  default: return whole_to<s64>(v);
  }
}

double number_from(u64 v, const Conversion &c, int flags)
{
  switch (c.from) {
  case Type::f16: return f16_to_f32((u16)v);
  case Type::bf16: return bf16_to_f32((u16)v);
  case Type::f32: return flushed(as_float((u32)v), flags);
  case Type::f64: return bits_as<double>(v);
  case Type::u64: return (double)v;
  default: return (double)integer_from(v, c.from);
  }
}

float single_from(double x, u64 bits, const Conversion &c)
{
  /* 64-bit integers do not fit a double: convert them once. */
  float f = c.from == Type::u64 ? (float)bits : c.from == Type::s64 ? (float)(s64)bits : (float)x;
  if (c.integral) return f;
  if (c.rounding == to_zero && std::fabs((double)f) > std::fabs(x)) f = std::nextafterf(f, 0);
  if (c.rounding == down && (double)f > x) f = std::nextafterf(f, -INFINITY);
  if (c.rounding == up && (double)f < x) f = std::nextafterf(f, INFINITY);
  return f;
}

/* Cuts the bits that bf16 lacks, or the nearest; other directions are not decoded. */
u16 bf16_from(double x, Rounding r)
{
  if (r == to_zero && x == x) return (u16)(as_bits(to_odd(x)) >> 16);
  return to_half(x, true);
}

u64 to_float(double x, u64 bits, const Conversion &c, int flags)
{
  if (c.integral) x = whole(x, c.rounding);
  if (flags & saturate) x = saturated(x);
  if ((flags & relu) && x < 0) x = 0;
  switch (c.to) {
  case Type::f16: return to_half(x, false);
  case Type::bf16: return bf16_from(x, c.rounding);
  case Type::f32: return as_bits(flushed(single_from(x, bits, c), flags));
  default: return bits_as<u64>(x);
  }
}

void with_float(Warp &w, const Inst &i, u32 mask) /* a float on at least one side */
{
  const Conversion c = conversion_of(i);
  FOR_LANES(l, mask)
  {
    const u64 bits = get(w, i.a, l);
    const double x = number_from(bits, c, i.flags);
    put(w, i.d, l, is_float(c.to) ? to_float(x, bits, c, i.flags) : float_to_integer(x, c.to, c.rounding));
  }
}

template <bool BF16> void pack_pair(Warp &w, const Inst &i, u32 mask) /* a: the upper half */
{
  u32 *d = lanes<u32>(w, i.d);
  const u32 *a = lanes<u32>(w, i.a), *b = lanes<u32>(w, i.b);
  auto half = [](u32 v) { return (u32)(BF16 ? f32_to_bf16(as_float(v)) : f32_to_f16(as_float(v))); };
  if (i.flags & relu) {
    auto positive = [&half](u32 v) { return as_float(v) < 0 ? 0 : half(v); };
    FOR_LANES(l, mask) d[l] = positive(a[l]) << 16 | positive(b[l]);
    return;
  }
  EACH_LANE(half(a[l]) << 16 | half(b[l]))
}

Handler integers(Type to, Type from, const Inst &i)
{
  /* A register may be wider than the type: its lower part counts. */
  const bool plain = !i.flags && i.a.size == bytes_of(from) && i.d.size == bytes_of(to);
  if (plain && to == Type::s64 && from == Type::s32) return s32_to_s64;
  if (plain && bytes_of(to) == 8 && from == Type::u32) return u32_to_u64;
  if (plain && bytes_of(to) == 4 && bytes_of(from) == 8) return u64_to_u32;
  switch (to) {
  case Type::u8: return integer_to_integer<u8>;
  case Type::s8: return integer_to_integer<s8>;
  case Type::u16: return integer_to_integer<u16>;
  case Type::s16: return integer_to_integer<s16>;
  case Type::u32: return integer_to_integer<u32>;
  case Type::s32: return integer_to_integer<s32>;
  case Type::u64: return integer_to_integer<u64>;
  default: return integer_to_integer<s64>;
  }
}

Handler floats(const Conversion &c, const Inst &i)
{
  const bool plain = !i.flags && c.rounding == to_nearest && !c.integral && i.a.size == 4 && i.d.size == 4;
  if (plain && c.to == Type::f32 && c.from == Type::s32) return s32_to_f32;
  if (plain && c.to == Type::bf16 && c.from == Type::f32) return f32_to_bf16_lanes;
  if (c.to == Type::f16 && c.rounding != to_nearest) throw Unsupported{"the rounding"};
  return with_float;
}

void decode_cvt(Decoder &x, Inst &i)
{
  const std::vector<Type> t = x.types();
  if (t.size() != 2 || x.words[1] == "pack" || x.has("satfinite")) throw Unsupported{"the conversion"};
  const Conversion c = {t[1], t[0],
                        x.has("rz") || x.has("rzi")   ? to_zero
                        : x.has("rm") || x.has("rmi") ? down
                        : x.has("rp") || x.has("rpi") ? up
                                                      : to_nearest,
                        x.has("rni") || x.has("rzi") || x.has("rmi") || x.has("rpi")};
  i.flags = x.flags();
  i.d = x.operand(x.arg(0), slot_bytes(c.to));
  i.a = x.operand(x.arg(1), slot_bytes(c.from));
  i.sub = (u32)c.from;
  i.aux = (u32)c.to | c.rounding << 8 | (c.integral ? 1u << 16 : 0);
  if (is_packed(c.to)) {
    if (c.from != Type::f32 || c.rounding != to_nearest || (i.flags & saturate)) throw Unsupported{"the conversion"};
    i.b = x.operand(x.arg(2), 4);
    i.run = c.to == Type::bf16x2 ? pack_pair<true> : pack_pair<false>;
  } else if (is_packed(c.from)) {
    throw Unsupported{"the conversion"};
  } else if (is_float(c.to) || is_float(c.from)) {
    i.run = floats(c, i);
  } else {
    i.run = integers(c.to, c.from, i);
  }
}
} // namespace

const Opcode convert_opcodes[] = {{"cvt", decode_cvt}, {nullptr, nullptr}};
} // namespace emu
