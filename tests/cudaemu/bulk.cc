/* tests/cudaemu/bulk.cc - cp.async.bulk: copies of rows and of tensor tiles. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "alu.h"
#include "async.h"
#include "tensor_map.h"

namespace emu
{
namespace
{
u32 tile_bytes(const TensorMap &t)
{
  u32 n = t.element;
  for (u32 k = 0; k < t.rank; k++) n *= t.box[k];
  return n;
}

using Coordinates = std::vector<s64>;

/* Where element n of a box lies in the tensor; 0: outside of it. */
u64 element_address(const TensorMap &t, const Coordinates &c, u32 n)
{
  u64 a = t.base;
  bool inside = true;
  for (u32 k = 0; k < t.rank; k++) {
    const s64 x = c[k] + n % t.box[k];
    n /= t.box[k];
    inside &= x >= 0 && (u64)x < t.size[k];
    a += (u64)x * (k ? t.stride[k - 1] : t.element);
  }
  return inside ? a : 0;
}

void load_tile(Warp &w, const Inst &i, int lane, const TensorMap &t, const Coordinates &c, u32 dst)
{
  const u32 n = tile_bytes(t) / t.element;
  for (u32 e = 0; e < n; e++) {
    u8 *to = w.block->shared.data() + swizzled(dst + e * t.element, t.swizzle);
    const u64 from = element_address(t, c, e);
    if (from) {
      memcpy(to, access<Space::global>(w, i, lane, from, t.element, reads), t.element);
    } else {
      memset(to, 0, t.element);
    }
  }
}

void store_tile(Warp &w, const Inst &i, int lane, const TensorMap &t, const Coordinates &c, u32 src)
{
  const u32 n = tile_bytes(t) / t.element;
  for (u32 e = 0; e < n; e++) {
    const u8 *from = w.block->shared.data() + swizzled(src + e * t.element, t.swizzle);
    const u64 to = element_address(t, c, e);
    if (to) memcpy(access<Space::global>(w, i, lane, to, t.element, writes, from), from, t.element);
  }
}

void copy_row(Warp &w, const Inst &i, int lane, u32 shared, u64 global, u32 bytes, bool stores)
{
  for (u32 k = 0; k < bytes; k += 16) {
    u8 *s = w.block->shared.data() + shared + k;
    u8 *g = access<Space::global>(w, i, lane, global + k, 16, stores ? writes : reads, s);
    memcpy(stores ? g : s, stores ? s : g, 16);
  }
}

/* The issuer must know that all is done with what it overwrites, and must have made visible what it reads. */
void check_issue(Warp &w, const Inst &i, int lane, u32 shared, u32 bytes, bool stores)
{
  shared_bounds(w, i, lane, shared, bytes, stores ? reads : writes);
  if (!config.race && !config.init) return;
  for (u32 k = 0; k < bytes; k += 16)
    check_shared(w, i, lane, shared + k, 16, (stores ? reads | unrecorded : writes) | by_async_proxy, nullptr);
}

/* Into shared memory: lands as late as can be, and then counts at the mbarrier c + aux. */
void issue_load(Warp &w, const Inst &i, int lane, u32 shared, u32 bytes, std::function<void()> copy)
{
  const u32 mbarrier = shared_offset(w, i.c, lane, (s32)i.aux), clock = config.race ? w.clocks[(size_t)w.id] : 0;
  check_mbarrier(w, i, lane, mbarrier);
  check_issue(w, i, lane, shared, bytes, false);
  w.block->bulk_copies.push_back([&w, &i, lane, shared, mbarrier, bytes, clock, copy] {
    copy();
    land(*w.block, shared, bytes, w.block->mbarriers[mbarrier]);
    complete_bytes(w, i, lane, mbarrier, bytes, clock);
  });
}

TensorMap tensor_map_at(Warp &w, const Inst &i, int lane, u64 address)
{
  TensorMap t;
  if (address & 63) fault(w, i, lane, fault_misaligned, "a tensor map at 0x%llx", (unsigned long long)address);
  if (address >= param_window && address < window_end) {
    const std::vector<u8> &p = w.block->launch->params;
    const u64 at = address - param_window;
    if (at + sizeof t > p.size()) fault(w, i, lane, fault_address, "a tensor map outside of the parameters");
    memcpy(&t, p.data() + at, sizeof t);
  } else {
    memcpy(&t, host_view(address, sizeof t, false), sizeof t);
  }
  if (t.magic != TensorMap::magic_value || t.rank != i.list.size())
    fault(w, i, lane, fault_launch, "no tensor map of rank %zu at 0x%llx", i.list.size(), (unsigned long long)address);
  return t;
}

enum { stores_flag = 1 };

void copy_tile(Warp &w, const Inst &i, u32 mask) /* a: shared memory, b: the map, list: coordinates */
{
  FOR_LANES(l, mask)
  {
    const TensorMap t = tensor_map_at(w, i, l, get(w, i.b, l));
    const u32 shared = shared_offset(w, i.a, l, i.offset), aligned = t.swizzle ? 128u << t.swizzle : 128,
              bytes = tile_bytes(t);
    if (shared & (aligned - 1))
      fault(w, i, l, fault_misaligned, "a tile at shared offset %u, want a multiple of %u", shared, aligned);
    Coordinates c;
    for (const Operand &o : i.list) c.push_back((s32)get(w, o, l));
    if (i.sub & stores_flag) {
      check_issue(w, i, l, shared, bytes, true);
      w.open_bulk.push_back([&w, &i, l, t, c, shared] { store_tile(w, i, l, t, c, shared); });
    } else {
      issue_load(w, i, l, shared, bytes, [&w, &i, l, t, c, shared] { load_tile(w, i, l, t, c, shared); });
    }
  }
}

void copy_bulk(Warp &w, const Inst &i, u32 mask) /* a: shared memory, b: device memory, d: bytes */
{
  FOR_LANES(l, mask)
  {
    const u32 shared = shared_offset(w, i.a, l, i.offset), bytes = (u32)get(w, i.d, l);
    const u64 global = get(w, i.b, l);
    if ((shared | bytes | global) & 15)
      fault(w, i, l, fault_misaligned,
            "a bulk copy of %u bytes between shared offset %u and 0x%llx, want multiples of 16", bytes, shared,
            (unsigned long long)global);
    if (i.sub & stores_flag) {
      check_issue(w, i, l, shared, bytes, true);
      w.open_bulk.push_back([&w, &i, l, shared, global, bytes] { copy_row(w, i, l, shared, global, bytes, true); });
    } else {
      issue_load(w, i, l, shared, bytes,
                 [&w, &i, l, shared, global, bytes] { copy_row(w, i, l, shared, global, bytes, false); });
    }
  }
}

void commit_bulk(Warp &w, const Inst &, u32)
{
  w.bulk_groups.push_back(std::move(w.open_bulk));
  w.open_bulk.clear();
}

void wait_bulk(Warp &w, const Inst &i, u32) /* sub: groups that may stay open */
{
  while (w.bulk_groups.size() > i.sub) {
    for (const auto &copy : w.bulk_groups.front()) copy();
    w.bulk_groups.pop_front();
  }
}

void nothing(Warp &, const Inst &, u32) {}

/* --- decoding --- */

void decode_tile(Decoder &x, Inst &i, bool stores)
{
  Space space = Space::shared, map_space = Space::global;
  s64 no_offset = 0, mbarrier_offset = 0;
  const Arg &map = x.arg(stores ? 0 : 1), &shared = x.arg(stores ? 1 : 0);
  if (x.has("multicast::cluster") || x.has("im2col") || x.has("cta_group::2")) throw Unsupported{"the mode"};
  i.a = x.address(shared, i.offset, space);
  i.b = x.address(map, no_offset, map_space);
  for (const Arg &c : map.parts) x.operands(i.list, c, 4);
  if (!stores) i.c = x.address(x.arg(2), mbarrier_offset, space);
  i.aux = (u32)(s32)mbarrier_offset;
  i.sub = stores ? stores_flag : 0;
  i.run = copy_tile;
}

void decode_row(Decoder &x, Inst &i, bool stores)
{
  Space space = Space::shared, global = Space::global;
  s64 no_offset = 0, mbarrier_offset = 0;
  i.a = x.address(x.arg(stores ? 1 : 0), i.offset, space);
  i.b = x.address(x.arg(stores ? 0 : 1), no_offset, global);
  if (no_offset != 0) throw Unsupported{"an offset"};
  i.d = x.operand(x.arg(2), 4);
  if (!stores) i.c = x.address(x.arg(3), mbarrier_offset, space);
  i.aux = (u32)(s32)mbarrier_offset;
  i.sub = stores ? stores_flag : 0;
  i.run = copy_bulk;
}
} // namespace

void decode_bulk(Decoder &x, Inst &i)
{
  const bool stores = x.has("bulk_group"), loads = x.has("mbarrier::complete_tx::bytes");
  if (x.has("prefetch")) {
    i.run = nothing;
  } else if (x.has("commit_group")) {
    i.run = commit_bulk;
  } else if (x.has("wait_group")) {
    i.sub = (u32)x.arg(0).value;
    i.run = wait_bulk;
  } else if (x.words[1] != "async" || !(stores || loads)) {
    throw Unsupported{"the operation"};
  } else if (x.has("tensor")) {
    decode_tile(x, i, stores);
  } else {
    decode_row(x, i, stores);
  }
}
} // namespace emu
