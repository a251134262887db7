/* tests/cudaemu/alu.h - handlers made from functions of one lane. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EMU_ALU_H
#define EMU_ALU_H

#include "decode.h"
#include <algorithm>

namespace emu
{
/* A full warp is the usual case, and the compiler vectorises it. */
#ifdef __clang__
#define NO_ALIASES _Pragma("clang loop vectorize(assume_safety)")
#else
#define NO_ALIASES _Pragma("GCC ivdep")
#endif
#define EACH_LANE(expression)                                                                                          \
  if (mask == ~0u) {                                                                                                   \
    NO_ALIASES for (int l = 0; l < 32; l++) d[l] = (expression);                                                       \
  } else {                                                                                                             \
    FOR_LANES(l, mask) d[l] = (expression);                                                                            \
  }

template <class T> inline T saturated(T x)
{
  return x != x || x < 0 ? (T)0 : x > 1 ? (T)1 : x;
}

template <class T> inline T flushed(T x, int flags)
{
  if constexpr (std::is_same<T, float>::value) return flags & flush_subnormals ? flush(x) : x;
  return x;
}

template <class T> inline T finished(T x, int flags)
{
  if constexpr (std::is_floating_point<T>::value)
    if (flags & saturate) x = saturated(x);
  return flushed(x, flags);
}

template <class T, T (*F)(T)> void map1(Warp &w, const Inst &i, u32 mask)
{
  auto *d = lanes<Slot<T>>(w, i.d);
  const auto *a = lanes<Slot<T>>(w, i.a);
  if (const int f = i.flags) {
    FOR_LANES(l, mask) d[l] = pack<T>(finished(F(flushed(unpack<T>(a[l]), f)), f));
    return;
  }
  EACH_LANE(pack<T>(F(unpack<T>(a[l]))))
}

template <class T, T (*F)(T, T)> void map2(Warp &w, const Inst &i, u32 mask)
{
  auto *d = lanes<Slot<T>>(w, i.d);
  const auto *a = lanes<Slot<T>>(w, i.a), *b = lanes<Slot<T>>(w, i.b);
  if (const int f = i.flags) {
    FOR_LANES(l, mask) d[l] = pack<T>(finished(F(flushed(unpack<T>(a[l]), f), flushed(unpack<T>(b[l]), f)), f));
    return;
  }
  EACH_LANE(pack<T>(F(unpack<T>(a[l]), unpack<T>(b[l]))))
}

template <class T, T (*F)(T, T, T)> void map3(Warp &w, const Inst &i, u32 mask)
{
  auto *d = lanes<Slot<T>>(w, i.d);
  const auto *a = lanes<Slot<T>>(w, i.a), *b = lanes<Slot<T>>(w, i.b), *c = lanes<Slot<T>>(w, i.c);
  if (const int f = i.flags) {
    FOR_LANES(l, mask)
    d[l] =
        pack<T>(finished(F(flushed(unpack<T>(a[l]), f), flushed(unpack<T>(b[l]), f), flushed(unpack<T>(c[l]), f)), f));
    return;
  }
  EACH_LANE(pack<T>(F(unpack<T>(a[l]), unpack<T>(b[l]), unpack<T>(c[l]))))
}

/* The handler of a template for the integer type t; nullptr where there is none. */
#define BY_INTEGER(t, MAP, F)                                                                                          \
  ((t) == Type::s32   ? MAP<s32, F<s32>>                                                                               \
   : (t) == Type::u32 ? MAP<u32, F<u32>>                                                                               \
   : (t) == Type::s64 ? MAP<s64, F<s64>>                                                                               \
   : (t) == Type::u64 ? MAP<u64, F<u64>>                                                                               \
   : (t) == Type::s16 ? MAP<s16, F<s16>>                                                                               \
   : (t) == Type::u16 ? MAP<u16, F<u16>>                                                                               \
                      : nullptr)
#define BY_FLOAT(t, MAP, F)                                                                                            \
  ((t) == Type::f32 ? MAP<float, F<float>> : (t) == Type::f64 ? MAP<double, F<double>> : nullptr)

inline int slot_bytes(Type t)
{
  return std::max(4, bytes_of(t));
}

/* d, a[, b[, c]] of the op's last type. */
inline void simple(Decoder &x, Inst &i, int sources, Handler run)
{
  const int size = slot_bytes(x.type());
  i.d = x.operand(x.arg(0), size);
  i.a = x.operand(x.arg(1), size);
  if (sources > 1) i.b = x.operand(x.arg(2), size);
  if (sources > 2) i.c = x.operand(x.arg(3), size);
  i.flags = x.flags();
  i.run = run;
}

/* and, or, xor, not of predicates, predicate.cc. */
void decode_predicate_logic(Decoder &x, Inst &i);
/* bar.warp.sync, warp.cc. */
void decode_warp_barrier(Decoder &x, Inst &i);
/* Arithmetic of the half types, float.cc: add, sub ... named in words[0]. True if it is one. */
bool decode_half(Decoder &x, Inst &i);
/* The same for f32 and f64. */
bool decode_float(Decoder &x, Inst &i);
} // namespace emu

#endif
