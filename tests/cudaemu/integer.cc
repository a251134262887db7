/* tests/cudaemu/integer.cc - integer arithmetic, shifts and bit fields. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "alu.h"

namespace emu
{
namespace
{
template <class T> using Unsigned = typename std::make_unsigned<T>::type;
template <class T> using Wide = typename std::conditional<std::is_signed<T>::value, s64, u64>::type;

/* Types narrower than int are widened first: u16 * u16 overflows an int. */
template <class T> using Arith = typename std::conditional<sizeof(T) < 4, u32, Unsigned<T>>::type;

template <class T> T add(T a, T b)
{
  return (T)((Arith<T>)a + (Arith<T>)b);
}

template <class T> T sub(T a, T b)
{
  return (T)((Arith<T>)a - (Arith<T>)b);
}

template <class T> T mul(T a, T b)
{
  return (T)((Arith<T>)a * (Arith<T>)b);
}

template <class T> T mul_high(T a, T b)
{
  using Wider = typename std::conditional<std::is_signed<T>::value, __int128, unsigned __int128>::type;
  if constexpr (sizeof(T) == 8) {
    return (T)(((Wider)a * (Wider)b) >> 64);
  } else {
    return (T)(((Wide<T>)a * (Wide<T>)b) >> (8 * sizeof(T)));
  }
}

template <class T> T mul24(T a, T b)
{
  auto low = [](T x) { /* the sign is bit 23 */
                       if (std::is_signed<T>::value) return (s64)((s32)((u32)x << 8) >> 8);
                       return (s64)((u32)x & 0xffffff);
  };
  return (T)(low(a) * low(b));
}

template <class T> T negate(T a)
{
  return sub((T)0, a);
}

/* Division by zero is defined by nothing; the device gives all ones, and the dividend as remainder. */
template <class T> T divide(T a, T b)
{
  if (b == 0) return (T)-1;
  if (std::is_signed<T>::value && b == (T)-1) return negate(a);
  return (T)(a / b);
}

template <class T> T remainder_of(T a, T b)
{
  if (b == 0) return a;
  if (std::is_signed<T>::value && b == (T)-1) return 0;
  return (T)(a % b);
}

template <class T> T least(T a, T b)
{
  return a < b ? a : b;
}

template <class T> T greatest(T a, T b)
{
  return a > b ? a : b;
}

template <class T> T absolute(T a)
{
  if constexpr (std::is_signed<T>::value) return a < 0 ? negate(a) : a;
  return a;
}

template <class T> T mad(T a, T b, T c)
{
  return add(mul(a, b), c);
}

template <class T> T mad_high(T a, T b, T c)
{
  return add(mul_high(a, b), c);
}

template <class T> T sad(T a, T b, T c)
{
  return add(c, (T)(a < b ? sub(b, a) : sub(a, b)));
}

template <class T> T bits_and(T a, T b)
{
  return a & b;
}

template <class T> T bits_or(T a, T b)
{
  return a | b;
}

template <class T> T bits_xor(T a, T b)
{
  return a ^ b;
}

template <class T> T bits_not(T a)
{
  return (T)~a;
}

template <class T> T is_zero(T a)
{
  return a == 0;
}

/* D = twice the width of T. */
template <class D, class T> void mul_wide(Warp &w, const Inst &i, u32 mask)
{
  auto *d = lanes<Slot<D>>(w, i.d);
  const auto *a = lanes<Slot<T>>(w, i.a), *b = lanes<Slot<T>>(w, i.b);
  EACH_LANE(pack<D>((D)unpack<T>(a[l]) * (D)unpack<T>(b[l])))
}

template <class D, class T> void mad_wide(Warp &w, const Inst &i, u32 mask)
{
  auto *d = lanes<Slot<D>>(w, i.d);
  const auto *a = lanes<Slot<T>>(w, i.a), *b = lanes<Slot<T>>(w, i.b);
  const auto *c = lanes<Slot<D>>(w, i.c);
  EACH_LANE(pack<D>(add((D)((D)unpack<T>(a[l]) * (D)unpack<T>(b[l])), unpack<D>(c[l]))))
}

#define BY_WIDENING(t, H)                                                                                              \
  ((t) == Type::s32   ? (Handler)H<s64, s32>                                                                           \
   : (t) == Type::u32 ? (Handler)H<u64, u32>                                                                           \
   : (t) == Type::s16 ? (Handler)H<s32, s16>                                                                           \
   : (t) == Type::u16 ? (Handler)H<u32, u16>                                                                           \
                      : nullptr)

template <class T> void shift_left(Warp &w, const Inst &i, u32 mask)
{
  auto *d = lanes<Slot<T>>(w, i.d);
  const auto *a = lanes<Slot<T>>(w, i.a);
  const u32 *b = lanes<u32>(w, i.b), bits = 8 * sizeof(T);
  EACH_LANE(pack<T>(b[l] >= bits ? (T)0 : (T)((Arith<T>)unpack<T>(a[l]) << b[l])))
}

template <class T> void shift_right(Warp &w, const Inst &i, u32 mask)
{
  auto *d = lanes<Slot<T>>(w, i.d);
  const auto *a = lanes<Slot<T>>(w, i.a);
  const u32 *b = lanes<u32>(w, i.b), bits = 8 * sizeof(T);
  if (std::is_signed<T>::value) {
    EACH_LANE(pack<T>((T)(unpack<T>(a[l]) >> std::min(b[l], bits - 1))))
  } else {
    EACH_LANE(pack<T>(b[l] >= bits ? (T)0 : (T)(unpack<T>(a[l]) >> b[l])))
  }
}

enum { funnel_right = 1, funnel_clamp = 2 };
void funnel_shift(Warp &w, const Inst &i, u32 mask)
{
  u32 *d = lanes<u32>(w, i.d);
  const u32 *a = lanes<u32>(w, i.a), *b = lanes<u32>(w, i.b), *c = lanes<u32>(w, i.c);
  FOR_LANES(l, mask)
  {
    const u32 n = i.sub & funnel_clamp ? std::min(c[l], 32u) : c[l] & 31;
    const u64 both = (u64)b[l] << 32 | a[l];
    d[l] = (u32)(i.sub & funnel_right ? both >> n : (both << n) >> 32);
  }
}

template <class T> void extract_field(Warp &w, const Inst &i, u32 mask)
{
  const u32 width = 8 * sizeof(T);
  FOR_LANES(l, mask)
  {
    const u64 a = (u64)(Unsigned<T>)unpack<T>(lanes<Slot<T>>(w, i.a)[l]);
    const u32 at = lanes<u32>(w, i.b)[l] & 255, n = lanes<u32>(w, i.c)[l] & 255;
    u64 r = n > 0 && at < width ? a >> at : 0;
    if (n < 64) r &= ((u64)1 << n) - 1;
    const u32 have = std::min(n, at < width ? width - at : 0);
    if (std::is_signed<T>::value && n > 0 && have < 64 && (a >> std::min(at + n - 1, width - 1) & 1))
      r |= ~(u64)0 << have;
    lanes<Slot<T>>(w, i.d)[l] = pack<T>((T)r);
  }
}

template <class T> void insert_field(Warp &w, const Inst &i, u32 mask)
{
  const u32 width = 8 * sizeof(T);
  FOR_LANES(l, mask)
  {
    const T a = lanes<T>(w, i.a)[l], b = lanes<T>(w, i.b)[l];
    const u32 at = lanes<u32>(w, i.c)[l] & 255, n = lanes<u32>(w, i.e)[l] & 255;
    const T ones = n >= width ? (T) ~(T)0 : (T)(((T)1 << n) - 1), field = at < width ? (T)(ones << at) : 0;
    lanes<T>(w, i.d)[l] = (T)((b & (T)~field) | (at < width ? (T)(a << at) & field : 0));
  }
}

void permute_bytes(Warp &w, const Inst &i, u32 mask)
{
  FOR_LANES(l, mask)
  {
    const u64 bytes = (u64)lanes<u32>(w, i.b)[l] << 32 | lanes<u32>(w, i.a)[l];
    const u32 select = lanes<u32>(w, i.c)[l];
    u32 r = 0;
    for (int k = 0; k < 4; k++) {
      const u32 s = select >> (4 * k) & 15;
      u8 byte = (u8)(bytes >> (8 * (s & 7)));
      if (s & 8) byte = byte & 0x80 ? 0xff : 0; /* its sign, spread */
      r |= (u32)byte << (8 * k);
    }
    lanes<u32>(w, i.d)[l] = r;
  }
}

void lookup3(Warp &w, const Inst &i, u32 mask) /* any function of three bits: sub is its truth table */
{
  u32 *d = lanes<u32>(w, i.d);
  const u32 *a = lanes<u32>(w, i.a), *b = lanes<u32>(w, i.b), *c = lanes<u32>(w, i.c);
  FOR_LANES(l, mask)
  {
    u32 r = 0;
    for (int k = 0; k < 8; k++)
      if (i.sub >> k & 1) r |= (k & 4 ? a[l] : ~a[l]) & (k & 2 ? b[l] : ~b[l]) & (k & 1 ? c[l] : ~c[l]);
    d[l] = r;
  }
}

template <class T> int leading_zeros(T a)
{
  if (a == 0) return 8 * sizeof(T);
  return sizeof(T) == 8 ? __builtin_clzll(a) : __builtin_clz((u32)a);
}

template <class T> void count_ones(Warp &w, const Inst &i, u32 mask)
{
  FOR_LANES(l, mask) lanes<u32>(w, i.d)[l] = (u32)__builtin_popcountll(lanes<T>(w, i.a)[l]);
}

template <class T> void count_leading_zeros(Warp &w, const Inst &i, u32 mask)
{
  FOR_LANES(l, mask) lanes<u32>(w, i.d)[l] = (u32)leading_zeros(lanes<T>(w, i.a)[l]);
}

template <class T> void reverse_bits(Warp &w, const Inst &i, u32 mask)
{
  const int width = 8 * sizeof(T);
  FOR_LANES(l, mask)
  {
    const T a = lanes<T>(w, i.a)[l];
    T r = 0;
    for (int k = 0; k < width; k++) r |= (T)(a >> k & 1) << (width - 1 - k);
    lanes<T>(w, i.d)[l] = r;
  }
}

/* The highest bit that differs from the sign; sub: how far it must be shifted to the top. */
template <class T> void find_bit(Warp &w, const Inst &i, u32 mask)
{
  const int width = 8 * sizeof(T);
  FOR_LANES(l, mask)
  {
    T a = lanes<T>(w, i.a)[l];
    if ((i.flags & sign_extend) && a >> (width - 1)) a = (T)~a;
    const int zeros = leading_zeros(a);
    lanes<u32>(w, i.d)[l] = zeros == width ? ~0u : (u32)(i.sub ? zeros : width - 1 - zeros);
  }
}

/* add.cc, addc, sub.cc, subc: the carry is a bit a lane, kept as a predicate named CC by decode_carry. */
enum { carry_in = 1, carry_out = 2, subtracts = 4 };
template <class T> void with_carry(Warp &w, const Inst &i, u32 mask)
{
  u32 carry = predicate(w, i.e), out = 0;
  FOR_LANES(l, mask)
  {
    const unsigned __int128 a = lanes<T>(w, i.a)[l], b = lanes<T>(w, i.b)[l],
                            one = i.sub & carry_in ? carry >> l & 1 : 0;
    const unsigned __int128 r = i.sub & subtracts ? a - b - one : a + b + one;
    lanes<T>(w, i.d)[l] = (T)r;
    out |= (u32)((r >> (8 * sizeof(T))) & 1) << l;
  }
  if (i.sub & carry_out) set_predicate(w, i.e, mask, out);
}

/* --- decoding --- */

void decode_carry(Decoder &x, Inst &i)
{
  const bool wide = bytes_of(x.type()) == 8;
  i.sub = (x.words[0].back() == 'c' ? carry_in : 0) | (x.has("cc") ? carry_out : 0) |
          (x.words[0][0] == 's' ? subtracts : 0);
  simple(x, i, 2, wide ? with_carry<u64> : with_carry<u32>);
  i.e = x.carry();
}

void decode_add(Decoder &x, Inst &i)
{
  if (decode_half(x, i) || decode_float(x, i)) return;
  if (x.has("cc")) return decode_carry(x, i);
  simple(x, i, 2, BY_INTEGER(x.type(), map2, add));
}

void decode_sub(Decoder &x, Inst &i)
{
  if (decode_half(x, i) || decode_float(x, i)) return;
  if (x.has("cc")) return decode_carry(x, i);
  simple(x, i, 2, BY_INTEGER(x.type(), map2, sub));
}

void decode_mul(Decoder &x, Inst &i)
{
  if (decode_half(x, i) || decode_float(x, i)) return;
  const Type t = x.type();
  simple(x, i, 2,
         x.has("wide") ? BY_WIDENING(t, mul_wide)
         : x.has("hi") ? BY_INTEGER(t, map2, mul_high)
                       : BY_INTEGER(t, map2, mul));
}

void decode_mad(Decoder &x, Inst &i)
{
  if (decode_float(x, i)) return;
  const Type t = x.type();
  if (x.has("cc")) throw Unsupported{"a carry"};
  simple(x, i, 3,
         x.has("wide") ? BY_WIDENING(t, mad_wide)
         : x.has("hi") ? BY_INTEGER(t, map3, mad_high)
                       : BY_INTEGER(t, map3, mad));
  if (x.has("wide")) i.c = x.operand(x.arg(3), 2 * bytes_of(t));
}

void decode_div(Decoder &x, Inst &i)
{
  if (!decode_float(x, i)) simple(x, i, 2, BY_INTEGER(x.type(), map2, divide));
}

void decode_min(Decoder &x, Inst &i)
{
  if (!decode_half(x, i) && !decode_float(x, i)) simple(x, i, 2, BY_INTEGER(x.type(), map2, least));
}

void decode_max(Decoder &x, Inst &i)
{
  if (!decode_half(x, i) && !decode_float(x, i)) simple(x, i, 2, BY_INTEGER(x.type(), map2, greatest));
}

void decode_neg(Decoder &x, Inst &i)
{
  if (!decode_half(x, i) && !decode_float(x, i)) simple(x, i, 1, BY_INTEGER(x.type(), map1, negate));
}

void decode_abs(Decoder &x, Inst &i)
{
  if (!decode_half(x, i) && !decode_float(x, i)) simple(x, i, 1, BY_INTEGER(x.type(), map1, absolute));
}

#define BY_WIDTH(t, MAP, F) (bytes_of(t) == 8 ? (Handler)MAP<u64, F<u64>> : (Handler)MAP<u32, F<u32>>)
#define WIDE_OR_NOT(t, H)   (bytes_of(t) == 8 ? (Handler)H<u64> : (Handler)H<u32>)

void decode_not(Decoder &x, Inst &i)
{
  if (x.has("pred")) return decode_predicate_logic(x, i);
  simple(x, i, 1, bytes_of(x.type()) == 2 ? map1<u16, bits_not<u16>> : BY_WIDTH(x.type(), map1, bits_not));
}

void decode_and(Decoder &x, Inst &i)
{
  if (x.has("pred")) return decode_predicate_logic(x, i);
  simple(x, i, 2, BY_WIDTH(x.type(), map2, bits_and));
}

void decode_or(Decoder &x, Inst &i)
{
  if (x.has("pred")) return decode_predicate_logic(x, i);
  simple(x, i, 2, BY_WIDTH(x.type(), map2, bits_or));
}

void decode_xor(Decoder &x, Inst &i)
{
  if (x.has("pred")) return decode_predicate_logic(x, i);
  simple(x, i, 2, BY_WIDTH(x.type(), map2, bits_xor));
}

void decode_shift(Decoder &x, Inst &i)
{
  const Type t = x.type();
  i.d = x.operand(x.arg(0), slot_bytes(t));
  i.a = x.operand(x.arg(1), slot_bytes(t));
  i.b = x.operand(x.arg(2), 4);
  if (x.words[0] == "shl") {
    i.run = bytes_of(t) == 8 ? shift_left<u64> : bytes_of(t) == 2 ? shift_left<u16> : shift_left<u32>;
  } else if (is_signed(t)) {
    i.run = bytes_of(t) == 8 ? shift_right<s64> : bytes_of(t) == 2 ? shift_right<s16> : shift_right<s32>;
  } else {
    i.run = bytes_of(t) == 8 ? shift_right<u64> : bytes_of(t) == 2 ? shift_right<u16> : shift_right<u32>;
  }
}

void decode_field(Decoder &x, Inst &i)
{
  const Type t = x.type();
  const bool insert = x.words[0] == "bfi";
  i.d = x.operand(x.arg(0), bytes_of(t));
  i.a = x.operand(x.arg(1), bytes_of(t));
  i.b = x.operand(x.arg(2), insert ? bytes_of(t) : 4);
  i.c = x.operand(x.arg(3), 4);
  if (insert) i.e = x.operand(x.arg(4), 4);
  if (insert) {
    i.run = WIDE_OR_NOT(t, insert_field);
  } else {
    i.run = t == Type::s32   ? extract_field<s32>
            : t == Type::u32 ? extract_field<u32>
            : t == Type::s64 ? extract_field<s64>
                             : extract_field<u64>;
  }
}

void decode_bits(Decoder &x, Inst &i)
{
  const Type t = x.type();
  const std::string &o = x.words[0];
  simple(x, i, 1,
         o == "popc"   ? WIDE_OR_NOT(t, count_ones)
         : o == "clz"  ? WIDE_OR_NOT(t, count_leading_zeros)
         : o == "brev" ? WIDE_OR_NOT(t, reverse_bits)
                       : WIDE_OR_NOT(t, find_bit));
  i.sub = x.has("shiftamt");
  if (is_signed(t)) i.flags |= sign_extend;
}
} // namespace

const Opcode integer_opcodes[] = {
    {"add", decode_add},
    {"sub", decode_sub},
    {"mul", decode_mul},
    {"mad", decode_mad},
    {"div", decode_div},
    {"min", decode_min},
    {"max", decode_max},
    {"neg", decode_neg},
    {"abs", decode_abs},
    {"not", decode_not},
    {"and", decode_and},
    {"or", decode_or},
    {"xor", decode_xor},
    {"addc", decode_carry},
    {"subc", decode_carry},
    {"shl", decode_shift},
    {"shr", decode_shift},
    {"bfe", decode_field},
    {"bfi", decode_field},
    {"popc", decode_bits},
    {"clz", decode_bits},
    {"brev", decode_bits},
    {"bfind", decode_bits},
    {"rem", [](Decoder &x, Inst &i) { simple(x, i, 2, BY_INTEGER(x.type(), map2, remainder_of)); }},
    {"mul24",
     [](Decoder &x, Inst &i) {
       if (!x.has("lo")) throw Unsupported{"mul24.hi"};
       simple(x, i, 2, x.type() == Type::s32 ? (Handler)map2<s32, mul24<s32>> : (Handler)map2<u32, mul24<u32>>);
     }},
    {"sad", [](Decoder &x, Inst &i) { simple(x, i, 3, BY_INTEGER(x.type(), map3, sad)); }},
    {"cnot", [](Decoder &x, Inst &i) { simple(x, i, 1, BY_WIDTH(x.type(), map1, is_zero)); }},
    {"shf",
     [](Decoder &x, Inst &i) {
       simple(x, i, 3, funnel_shift);
       i.sub = (x.has("r") ? funnel_right : 0) | (x.has("clamp") ? funnel_clamp : 0);
     }},
    {"prmt",
     [](Decoder &x, Inst &i) {
       if (x.words.size() > 2) throw Unsupported{"the mode"};
       simple(x, i, 3, permute_bytes);
     }},
    {"lop3",
     [](Decoder &x, Inst &i) {
       simple(x, i, 3, lookup3);
       i.sub = (u32)x.arg(4).value;
     }},
    {nullptr, nullptr}};
} // namespace emu
