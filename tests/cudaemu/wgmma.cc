/* tests/cudaemu/wgmma.cc - products of a warpgroup, which run when they are waited for. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "alu.h"
#include "async.h"
#include <cstdio>

namespace emu
{
namespace
{
/* sub; aux: N. list: N / 2 registers of d, then 4 of a where it is in registers. */
constexpr u32 wgmma_bf16 = 1, a_in_registers = 2, a_transposed = 4, b_transposed = 8;

/* Where element (mn, k) of an operand lies: PTX manual, "Matrix Descriptor" and "Canonical Layouts". */
u32 element_offset(u64 descriptor, bool transposed, u32 mn, u32 k)
{
  const u32 start = (u32)(descriptor & 0x3fff) << 4, leading = (u32)(descriptor >> 16 & 0x3fff) << 4,
            stride = (u32)(descriptor >> 32 & 0x3fff) << 4;
  const int mode = (int)(descriptor >> 62); /* 0 none, 1 128 bytes, 2 64 bytes, 3 32 bytes */
  const u32 row = mode == 0 ? 16 : 256u >> mode;
  u32 at;
  if (transposed) { /* mn runs along a row */
    const u32 across = row / 2;
    at = start + mn / across * leading + k / 8 * stride + k % 8 * row + mn % across * 2;
  } else if (mode != 0) {
    at = start + mn / 8 * stride + mn % 8 * row + k * 2;
  } else {
    at = start + mn / 8 * stride + k / 8 * leading + mn % 8 * 16 + k % 8 * 2;
  }
  return swizzled(at, mode ? 4 - mode : 0);
}

float element(Warp &w, const Inst &i, u64 descriptor, bool transposed, u32 mn, u32 k)
{
  u16 h;
  memcpy(&h, w.block->shared.data() + element_offset(descriptor, transposed, mn, k), 2);
  return from_half(h, i.sub & wgmma_bf16);
}

struct Operands {
  float a[16][16], b[16][256]; /* [row][k], [k][column] */
};

/* b is the same for the four warps of a group. */
void read_b(Warp &w, const WgmmaCall &call, Operands &x)
{
  const Inst &i = *call.inst;
  for (u32 k = 0; k < 16; k++)
    for (u32 n = 0; n < i.aux; n++) x.b[k][n] = element(w, i, call.b, i.sub & b_transposed, n, k);
}

void read_a(Warp &w, const WgmmaCall &call, Operands &x)
{
  const Inst &i = *call.inst;
  const Operand *a = i.list.data() + i.aux / 2;
  for (int l = 0; (i.sub & a_in_registers) && l < 32; l++)
    for (int r = 0; r < 4; r++)
      for (int h = 0; h < 2; h++)
        x.a[l / 4 + 8 * (r & 1)][l % 4 * 2 + h + 8 * (r >> 1)] = half_of(lanes<u32>(w, a[r])[l], h, i.sub & wgmma_bf16);
  for (u32 r = 0; !(i.sub & a_in_registers) && r < 16; r++)
    for (u32 k = 0; k < 16; k++) x.a[r][k] = element(w, i, call.a, i.sub & a_transposed, (u32)(w.id % 4 * 16) + r, k);
}

void execute(Warp &w, const WgmmaCall &call, Operands &x)
{
  const Inst &i = *call.inst;
  float c[16][256] = {};
  read_a(w, call, x);
  for (u32 r = 0; r < 16; r++)
    for (u32 k = 0; k < 16; k++)
      for (u32 n = 0; n < i.aux; n++) c[r][n] += x.a[r][k] * x.b[k][n];
  for (u32 r = 0; r < i.aux / 2; r++) /* register r: columns 8 (r / 4) .., rows by its bit 1 */
    for (int l = 0; l < 32; l++) {
      u32 &d = lanes<u32>(w, i.list[r])[l];
      float sum = c[l / 4 + 8 * (int)(r / 2 % 2)][8 * (r / 4) + (u32)(l % 4) * 2 + r % 2];
      if (i.flags & minus) sum = -sum;
      d = as_bits(call.accumulate ? as_float(d) + sum : sum);
    }
}

/* The next group of a warpgroup, whose warps have all issued it. */
void execute_group(Warp *group)
{
  static Operands x;
  for (size_t n = 0; n < group->wgmma_groups.front().size(); n++)
    for (Warp *v = group; v < group + 4; v++) {
      const std::vector<WgmmaCall> &calls = v->wgmma_groups.front();
      if (calls.size() != group->wgmma_groups.front().size() || calls[n].inst != group->wgmma_groups.front()[n].inst)
        fault(*v, *group->wgmma_groups.front()[n].inst, 0, fault_launch, "warps of a group issue different products");
      if (v == group || calls[n].b != group->wgmma_groups.front()[n].b) read_b(*v, calls[n], x);
      execute(*v, calls[n], x);
    }
  for (Warp *v = group; v < group + 4; v++) v->wgmma_groups.pop_front(), v->wgmma_done++;
  group->block->progress++;
}

/* What the product reads must be there, and visible to the async proxy; whoever writes there must know of a wait for
 * it. recorded: by this warp, of the four that read the same; for the others a look at each 16 bytes will do. */
void check_operand(Warp &w, const Inst &i, u64 descriptor, bool transposed, u32 first, u32 n, bool recorded)
{
  const u32 bytes = recorded ? 16 : granule;
  const int mode = reads | by_async_proxy | (recorded ? by_wgmma : unrecorded);
  for (u32 mn = first; mn < first + n; mn += transposed ? 8 : 1)
    for (u32 k = 0; k < 16; k += transposed ? 1 : 8) { /* 16 bytes, whole in every layout */
      const u32 at = element_offset(descriptor, transposed, mn, k);
      shared_bounds(w, i, 0, at, 16, reads);
      if (config.race || config.init) check_shared(w, i, 0, at, bytes, mode, nullptr);
    }
}

void multiply(Warp &w, const Inst &i, u32 mask)
{
  if (mask != ~0u) fault(w, i, 0, fault_launch, "wgmma wants the whole warp, mask %08x", mask);
  if (w.block->n_warps % 4) fault(w, i, 0, fault_launch, "wgmma wants whole warpgroups: 128 threads");
  const u64 a = i.a.size ? get(w, i.a, 0) : 0, b = get(w, i.b, 0);
  if (i.a.size) check_operand(w, i, a, i.sub & a_transposed, (u32)(w.id % 4 * 16), 16, true);
  check_operand(w, i, b, i.sub & b_transposed, 0, i.aux, w.id % 4 == 0);
  w.open_wgmma.push_back({&i, a, b, (predicate(w, i.c) & 1) != 0});
}

void commit(Warp &w, const Inst &, u32)
{
  w.wgmma_groups.push_back(std::move(w.open_wgmma));
  w.open_wgmma.clear();
}

/* A group belongs to the warpgroup: it is over when all four warps have issued theirs, and then for all of them. */
void wait(Warp &w, const Inst &i, u32) /* sub: groups that may stay open */
{
  Block &b = *w.block;
  const u64 issued = w.wgmma_done + w.wgmma_groups.size(), target = issued > i.sub ? issued - i.sub : 0;
  Warp *const group = &b.warps[(size_t)(w.id & ~3)];
  for (Warp *v = group; v < group + 4; v++)
    if (v->wgmma_done + v->wgmma_groups.size() < target) {
      w.yield = w.again = true;
      return;
    }
  while (w.wgmma_done < target) execute_group(group);
  if (!config.race) return;
  u32 &over = w.clocks[(size_t)warpgroup_of(w)];
  over = std::max(over, (u32)target);
}

void nothing(Warp &, const Inst &, u32) {}

/* --- decoding --- */

void decode_product(Decoder &x, Inst &i)
{
  unsigned N = 0, K = 0;
  for (const std::string &word : x.words) sscanf(word.c_str(), "m64n%uk%u", &N, &K);
  const std::vector<Type> t = x.types();
  const bool known = K == 16 && N >= 8 && N <= 256 && N % 8 == 0 && t.size() == 3 && t[0] == Type::f32 && is_half(t[1]);
  if (!known || x.has("sp")) throw Unsupported{"the shape or type"};
  const bool a_reg = x.arg(1).kind == Arg::vector;
  x.operands(i.list, x.arg(0), 4);
  if (a_reg) {
    x.operands(i.list, x.arg(1), 4);
  } else {
    i.a = x.operand(x.arg(1), 8);
  }
  i.b = x.operand(x.arg(2), 8);
  i.c = x.predicate(x.arg(3));
  if ((s64)x.arg(4).value * (s64)x.arg(5).value < 0) i.flags |= minus;
  const size_t n = x.s->args.size();
  const bool ta = !a_reg && n > 6 && x.arg(6).value, tb = n > (a_reg ? 6u : 7u) && x.arg(a_reg ? 6 : 7).value;
  i.sub = (is_bf16(t[1]) ? wgmma_bf16 : 0) | (a_reg ? a_in_registers : 0) | (ta ? a_transposed : 0) |
          (tb ? b_transposed : 0);
  i.aux = N;
  i.flow = Flow::warp_wide;
  i.run = multiply;
  if (i.list.size() != N / 2 + (a_reg ? 4 : 0)) throw Unsupported{"operands"};
}

void decode_wgmma(Decoder &x, Inst &i)
{
  if (x.has("fence")) {
    i.run = nothing;
  } else if (x.has("commit_group")) {
    i.flow = Flow::warp_wide;
    i.run = commit;
  } else if (x.has("wait_group")) {
    i.flow = Flow::retry;
    i.sub = (u32)x.arg(0).value;
    i.run = wait;
  } else {
    decode_product(x, i);
  }
}
} // namespace

const Opcode wgmma_opcodes[] = {{"wgmma", decode_wgmma}, {nullptr, nullptr}};
} // namespace emu
