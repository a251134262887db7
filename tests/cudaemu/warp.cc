/* tests/cudaemu/warp.cc - shuffles, votes, reductions and barriers of a warp. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "alu.h"

namespace emu
{
namespace
{
enum Shuffle : u32 { shuffle_up, shuffle_down, shuffle_xor, shuffle_index };

/* The lane that lane l reads, or -1: out of its segment. c packs the clamp and the mask of segments, as the PTX
 * manual has it. */
int source_lane(u32 mode, int l, u32 b, u32 c)
{
  const int segment = (int)(c >> 8 & 31), clamp = (int)(c & 31), by = (int)(b & 31);
  const int low = l & segment, high = low | (clamp & ~segment);
  int j;
  switch (mode) {
  case shuffle_up: j = l - by; return j >= high ? j : -1; /* the clamp is a minimum here */
  case shuffle_down: j = l + by; break;
  case shuffle_xor: j = l ^ by; break;
  default: j = low | (by & ~segment);
  }
  return j <= high ? j : -1;
}

void shuffle(Warp &w, const Inst &i, u32 mask)
{
  const u32 *a = lanes<u32>(w, i.a), *b = lanes<u32>(w, i.b), *c = lanes<u32>(w, i.c);
  u32 read[32], inside = 0;
  FOR_LANES(l, mask)
  {
    int j = source_lane(i.sub, l, b[l], c[l]);
    inside |= (u32)(j >= 0) << l;
    if (j < 0) j = l;
    if (!(mask >> j & 1) && (w.exists >> j & 1))
      fault(w, i, l, fault_launch, "lane %d reads lane %d, which does not take part (mask %08x)", l, j, mask);
    read[l] = a[j];
  }
  FOR_LANES(l, mask) lanes<u32>(w, i.d)[l] = read[l];
  if (i.e.size) set_predicate(w, i.e, mask, inside);
}

enum Vote : u32 { vote_all, vote_any, vote_uni, vote_ballot };

void vote(Warp &w, const Inst &i, u32 mask)
{
  const u32 votes = (predicate(w, i.a) ^ (i.negated & negated_a ? ~0u : 0)) & mask;
  if (i.sub == vote_ballot) {
    FOR_LANES(l, mask) lanes<u32>(w, i.d)[l] = votes;
    return;
  }
  const bool all = votes == mask, none = votes == 0;
  set_predicate(w, i.d, mask, (i.sub == vote_all ? all : i.sub == vote_any ? !none : all || none) ? ~0u : 0);
}

void active_mask(Warp &w, const Inst &i, u32 mask)
{
  FOR_LANES(l, mask) lanes<u32>(w, i.d)[l] = mask;
}

enum Reduction : u32 { red_add, red_min, red_max, red_and, red_or, red_xor };

template <class T> T reduced(u32 op, T a, T b)
{
  if constexpr (std::is_integral<T>::value) {
    switch (op) {
    case red_add: return (T)((u32)a + (u32)b);
    case red_and: return a & b;
    case red_or: return a | b;
    case red_xor: return a ^ b;
    default: break;
    }
  }
  return op == red_min ? std::min(a, b) : std::max(a, b);
}

template <class T> void reduce(Warp &w, const Inst &i, u32 mask)
{
  const u32 *a = lanes<u32>(w, i.a);
  T r = unpack<T>(a[first_lane(mask)]);
  FOR_LANES(l, mask & (mask - 1)) r = reduced<T>(i.sub, r, unpack<T>(a[l]));
  FOR_LANES(l, mask) lanes<u32>(w, i.d)[l] = pack<T>(r);
}

void match_any(Warp &w, const Inst &i, u32 mask)
{
  u32 same[32] = {0};
  FOR_LANES(l, mask) FOR_LANES(k, mask) same[l] |= (u32)(get(w, i.a, l) == get(w, i.a, k)) << k;
  FOR_LANES(l, mask) lanes<u32>(w, i.d)[l] = same[l];
}

void match_all(Warp &w, const Inst &i, u32 mask)
{
  bool all = true;
  FOR_LANES(l, mask) all &= get(w, i.a, l) == get(w, i.a, first_lane(mask));
  FOR_LANES(l, mask) lanes<u32>(w, i.d)[l] = all ? mask : 0;
  if (i.e.size) set_predicate(w, i.e, mask, all ? ~0u : 0);
}

void elect(Warp &w, const Inst &i, u32 mask)
{
  if (i.d.size) FOR_LANES(l, mask) lanes<u32>(w, i.d)[l] = (u32)first_lane(mask);
  set_predicate(w, i.e, mask, mask & (0 - mask));
}

void warp_barrier(Warp &w, const Inst &, u32)
{
  w.warp_syncs++;
}

/* --- decoding --- */

void with_members(Decoder &x, Inst &i, const Arg &members, Handler run)
{
  i.flow = Flow::warp_wide;
  i.members = x.operand(members, 4);
  i.run = run;
}

void result_and_predicate(Decoder &x, Inst &i)
{
  const Arg &d = x.arg(0);
  i.d = x.operand(d.kind == Arg::pair ? d.parts[0] : d, 4);
  if (d.kind == Arg::pair) i.e = x.predicate(d.parts[1]);
}

void decode_shfl(Decoder &x, Inst &i)
{
  if (!x.has("sync")) throw Unsupported{"shfl without .sync"};
  result_and_predicate(x, i);
  i.sub = x.has("up") ? shuffle_up : x.has("down") ? shuffle_down : x.has("bfly") ? shuffle_xor : shuffle_index;
  i.a = x.operand(x.arg(1), 4);
  i.b = x.operand(x.arg(2), 4);
  i.c = x.operand(x.arg(3), 4);
  with_members(x, i, x.arg(4), shuffle);
}

void decode_vote(Decoder &x, Inst &i)
{
  if (!x.has("sync")) throw Unsupported{"vote without .sync"};
  i.sub = x.has("all") ? vote_all : x.has("any") ? vote_any : x.has("uni") ? vote_uni : vote_ballot;
  i.d = x.operand(x.arg(0), i.sub == vote_ballot ? 4 : 1);
  i.a = x.predicate(x.arg(1));
  if (x.arg(1).negated) i.negated |= negated_a;
  with_members(x, i, x.arg(2), vote);
}

void decode_redux(Decoder &x, Inst &i)
{
  const char *const names[] = {"add", "min", "max", "and", "or", "xor"};
  while (i.sub < 6 && !x.has(names[i.sub])) i.sub++;
  if (i.sub == 6 || x.has("abs") || x.has("NaN")) throw Unsupported{"the operation"};
  i.d = x.operand(x.arg(0), 4);
  i.a = x.operand(x.arg(1), 4);
  const Type t = x.type();
  with_members(x, i, x.arg(2), t == Type::s32 ? reduce<s32> : t == Type::f32 ? reduce<float> : reduce<u32>);
}

void decode_match(Decoder &x, Inst &i)
{
  result_and_predicate(x, i);
  i.a = x.operand(x.arg(1), bytes_of(x.type()));
  with_members(x, i, x.arg(2), x.has("all") ? match_all : match_any);
}
} // namespace

void decode_warp_barrier(Decoder &x, Inst &i)
{
  with_members(x, i, x.arg(0), warp_barrier);
}

const Opcode warp_opcodes[] = {{"shfl", decode_shfl},
                               {"vote", decode_vote},
                               {"redux", decode_redux},
                               {"match", decode_match},
                               {"elect",
                                [](Decoder &x, Inst &i) {
                                  result_and_predicate(x, i);
                                  with_members(x, i, x.arg(1), elect);
                                }},
                               {"activemask",
                                [](Decoder &x, Inst &i) {
                                  i.d = x.operand(x.arg(0), 4);
                                  i.run = active_mask;
                                }},
                               {nullptr, nullptr}};
} // namespace emu
