/* tests/cudaemu/move.cc - mov, packing of registers, addresses of one space as generic ones. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "alu.h"

namespace emu
{
namespace
{
template <class S> void copy_lanes(Warp &w, const Inst &i, u32 mask)
{
  S *d = lanes<S>(w, i.d);
  const S *a = lanes<S>(w, i.a);
  if (mask == ~0u) {
    memmove(d, a, 32 * sizeof(S));
  } else {
    FOR_LANES(l, mask) d[l] = a[l];
  }
}

void copy_any(Warp &w, const Inst &i, u32 mask) /* registers of different sizes */
{
  FOR_LANES(l, mask) put(w, i.d, l, get(w, i.a, l));
}

void read_clock(Warp &w, const Inst &i, u32 mask)
{
  FOR_LANES(l, mask) put(w, i.d, l, w.executed);
}

/* sub: bits of a part */
void pack_parts(Warp &w, const Inst &i, u32 mask)
{
  const u64 part = ((u64)1 << i.sub) - 1;
  FOR_LANES(l, mask)
  {
    u64 r = 0;
    for (size_t k = 0; k < i.list.size(); k++) r |= (get(w, i.list[k], l) & part) << (k * i.sub);
    put(w, i.d, l, r);
  }
}

void unpack_parts(Warp &w, const Inst &i, u32 mask)
{
  const u64 part = ((u64)1 << i.sub) - 1;
  FOR_LANES(l, mask)
  {
    const u64 v = get(w, i.a, l);
    for (size_t k = 0; k < i.list.size(); k++)
      if (i.list[k].size) put(w, i.list[k], l, v >> (k * i.sub) & part);
  }
}

u64 window_of(Space s)
{
  return s == Space::shared ? shared_window : s == Space::local ? local_window : param_window;
}

template <bool INTO> void convert_address(Warp &w, const Inst &i, u32 mask) /* INTO: generic -> the space */
{
  const u64 window = window_of((Space)i.sub);
  FOR_LANES(l, mask)
  {
    const u64 a = get(w, i.a, l);
    put(w, i.d, l, INTO ? a & window_mask : a + window);
  }
}

void test_space(Warp &w, const Inst &i, u32 mask)
{
  u32 r = 0;
  FOR_LANES(l, mask)
  {
    const u64 a = get(w, i.a, l);
    const Space s = a < shared_window || a >= window_end ? Space::global
                    : a >= param_window                  ? Space::param
                    : a >= local_window                  ? Space::local
                                                         : Space::shared;
    r |= (u32)(s == (Space)i.sub) << l;
  }
  set_predicate(w, i.d, mask, r);
}

/* --- decoding --- */

void decode_pack(Decoder &x, Inst &i)
{
  const bool into = x.arg(0).kind == Arg::vector;
  const int bytes = bytes_of(x.type());
  x.operands(i.list, x.arg(into ? 0 : 1), 4);
  i.sub = (u32)(8 * bytes) / (u32)i.list.size();
  if (into) {
    i.a = x.operand(x.arg(1), slot_bytes(x.type()));
  } else {
    i.d = x.operand(x.arg(0), bytes);
  }
  i.run = into ? unpack_parts : pack_parts;
}

void decode_mov(Decoder &x, Inst &i)
{
  const Arg &d = x.arg(0), &a = x.arg(1);
  if (d.kind == Arg::vector || a.kind == Arg::vector) return decode_pack(x, i);
  if (x.has("pred")) return decode_predicate_logic(x, i);
  i.d = x.operand(d, slot_bytes(x.type()));
  const Special sp = a.kind == Arg::reg ? special_of(a.name) : Special::none;
  if (sp >= Special::clock && sp < Special::none) {
    i.run = read_clock;
    return;
  }
  i.a = x.operand(a, i.d.size);
  i.run = i.d.size != i.a.size ? copy_any : i.d.size == 8 ? copy_lanes<u64> : copy_lanes<u32>;
}

void decode_cvta(Decoder &x, Inst &i)
{
  const Space s = x.space();
  i.d = x.operand(x.arg(0), 8);
  i.a = x.operand(x.arg(1), 8);
  i.sub = (u32)s;
  i.run = s == Space::global ? copy_lanes<u64> : x.has("to") ? convert_address<true> : convert_address<false>;
}

void decode_isspacep(Decoder &x, Inst &i)
{
  i.d = x.predicate(x.arg(0));
  i.a = x.operand(x.arg(1), 8);
  i.sub = (u32)x.space();
  i.run = test_space;
}
} // namespace

const Opcode move_opcodes[] = {
    {"mov", decode_mov}, {"cvta", decode_cvta}, {"isspacep", decode_isspacep}, {nullptr, nullptr}};
} // namespace emu
