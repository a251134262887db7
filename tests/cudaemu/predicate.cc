/* tests/cudaemu/predicate.cc - comparisons, predicates, selection. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "alu.h"

namespace emu
{
namespace
{
enum Comparison : u32 { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan, n_comparisons };
const char *const comparison_names[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                        "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};

Comparison comparison_of(const std::string &word)
{
  static const std::unordered_map<std::string, Comparison> unsigned_names = {
      {"lo", lt}, {"ls", le}, {"hi", gt}, {"hs", ge}};
  const auto it = unsigned_names.find(word);
  if (it != unsigned_names.end()) return it->second;
  for (u32 c = 0; c < n_comparisons; c++)
    if (word == comparison_names[c]) return (Comparison)c;
  throw Unsupported{"the comparison"};
}

template <class T> inline bool compare(u32 c, T a, T b)
{
  switch (c) {
  case eq: return a == b;
  case ne: return std::is_floating_point<T>::value ? a < b || a > b : a != b; /* of floats: and neither is NaN */
  case lt: return a < b;
  case le: return a <= b;
  case gt: return a > b;
  case ge: return a >= b;
  case equ: return !(a < b || a > b);
  case neu: return !(a == b);
  case ltu: return !(a >= b);
  case leu: return !(a > b);
  case gtu: return !(a <= b);
  case geu: return !(a < b);
  case num: return a == a && b == b;
  default: return a != a || b != b;
  }
}

template <class T, u32 C> u32 compare_lanes(Warp &w, const Inst &i)
{
  const auto *a = lanes<Slot<T>>(w, i.a), *b = lanes<Slot<T>>(w, i.b);
  u8 t[32];
  const u32 c = C < n_comparisons ? C : i.sub;
  for (int l = 0; l < 32; l++)
    t[l] = compare<T>(c, flushed(unpack<T>(a[l]), i.flags), flushed(unpack<T>(b[l]), i.flags));
  u32 r = 0;
  for (int l = 0; l < 32; l++) r |= (u32)t[l] << l;
  return r;
}

/* The usual ones as loops of their own, which vectorise. */
template <class T> u32 compared(Warp &w, const Inst &i)
{
  switch (i.sub) {
  case eq: return compare_lanes<T, eq>(w, i);
  case ne: return compare_lanes<T, ne>(w, i);
  case lt: return compare_lanes<T, lt>(w, i);
  case le: return compare_lanes<T, le>(w, i);
  case gt: return compare_lanes<T, gt>(w, i);
  case ge: return compare_lanes<T, ge>(w, i);
  default: return compare_lanes<T, n_comparisons>(w, i);
  }
}

enum Combine : u32 { alone, with_and, with_or, with_xor };

u32 combined(Warp &w, const Inst &i, u32 r)
{
  if (i.aux == alone) return r;
  const u32 c = predicate(w, i.c) ^ (i.negated & negated_c ? ~0u : 0);
  return i.aux == with_and ? r & c : i.aux == with_or ? r | c : r ^ c;
}

template <class T> void set_predicates(Warp &w, const Inst &i, u32 mask)
{
  const u32 r = compared<T>(w, i), yes = combined(w, i, r), no = combined(w, i, ~r);
  set_predicate(w, i.d, mask, yes);
  if (i.e.size) set_predicate(w, i.e, mask, no);
}

template <class T> void set_value(Warp &w, const Inst &i, u32 mask)
{
  const u32 r = combined(w, i, compared<T>(w, i)), one = i.count ? as_bits(1) : ~0u;
  FOR_LANES(l, mask) lanes<u32>(w, i.d)[l] = r >> l & 1 ? one : 0;
}

/* count: bit 0 bf16, bit 1 packed: then e is the second number's result */
void set_predicates_half(Warp &w, const Inst &i, u32 mask)
{
  const bool bf = i.count & 1;
  u32 r[2] = {0, 0};
  FOR_LANES(l, mask)
  {
    const u32 a = lanes<u32>(w, i.a)[l], b = lanes<u32>(w, i.b)[l];
    for (int k = 0; k < 2; k++) r[k] |= (u32)compare<float>(i.sub, half_of(a, k, bf), half_of(b, k, bf)) << l;
  }
  const u32 second = combined(w, i, i.count & 2 ? r[1] : ~r[0]);
  set_predicate(w, i.d, mask, combined(w, i, r[0]));
  if (i.e.size) set_predicate(w, i.e, mask, second);
}

template <class S> void select(Warp &w, const Inst &i, u32 mask)
{
  S *d = lanes<S>(w, i.d);
  const S *a = lanes<S>(w, i.a), *b = lanes<S>(w, i.b);
  const u32 p = predicate(w, i.c) ^ (i.negated & negated_c ? ~0u : 0);
  EACH_LANE((p >> l & 1) ? a[l] : b[l])
}

void select_by_sign(Warp &w, const Inst &i, u32 mask) /* slct: a where c >= 0 */
{
  FOR_LANES(l, mask)
  {
    const u32 c = lanes<u32>(w, i.c)[l];
    const bool first = i.sub ? as_float(c) >= 0 : (s32)c >= 0;
    put(w, i.d, l, get(w, first ? i.a : i.b, l));
  }
}

enum Logic : u32 { logic_and, logic_or, logic_xor, logic_not, logic_mov };

void predicate_logic(Warp &w, const Inst &i, u32 mask)
{
  const u32 a = predicate(w, i.a) ^ (i.negated & negated_a ? ~0u : 0);
  const u32 b = i.b.size ? predicate(w, i.b) ^ (i.negated & negated_b ? ~0u : 0) : 0;
  const u32 r[] = {a & b, a | b, a ^ b, ~a, a};
  set_predicate(w, i.d, mask, r[i.sub]);
}

template <class T> bool test_number(T x, u32 what)
{
  const int kind = std::fpclassify(x);
  switch (what) {
  case 0: return kind != FP_INFINITE && kind != FP_NAN;
  case 1: return kind == FP_INFINITE;
  case 2: return kind != FP_NAN;
  case 3: return kind == FP_NAN;
  case 4: return kind == FP_NORMAL;
  default: return kind == FP_SUBNORMAL;
  }
}

template <class T> void test_property(Warp &w, const Inst &i, u32 mask)
{
  u32 r = 0;
  FOR_LANES(l, mask) r |= (u32)test_number(unpack<T>(lanes<Slot<T>>(w, i.a)[l]), i.sub) << l;
  set_predicate(w, i.d, mask, r);
}

/* --- decoding --- */

#define BY_TYPE(t, H)                                                                                                  \
  ((t) == Type::s32   ? H<s32>                                                                                         \
   : (t) == Type::u32 ? H<u32>                                                                                         \
   : (t) == Type::s64 ? H<s64>                                                                                         \
   : (t) == Type::u64 ? H<u64>                                                                                         \
   : (t) == Type::s16 ? H<s16>                                                                                         \
   : (t) == Type::u16 ? H<u16>                                                                                         \
   : (t) == Type::f32 ? H<float>                                                                                       \
   : (t) == Type::f64 ? H<double>                                                                                      \
                      : nullptr)

void comparison_operands(Decoder &x, Inst &i)
{
  i.sub = comparison_of(x.words[1]);
  i.aux = x.has("and") ? with_and : x.has("or") ? with_or : x.has("xor") ? with_xor : alone;
  i.flags = x.flags();
  i.a = x.operand(x.arg(1), slot_bytes(x.type()));
  i.b = x.operand(x.arg(2), slot_bytes(x.type()));
  if (i.aux == alone) return;
  i.c = x.predicate(x.arg(3));
  if (x.arg(3).negated) i.negated |= negated_c;
}

void decode_setp(Decoder &x, Inst &i)
{
  const Type t = x.type();
  const Arg &d = x.arg(0);
  const bool both = d.kind == Arg::pair;
  i.d = x.predicate(both ? d.parts[0] : d);
  if (both) i.e = x.predicate(d.parts[1]);
  comparison_operands(x, i);
  if (is_half(t)) i.count = (u8)((is_bf16(t) ? 1 : 0) | (is_packed(t) ? 2 : 0));
  i.run = is_half(t) ? set_predicates_half : BY_TYPE(t, set_predicates);
}

void decode_set(Decoder &x, Inst &i)
{
  i.d = x.operand(x.arg(0), 4);
  comparison_operands(x, i);
  i.count = x.types().front() == Type::f32;
  i.run = BY_TYPE(x.type(), set_value);
}

void decode_selp(Decoder &x, Inst &i)
{
  i.d = x.operand(x.arg(0), slot_bytes(x.type()));
  i.a = x.operand(x.arg(1), i.d.size);
  i.b = x.operand(x.arg(2), i.d.size);
  i.c = x.predicate(x.arg(3));
  if (x.arg(3).negated) i.negated |= negated_c;
  i.run = i.d.size == 8 ? select<u64> : select<u32>;
}

void decode_slct(Decoder &x, Inst &i)
{
  const std::vector<Type> t = x.types();
  simple(x, i, 2, select_by_sign);
  i.d = x.operand(x.arg(0), slot_bytes(t[0]));
  i.a = x.operand(x.arg(1), i.d.size);
  i.b = x.operand(x.arg(2), i.d.size);
  i.c = x.operand(x.arg(3), 4);
  i.sub = t[1] == Type::f32;
}

void decode_testp(Decoder &x, Inst &i)
{
  const char *const names[] = {"finite", "infinite", "number", "notanumber", "normal", "subnormal"};
  while (i.sub < 6 && x.words[1] != names[i.sub]) i.sub++;
  i.d = x.predicate(x.arg(0));
  i.a = x.operand(x.arg(1), slot_bytes(x.type()));
  i.run = x.type() == Type::f64 ? test_property<double> : test_property<float>;
}
} // namespace

void decode_predicate_logic(Decoder &x, Inst &i)
{
  const std::string &o = x.words[0];
  i.sub = o == "and" ? logic_and : o == "or" ? logic_or : o == "xor" ? logic_xor : o == "not" ? logic_not : logic_mov;
  i.d = x.predicate(x.arg(0));
  i.a = x.predicate(x.arg(1));
  if (x.arg(1).negated) i.negated |= negated_a;
  if (i.sub <= logic_xor) i.b = x.predicate(x.arg(2));
  if (i.sub <= logic_xor && x.arg(2).negated) i.negated |= negated_b;
  i.run = predicate_logic;
}

const Opcode predicate_opcodes[] = {{"setp", decode_setp}, {"set", decode_set},     {"selp", decode_selp},
                                    {"slct", decode_slct}, {"testp", decode_testp}, {nullptr, nullptr}};
} // namespace emu
