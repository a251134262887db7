/* tests/cudaemu/async.cc - cp.async and mbarrier. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "async.h"
#include "alu.h"

namespace emu
{
namespace
{
/* --- cp.async: the copy is made when the kernel waits for it, never earlier. sub: bytes --- */

/* `copied` bytes of the source, every one checked. */
void read_source(Warp &w, const AsyncCopy &c, int mode, u8 *to)
{
  const u32 step = c.copied == c.size ? c.size : 1;
  for (u32 k = 0; k < c.copied; k += step)
    memcpy(to + k, access<Space::global>(w, *c.inst, c.lane, c.src + k, step, mode), step);
}

void copy_async(Warp &w, const Inst &i, u32 mask)
{
  FOR_LANES(l, mask)
  {
    const u32 dst = shared_offset(w, i.d, l, i.offset), size = i.sub;
    const u64 src = get(w, i.a, l) + (u64)(s64)(s32)i.aux;
    const u32 copied = i.b.size ? std::min((u32)get(w, i.b, l), size) : size; /* the rest is zeros */
    if (dst & (size - 1)) fault(w, i, l, fault_misaligned, "cp.async to shared offset %u, want %u bytes", dst, size);
    if (copied && src & (size - 1))
      fault(w, i, l, fault_misaligned, "cp.async from 0x%llx, want %u bytes", (unsigned long long)src, size);
    shared_bounds(w, i, l, dst, size, writes);
    w.open_copies.push_back({dst, src, (u16)size, (u16)copied, (u8)l, &i});
    u8 unused[16];
    read_source(w, w.open_copies.back(), reads | unrecorded, unused);
  }
}

void perform(Warp &w, const AsyncCopy &c)
{
  u8 value[16] = {0};
  read_source(w, c, reads, value);
  u8 *to = shared_bounds(w, *c.inst, c.lane, c.dst, c.size, writes);
  if (config.race || config.init) check_shared(w, *c.inst, c.lane, c.dst, c.size, writes, value);
  memcpy(to, value, c.size);
}

void commit_copies(Warp &w, const Inst &, u32)
{
  w.copy_groups.push_back(std::move(w.open_copies));
  w.open_copies.clear();
}

void wait_copies(Warp &w, const Inst &i, u32 mask) /* sub: groups that may stay open; aux: wait_all */
{
  if (i.aux) commit_copies(w, i, mask);
  while (w.copy_groups.size() > i.sub) {
    for (const AsyncCopy &c : w.copy_groups.front()) perform(w, c);
    w.copy_groups.pop_front();
  }
}

/* --- mbarrier: 64 bits of shared memory --- */

struct Word {
  u32 count, pending; /* 20 bits each */
  s32 bytes;          /* expected and not yet there: 23 bits, biased */
  bool phase;
};

Word from_bits(u64 v)
{
  return {(u32)(v & 0xfffff), (u32)(v >> 20 & 0xfffff), (s32)(v >> 40 & 0x7fffff) - (1 << 22), (bool)(v >> 63)};
}

u64 to_bits(const Word &m)
{
  return (u64)m.count | (u64)m.pending << 20 | (u64)(u32)(m.bytes + (1 << 22)) << 40 | (u64)m.phase << 63;
}

Word load_word(const Block &b, u32 at)
{
  u64 v;
  memcpy(&v, b.shared.data() + at, sizeof v);
  return from_bits(v);
}

/* The phase ends when all have arrived and all bytes are there. */
void store_word(Block &b, u32 at, Word m)
{
  if (m.pending == 0 && m.bytes == 0) {
    m.phase = !m.phase;
    m.pending = m.count;
    b.progress++;
    b.mbarriers[at].completed = b.mbarriers[at].arriving;
    b.mbarriers[at].phases++;
  }
  const u64 v = to_bits(m);
  memcpy(b.shared.data() + at, &v, sizeof v);
}

void initialise(Warp &w, const Inst &i, u32 mask)
{
  FOR_LANES(l, mask)
  {
    const u32 at = shared_offset(w, i.a, l, i.offset), n = (u32)get(w, i.b, l);
    if (at & 7) fault(w, i, l, fault_misaligned, "an mbarrier at shared offset %u, want 8 bytes", at);
    if (n == 0 || n >= 1 << 20) fault(w, i, l, fault_launch, "an mbarrier of %u arrivals, want 1 to 2^20 - 1", n);
    shared_bounds(w, i, l, at, 8, writes);
    if (config.race || config.init) check_shared(w, i, l, at, 8, writes, nullptr);
    const int who = w.block->n_warps + (w.block->n_warps + 3) / 4 + w.block->mbarriers_begun++ % most_mbarriers;
    w.block->mbarriers[at] = {{}, {}, w.id, config.race ? w.clocks[(size_t)w.id] : 0, who, 0};
    const u64 v = to_bits({n, n, 0, false});
    memcpy(w.block->shared.data() + at, &v, sizeof v);
  }
}

void invalidate(Warp &w, const Inst &i, u32 mask)
{
  FOR_LANES(l, mask)
  {
    check_mbarrier(w, i, l, shared_offset(w, i.a, l, i.offset));
    w.block->mbarriers.erase(shared_offset(w, i.a, l, i.offset));
  }
}

enum { arrives = 1, expects = 2 };
void arrive(Warp &w, const Inst &i, u32 mask)
{
  FOR_LANES(l, mask)
  {
    const u32 at = shared_offset(w, i.a, l, i.offset), n = i.b.size ? (u32)get(w, i.b, l) : 1;
    check_mbarrier(w, i, l, at);
    Word m = load_word(*w.block, at);
    if (i.d.size) put(w, i.d, l, to_bits(m));
    if (i.sub & expects) m.bytes += (s32)n;
    if (i.sub & arrives) {
      const u32 arrivals = i.sub & expects ? 1 : n;
      if (m.pending < arrivals) fault(w, i, l, fault_launch, "more arrivals than this mbarrier's %u", m.count);
      m.pending -= arrivals;
      if (config.race) join(w.block->mbarriers[at].arriving, w.clocks);
      if (config.race) w.clocks[(size_t)w.id]++;
    }
    store_word(*w.block, at, m);
  }
}

/* Lanes whose phase is over; sub: the phase is given by its parity, else by the state that arrive returned. */
u32 finished_phases(Warp &w, const Inst &i, u32 mask)
{
  u32 done = 0;
  FOR_LANES(l, mask)
  {
    const u32 at = shared_offset(w, i.a, l, i.offset);
    check_mbarrier(w, i, l, at);
    const u64 q = get(w, i.b, l);
    const bool over = load_word(*w.block, at).phase != (bool)((i.sub ? q : q >> 63) & 1);
    done |= (u32)over << l;
    if (over && config.race) {
      const Mbarrier &m = w.block->mbarriers[at];
      join(w.clocks, m.completed);
      w.clocks[(size_t)m.who] = std::max(w.clocks[(size_t)m.who], m.phases);
      w.warp_syncs++;
    }
  }
  return done;
}

void test_phase(Warp &w, const Inst &i, u32 mask)
{
  u32 done = finished_phases(w, i, mask);
  if (done != mask && !w.block->bulk_copies.empty()) { /* bytes land when somebody would wait in vain */
    land_bulk_copies(*w.block);
    done = finished_phases(w, i, mask);
  }
  set_predicate(w, i.d, mask, done);
  w.yield = done != mask;
}

/* --- decoding --- */

void decode_mbarrier(Decoder &x, Inst &i)
{
  Space space = Space::shared;
  if (x.has("noComplete") || x.has("arrive_drop") || x.has("complete_tx")) throw Unsupported{"the operation"};
  if (x.has("try_wait") || x.has("test_wait")) {
    i.flow = Flow::retry;
    i.sub = x.has("parity");
    i.d = x.predicate(x.arg(0));
    i.a = x.address(x.arg(1), i.offset, space);
    i.b = x.operand(x.arg(2), i.sub ? 4 : 8);
    i.run = test_phase;
    return;
  }
  const size_t at = x.arg(0).kind == Arg::memory ? 0 : 1;
  if (at == 1) i.d = x.operand(x.arg(0), 8);
  i.a = x.address(x.arg(at), i.offset, space);
  if (x.s->args.size() > at + 1) i.b = x.operand(x.arg(at + 1), 4);
  i.sub = (x.has("arrive") ? arrives : 0) | (x.has("expect_tx") ? expects : 0);
  i.run = x.has("init") ? initialise : x.has("inval") ? invalidate : i.sub ? arrive : nullptr;
}

void decode_copy(Decoder &x, Inst &i)
{
  Space space = Space::shared, source = Space::global;
  s64 source_offset = 0;
  i.d = x.address(x.arg(0), i.offset, space);
  i.a = x.address(x.arg(1), source_offset, source);
  i.aux = (u32)(s32)source_offset;
  i.sub = (u32)x.arg(2).value;
  if (x.s->args.size() > 3) i.b = x.operand(x.arg(3), 4);
  i.run = copy_async;
}

void decode_cp(Decoder &x, Inst &i)
{
  if (x.has("bulk")) return decode_bulk(x, i);
  if (!x.has("async") || x.has("mbarrier")) throw Unsupported{"the operation"};
  if (x.has("commit_group")) {
    i.run = commit_copies;
  } else if (x.has("wait_group") || x.has("wait_all")) {
    i.aux = x.has("wait_all");
    i.sub = i.aux ? 0 : (u32)x.arg(0).value;
    i.run = wait_copies;
  } else {
    decode_copy(x, i);
  }
}
} // namespace

void check_mbarrier(Warp &w, const Inst &i, int lane, u32 at)
{
  if (at & 7) fault(w, i, lane, fault_misaligned, "an mbarrier at shared offset %u, want 8 bytes", at);
  const auto it = w.block->mbarriers.find(at);
  if (it == w.block->mbarriers.end())
    fault(w, i, lane, fault_launch, "no mbarrier was initialised at shared offset %u", at);
  if (config.race && w.clocks[(size_t)it->second.init_warp] < it->second.init_clock && it->second.init_warp != w.id)
    fault(w, i, lane, fault_launch, "race: warp %d does not know yet that warp %d initialised this mbarrier", w.id,
          it->second.init_warp);
}

void complete_bytes(Warp &w, const Inst &i, int lane, u32 at, u32 bytes, u32 issue_clock)
{
  check_mbarrier(w, i, lane, at);
  Word m = load_word(*w.block, at);
  m.bytes -= (s32)bytes;
  if (config.race) { /* who waits for the phase sees the copy, but nothing that its issuer did later */
    Clocks &c = w.block->mbarriers[at].arriving;
    c.resize(w.clocks.size());
    c[(size_t)w.id] = std::max(c[(size_t)w.id], issue_clock);
  }
  store_word(*w.block, at, m);
}

void land_bulk_copies(Block &b)
{
  static std::mt19937 random(3);
  while (!b.bulk_copies.empty()) {
    std::swap(b.bulk_copies[random() % b.bulk_copies.size()], b.bulk_copies.back());
    const std::function<void()> copy = std::move(b.bulk_copies.back());
    b.bulk_copies.pop_back();
    copy();
  }
}

const Opcode async_opcodes[] = {{"cp", decode_cp}, {"mbarrier", decode_mbarrier}, {nullptr, nullptr}};
} // namespace emu
