/* tests/cudaemu/load_store.cc - ld, st, atom, red. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "alu.h"

namespace emu
{
namespace
{
inline u64 address_of(Warp &w, const Inst &i, int lane)
{
  if (i.a.size == 8) return lanes<u64>(w, i.a)[lane] + (u64)i.offset;
  return (u32)(lanes<u32>(w, i.a)[lane] + (u32)i.offset);
}

/* All lanes read consecutive words of the allocation that was hit last, and nobody watches. */
bool load_row(Warp &w, const Inst &i)
{
  if (i.a.size != 8 || i.list[0].size != 4 || config.race || config.init) return false;
  const u64 *a = lanes<u64>(w, i.a), first = a[0] + (u64)i.offset;
  u64 elsewhere = 0;
  for (int l = 0; l < 32; l++) elsewhere |= a[l] - a[0] - 4 * (u64)l;
  if (elsewhere || first < i.lo || first + 128 > i.hi || first & 3) return false;
  memcpy(lanes<u32>(w, i.list[0]), i.host + (first - i.lo), 128);
  return true;
}

template <Space S, int BYTES> void load(Warp &w, const Inst &i, u32 mask)
{
  if (S == Space::global && BYTES == 4 && i.count == 1 && mask == ~0u && load_row(w, i)) return;
  FOR_LANES(l, mask)
  {
    const u8 *p = access<S>(w, i, l, address_of(w, i, l), (u32)(i.count * BYTES), reads | (int)i.sub);
    for (int k = 0; k < i.count; k++) {
      u64 v = 0;
      memcpy(&v, p + k * BYTES, BYTES);
      if ((i.flags & sign_extend) && BYTES < 8) v = (u64)((s64)(v << (64 - 8 * BYTES)) >> (64 - 8 * BYTES));
      if (i.list[(size_t)k].size) put(w, i.list[(size_t)k], l, v);
    }
  }
  if (i.aux) publish(w);
}

template <Space S, int BYTES> void store(Warp &w, const Inst &i, u32 mask)
{
  FOR_LANES(l, mask)
  {
    u8 value[64];
    for (int k = 0; k < i.count; k++) {
      const u64 v = get(w, i.list[(size_t)k], l);
      memcpy(value + k * BYTES, &v, BYTES);
    }
    const u32 bytes = (u32)(i.count * BYTES);
    memcpy(access<S>(w, i, l, address_of(w, i, l), bytes, writes | (int)i.sub, value), value, bytes);
  }
  if (i.aux) publish(w);
}

enum AtomicOp : u32 { op_add, op_min, op_max, op_and, op_or, op_xor, op_exch, op_cas, op_inc, op_dec, n_ops };
const char *const op_names[] = {"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"};

template <class T> T added(T a, T b)
{
  if constexpr (std::is_integral<T>::value) {
    return (T)((u64)a + (u64)b);
  } else {
    return a + b;
  }
}

template <class T> T integer_result(u32 op, T old, T b)
{
  if constexpr (std::is_integral<T>::value) {
    switch (op) {
    case op_and: return old & b;
    case op_or: return old | b;
    case op_xor: return old ^ b;
    case op_inc: return old >= b ? 0 : (T)(old + 1);
    default: return old == 0 || old > b ? b : (T)(old - 1);
    }
  }
  return old;
}

template <class T> T atomic_result(u32 op, T old, T b, T c)
{
  switch (op) {
  case op_add: return added(old, b);
  case op_min: return b < old ? b : old;
  case op_max: return b > old ? b : old;
  case op_exch: return b;
  case op_cas: return old == b ? c : old;
  default: return integer_result(op, old, b);
  }
}

template <Space S, class T> void atomic(Warp &w, const Inst &i, u32 mask)
{
  FOR_LANES(l, mask)
  {
    u8 *p = access<S>(w, i, l, address_of(w, i, l), (u32)(sizeof(T) * i.count), reads | writes | atomically);
    for (int k = 0; k < i.count; k++) {
      T old;
      memcpy(&old, p + (size_t)k * sizeof(T), sizeof(T));
      const T b = unpack<T>((Slot<T>)get(w, i.list[(size_t)k], l));
      const T c = i.c.size ? unpack<T>((Slot<T>)get(w, i.c, l)) : T();
      const T now = atomic_result<T>(i.sub, old, b, c);
      memcpy(p + (size_t)k * sizeof(T), &now, sizeof(T));
      if (i.d.size) put(w, i.d, l, pack<T>(old));
    }
  }
  if (config.race && S == Space::global) publish(w);
}

template <Space S> void atomic_half(Warp &w, const Inst &i, u32 mask) /* aux: bit 0 bf16, bit 1 packed */
{
  const int n = i.aux & 2 ? 2 : 1;
  const bool bf = i.aux & 1;
  FOR_LANES(l, mask)
  {
    u8 *p = access<S>(w, i, l, address_of(w, i, l), (u32)(2 * n * i.count), reads | writes | atomically);
    for (int k = 0; k < i.count; k++, p += 2 * n) {
      u32 old = 0, now = 0;
      const u32 b = (u32)get(w, i.list[(size_t)k], l);
      memcpy(&old, p, (size_t)(2 * n));
      for (int h = 0; h < n; h++) now |= (u32)to_half((double)half_of(old, h, bf) + half_of(b, h, bf), bf) << 16 * h;
      memcpy(p, &now, (size_t)(2 * n));
      if (i.d.size) put(w, i.d, l, old);
    }
  }
  if (config.race && S == Space::global) publish(w);
}

/* --- decoding --- */

#define BY_BYTES(H, S)                                                                                                 \
  (bytes == 1 ? H<Space::S, 1> : bytes == 2 ? H<Space::S, 2> : bytes == 4 ? H<Space::S, 4> : H<Space::S, 8>)
#define BY_SPACE(H)                                                                                                    \
  (space == Space::global   ? BY_BYTES(H, global)                                                                      \
   : space == Space::shared ? BY_BYTES(H, shared)                                                                      \
   : space == Space::local  ? BY_BYTES(H, local)                                                                       \
                            : BY_BYTES(H, param))

/* Accesses of device memory that may meet those of other threads: they race with none of their kind, and carry the
 * order of blocks as atomics do. sub: the mode; aux: publish. */
void mark_strong(const Decoder &x, Inst &i, Space space)
{
  const bool strong = x.has("volatile") || x.has("relaxed") || x.has("acquire") || x.has("release");
  if (!strong || space != Space::global) return;
  i.sub = atomically;
  i.aux = config.race;
}

/* [%r] in the space param is memory of a call, and local here: only names are parameters of the kernel. */
Space addressed(Decoder &x, Inst &i, const Arg &a)
{
  Space named = x.space(), found = named;
  i.a = x.address(a, i.offset, found);
  return named == Space::global && found != Space::shared ? named : found;
}

void decode_ld(Decoder &x, Inst &i)
{
  const Type t = x.type();
  const int bytes = bytes_of(t);
  if (bytes == 0) throw Unsupported{"the type"};
  const Space space = addressed(x, i, x.arg(1));
  x.operands(i.list, x.arg(0), slot_bytes(t));
  i.count = (u8)i.list.size();
  if (i.count * bytes > 32) throw Unsupported{"the width"};
  if (is_signed(t)) i.flags |= sign_extend;
  mark_strong(x, i, space);
  i.run = BY_SPACE(load);
}

void decode_st(Decoder &x, Inst &i)
{
  const Type t = x.type();
  const int bytes = bytes_of(t);
  if (bytes == 0 || x.has("async")) throw Unsupported{"the type"};
  const Space space = addressed(x, i, x.arg(0));
  if (space == Space::param) throw Unsupported{"a store to a parameter of the kernel"};
  x.operands(i.list, x.arg(1), slot_bytes(t));
  i.count = (u8)i.list.size();
  mark_strong(x, i, space);
  i.run = BY_SPACE(store);
}

Handler atomic_of(Type t, Space s)
{
#define ATOMIC(T) (s == Space::shared ? (Handler)atomic<Space::shared, T> : (Handler)atomic<Space::global, T>)
  switch (t) {
  case Type::f32: return ATOMIC(float);
  case Type::f64: return ATOMIC(double);
  case Type::s32: return ATOMIC(s32);
  case Type::u32: return ATOMIC(u32);
  case Type::s64: return ATOMIC(s64);
  case Type::u64: return ATOMIC(u64);
  case Type::u16: return ATOMIC(u16);
  default: return s == Space::shared ? atomic_half<Space::shared> : atomic_half<Space::global>;
  }
}

void decode_atomic(Decoder &x, Inst &i)
{
  const Type t = x.type();
  const bool returns = x.words[0] == "atom";
  while (i.sub < n_ops && !x.has(op_names[i.sub])) i.sub++;
  if (i.sub == n_ops || x.has("async")) throw Unsupported{"the operation"};
  if (is_half(t) && i.sub != op_add) throw Unsupported{"the type"};
  size_t n = 0;
  if (returns) i.d = x.operand(x.arg(n++), slot_bytes(t));
  const Space space = addressed(x, i, x.arg(n++));
  x.operands(i.list, x.arg(n++), slot_bytes(t));
  i.count = (u8)i.list.size();
  if (i.count > 1 && returns) throw Unsupported{"a vector"};
  if (i.sub == op_cas) i.c = x.operand(x.arg(n), slot_bytes(t));
  if (is_half(t)) i.aux = (is_bf16(t) ? 1 : 0) | (is_packed(t) ? 2 : 0);
  i.run = atomic_of(t, space);
}
} // namespace

const Opcode memory_opcodes[] = {{"ld", decode_ld},       {"ldu", decode_ld},     {"st", decode_st},
                                 {"atom", decode_atomic}, {"red", decode_atomic}, {nullptr, nullptr}};
} // namespace emu
