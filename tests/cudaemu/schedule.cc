/* tests/cudaemu/schedule.cc - runs the warps of blocks in some order until all have returned. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "decode.h"
#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace emu
{
Stats stats;

void fault(Warp &w, const Inst &i, int lane, int cuda_error, const char *format, ...)
{
  char what[512];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  const Block &b = *w.block;
  const Dim n = b.launch->block;
  const u32 t = (u32)(w.id * 32 + std::max(lane, 0));
  const auto file = b.kernel->module->files.find(i.statement->file);
  std::string name = file == b.kernel->module->files.end() ? "?" : file->second;
  name = name.substr(name.rfind('/') + 1); /* npos + 1 is 0 */
  char where[1200];
  snprintf(where, sizeof where, "%s:%d: %s\n    kernel %s block (%u,%u,%u) thread (%u,%u,%u)\n    ptx: ", name.c_str(),
           i.statement->line, what, b.kernel->function->name.c_str(), b.id.x, b.id.y, b.id.z, t % n.x, t / n.x % n.y,
           t / (n.x * n.y));
  throw Fault{cuda_error, where + to_text(*i.statement)};
}

namespace
{
/* --- barriers of a block --- */

int running_warps(const Block &b)
{
  int n = 0;
  for (const Warp &w : b.warps) n += !w.done;
  return n;
}

void finish_reduction(Warp &w, const Barrier &barrier)
{
  const Inst &i = *w.reduction;
  const bool all = barrier.true_lanes == barrier.lanes, any = barrier.true_lanes != 0;
  w.reduction = nullptr;
  if (i.aux == 1) {
    FOR_LANES(l, w.alive) lanes<u32>(w, i.d)[l] = barrier.true_lanes;
  } else {
    set_predicate(w, i.d, w.alive, (i.aux == 2 ? all : any) ? ~0u : 0);
  }
}

/* A warp that has returned counts as arrived, and what it wrote as visible. */
void release(Block &b, Barrier &barrier)
{
  for (const Warp &w : b.warps)
    if (config.race && w.done) join(barrier.clocks, w.clocks);
  for (int id : barrier.waiting) {
    Warp &w = b.warps[(size_t)id];
    w.at_barrier = false;
    w.warp_syncs++;
    if (w.reduction != nullptr) finish_reduction(w, barrier);
    if (!config.race) continue;
    w.clocks = barrier.clocks;
    w.clocks[(size_t)id]++;
  }
  barrier = Barrier();
}

/* The warp is whole here. */
void arrive_at_barrier(Warp &w, const Inst &i, u32 mask)
{
  Block &b = *w.block;
  const int first = first_lane(mask), id = (int)get(w, i.a, first) & 15;
  Barrier &barrier = b.barriers[id];
  const u32 need = i.b.size ? (u32)get(w, i.b, first) / 32 : (u32)running_warps(b);
  if (config.race) join(barrier.clocks, w.clocks);
  barrier.arrived++;
  barrier.counted = i.b.size != 0;
  if (i.sub) { /* bar.arrive goes on */
    if (config.race) w.clocks[(size_t)w.id]++;
  } else {
    w.at_barrier = true;
    w.barrier = id;
    barrier.waiting.push_back(w.id);
  }
  if (i.aux) {
    w.reduction = &i;
    barrier.lanes += (u32)__builtin_popcount(mask);
    barrier.true_lanes += (u32)__builtin_popcount((predicate(w, i.c) ^ (i.negated & negated_c ? ~0u : 0)) & mask);
  }
  if (barrier.arrived >= need) release(b, barrier);
}

/* A warp has returned: the others may have waited only for it. */
void release_after_exit(Block &b)
{
  for (Barrier &barrier : b.barriers)
    if (!barrier.waiting.empty() && !barrier.counted && (int)barrier.arrived >= running_warps(b)) release(b, barrier);
}

/* --- a warp ---
 * Its lanes are in groups that stand at different places. The group that is least far goes on until it meets another;
 * so they come together again without an analysis of the code. */

class Runner
{
public:
  Runner(Warp &warp, u64 budget) : w(warp), code(warp.block->kernel->code.data()), stop(warp.executed + budget) {}
  void run();

private:
  Warp &w;
  const Inst *const code;
  const u64 stop;
  u32 pc = 0, mask = 0, meets = 0; /* the group that runs; where it would meet another */
  bool unblocked = false;          /* every group has been tried since something last changed */

  enum Step { next, leave, pause }; /* leave: the group is back in the list; pause: another warp's turn */

  void merge();
  bool take();
  void give(u32 at, u32 lanes_of, bool blocked = false)
  {
    w.groups[w.n_groups++] = {at, lanes_of, blocked};
  }
  u32 next_group(u32 from) const;
  bool has_turn_before(u32 at) const;
  u32 guarded(const Inst &i) const;
  Step step();
  Step group();
  Step branch(const Inst &i, u32 taken, u32 target);
  Step warp_wide(const Inst &i, u32 active);
  Step retry(const Inst &i, u32 active);
  Step barrier(const Inst &i, u32 active);
  Step exit(u32 active);
  [[noreturn]] void stuck();
};

void Runner::merge()
{
  for (int a = 0; a < w.n_groups; a++)
    for (int b = w.n_groups - 1; b > a; b--)
      if (w.groups[a].pc == w.groups[b].pc) {
        w.groups[a].mask |= w.groups[b].mask;
        w.groups[a].blocked = false;
        w.groups[b] = w.groups[--w.n_groups];
      }
}

void Runner::stuck()
{
  const Inst &i = code[w.groups[0].pc];
  fault(w, i, first_lane(w.groups[0].mask), fault_launch,
        "threads of one warp wait at different places: mask %08x here, the others of %08x at line %d and so on",
        w.groups[0].mask, w.alive, w.n_groups > 1 ? code[w.groups[1].pc].statement->line : 0);
}

u32 Runner::next_group(u32 from) const
{
  u32 r = ~0u;
  for (int g = 0; g < w.n_groups; g++)
    if (w.groups[g].pc >= from) r = std::min(r, w.groups[g].pc);
  return r;
}

/* Has this group jumped past one that can go on? */
bool Runner::has_turn_before(u32 at) const
{
  for (int g = 0; g < w.n_groups; g++)
    if (w.groups[g].pc < at && !w.groups[g].blocked) return true;
  return false;
}

/* The group that is least far, of those that can go on. */
bool Runner::take()
{
  int best = -1;
  for (int g = 0; g < w.n_groups; g++)
    if (!w.groups[g].blocked && (best < 0 || w.groups[g].pc < w.groups[best].pc)) best = g;
  if (best < 0) return false;
  pc = w.groups[best].pc;
  mask = w.groups[best].mask;
  w.groups[best] = w.groups[--w.n_groups];
  meets = next_group(pc + 1);
  return true;
}

void Runner::run()
{
  for (;;) {
    merge();
    w.done = w.n_groups == 0;
    if (w.done || w.executed >= stop) return;
    if (!take()) {
      if (unblocked) stuck();
      unblocked = true;
      for (int g = 0; g < w.n_groups; g++) w.groups[g].blocked = false;
    } else if (group() == pause) {
      return;
    }
  }
}

inline u32 Runner::guarded(const Inst &i) const
{
  if (i.guard == Inst::no_guard) return mask;
  u32 p;
  memcpy(&p, w.bank[0] + i.guard, sizeof p);
  return mask & (i.guard_negated ? ~p : p);
}

Runner::Step Runner::group()
{
  Step s;
  do {
    if (pc >= meets || w.executed >= stop) {
      give(pc, mask);
      return leave;
    }
    s = step();
  } while (s == next);
  return s;
}

inline Runner::Step Runner::step()
{
  const Inst &i = code[pc];
  const u32 active = guarded(i);
  w.executed++;
  w.lanes_executed += (u32)__builtin_popcount(active);
  w.pc = pc;
  if (__builtin_expect(i.flow == Flow::plain, 1)) {
    if (active) i.run(w, i, active);
    pc++;
    return next;
  }
  if (!active) {
    pc++;
    return next;
  }
  switch (i.flow) {
  case Flow::branch: return branch(i, active, i.target);
  case Flow::branch_table: {
    const u32 index = (u32)get(w, i.a, first_lane(active));
    if (index >= i.table.size())
      fault(w, i, first_lane(active), fault_launch, "brx.idx %u of %zu", index, i.table.size());
    u32 same = 0;
    FOR_LANES(l, active) same |= (u32)((u32)get(w, i.a, l) == index) << l;
    if (same != active) { /* the others look again */
      give(i.table[index], same);
      give(pc, mask & ~same);
      return leave;
    }
    return branch(i, active, i.table[index]);
  }
  case Flow::exit: return exit(active);
  case Flow::warp_wide: return warp_wide(i, active);
  case Flow::retry: return retry(i, active);
  default: return barrier(i, active);
  }
}

Runner::Step Runner::branch(const Inst &i, u32 taken, u32 target)
{
  if (taken != mask) {
    give(target, taken);
    give(pc + 1, mask & ~taken);
    return leave;
  }
  pc = target;
  if (w.executed > config.limit)
    fault(w, i, first_lane(taken), fault_timeout, "still running after %llu instructions of one warp: an endless loop?",
          (unsigned long long)w.executed);
  if (w.n_groups == 0) return next;
  meets = next_group(pc);
  if (meets != pc && !has_turn_before(pc)) return next;
  give(pc, mask);
  return leave;
}

Runner::Step Runner::exit(u32 active)
{
  if (!w.open_bulk.empty() || !w.bulk_groups.empty())
    fault(w, code[pc], first_lane(active), fault_launch,
          "returns while bulk copies may still read shared memory: no wait_group");
  w.alive &= ~active;
  mask &= ~active;
  pc++;
  unblocked = false;
  return mask ? next : leave;
}

Runner::Step Runner::warp_wide(const Inst &i, u32 active)
{
  const int first = first_lane(active);
  const u32 members = i.members.size ? lanes<u32>(w, i.members)[first] : ~0u, need = w.alive & members;
  if (i.members.size) FOR_LANES(l, active)
  if (!(lanes<u32>(w, i.members)[l] >> l & 1))
    fault(w, i, l, fault_launch, "lane %d is not in its own member mask %08x", l, lanes<u32>(w, i.members)[l]);
  if ((active & need) != need) {
    if (active != mask) fault(w, i, first, fault_launch, "a warp-wide instruction under a predicate");
    give(pc, mask, true);
    return leave;
  }
  /* Without a member mask all lanes of the warp count, also those that a small block does not have. */
  i.run(w, i, i.members.size ? active & members : need == w.exists ? ~0u : active);
  pc++;
  return next;
}

Runner::Step Runner::retry(const Inst &i, u32 active)
{
  i.run(w, i, active);
  if (!w.again) pc++;
  w.again = false;
  if (!w.yield) return next;
  w.yield = false;
  w.spun = true;
  give(pc, mask);
  return pause;
}

Runner::Step Runner::barrier(const Inst &i, u32 active)
{
  if (mask != w.alive) {
    give(pc, mask, true);
    return leave;
  }
  if (active != mask) fault(w, i, first_lane(active), fault_launch, "a barrier for part of a warp");
  pc++;
  give(pc, mask);
  unblocked = false;
  arrive_at_barrier(w, i, active);
  return w.at_barrier ? pause : leave;
}

/* --- a block --- */

u32 special_value(const Block &b, const Warp &w, Special which, u32 lane)
{
  const Launch &L = *b.launch;
  const u32 t = (u32)w.id * 32 + lane;
  switch (which) {
  case Special::tid_x: return t % L.block.x;
  case Special::tid_y: return t / L.block.x % L.block.y;
  case Special::tid_z: return t / (L.block.x * L.block.y);
  case Special::ntid_x: return L.block.x;
  case Special::ntid_y: return L.block.y;
  case Special::ntid_z: return L.block.z;
  case Special::ctaid_x: return b.id.x;
  case Special::ctaid_y: return b.id.y;
  case Special::ctaid_z: return b.id.z;
  case Special::nctaid_x: return L.grid.x;
  case Special::nctaid_y: return L.grid.y;
  case Special::nctaid_z: return L.grid.z;
  case Special::laneid: return lane;
  case Special::warpid: return (u32)w.id;
  case Special::nwarpid: return (u32)b.n_warps;
  case Special::smid: return b.linear % 4;
  case Special::nsmid: return 4;
  case Special::lanemask_eq: return 1u << lane;
  case Special::lanemask_lt: return (1u << lane) - 1;
  case Special::lanemask_le: return (2u << lane) - 1;
  case Special::lanemask_gt: return ~((2u << lane) - 1);
  case Special::lanemask_ge: return ~((1u << lane) - 1);
  case Special::dynamic_smem_size: return L.dynamic;
  case Special::total_smem_size: return b.kernel->static_shared + L.dynamic;
  case Special::cluster_nctarank: return 1;
  case Special::gridid: return order.launch;
  case Special::dynamic_base:
  case Special::dynamic_base64: return b.dynamic_offset;
  default: return 0;
  }
}

void start_warp(Block &b, int id)
{
  Warp &w = b.warps[(size_t)id];
  const Kernel &k = *b.kernel;
  const int n = std::min(32, b.n_threads - id * 32);
  std::vector<u8> registers = std::move(w.registers);
  w = Warp();
  w.registers = std::move(registers);
  w.block = &b;
  w.id = id;
  w.exists = w.alive = n == 32 ? ~0u : (1u << n) - 1;
  w.n_groups = 1;
  w.groups[0] = {0, w.alive, false};
  if (w.registers.size() < k.register_bytes + 64) w.registers.resize(k.register_bytes + 64);
  w.bank[0] = (u8 *)(((uintptr_t)w.registers.data() + 63) & ~(uintptr_t)63);
  w.bank[1] = const_cast<u8 *>(k.constants.data());
  w.local.assign(32 * (size_t)k.local_bytes, 0xff);
  if (config.race) w.clocks.assign((size_t)(b.n_warps + (b.n_warps + 3) / 4 + most_mbarriers), 0);
  if (config.race) w.clocks[(size_t)id] = 1;
  for (const auto &s : k.specials)
    for (u32 l = 0; l < 32; l++) {
      const u32 v = special_value(b, w, s.second, l);
      put(w, {s.first, 0, (u8)(s.second == Special::dynamic_base64 ? 8 : 4)}, (int)l, v);
    }
}

void start_block(Block &b, const Launch &L, u32 linear)
{
  const Kernel &k = *L.kernel;
  b.launch = &L;
  b.kernel = &k;
  b.linear = linear;
  b.id = {linear % L.grid.x, linear / L.grid.x % L.grid.y, linear / (L.grid.x * L.grid.y)};
  b.n_threads = (int)(L.block.x * L.block.y * L.block.z);
  b.n_warps = (b.n_threads + 31) / 32;
  b.acquired = 0;
  b.idle_rounds = 0;
  b.bulk_copies.clear();
  b.mbarriers.clear();
  b.mbarriers_begun = 0;
  b.dynamic_offset = (k.static_shared + 1023) & ~1023u;
  b.shared.assign(b.dynamic_offset + L.dynamic + 64, 0xff);
  if (config.race) b.shared_writes.assign(b.shared.size() / granule, Access());
  if (config.race) b.shared_reads.assign(b.shared.size() / granule, Access());
  if (config.init) b.shared_init.assign(b.shared.size(), 0);
  for (Barrier &x : b.barriers) x = Barrier();
  b.warps.resize((size_t)b.n_warps);
  for (int id = 0; id < b.n_warps; id++) start_warp(b, id);
}

std::mt19937 &randomness()
{
  static std::mt19937 r(config.seed);
  return r;
}

template <class T> void shuffle(std::vector<T> &v)
{
  if (config.seed) std::shuffle(v.begin(), v.end(), randomness());
}

[[noreturn]] void deadlock(Block &b)
{
  for (Warp &w : b.warps)
    if (w.at_barrier)
      fault(w, b.kernel->code[w.groups[0].pc - 1], 0, fault_launch,
            "deadlock: warp %d waits at barrier %d that the others never reach", w.id, w.barrier);
  throw Fault{fault_launch, "deadlock"};
}

/* Every warp has a turn. False when all have returned. */
bool run_block(Block &b, bool shares_device)
{
  const u64 progress = b.progress;
  bool any = false, all_spin = true;
  std::vector<int> turns;
  for (int id = 0; id < b.n_warps; id++) turns.push_back(id);
  shuffle(turns);
  for (int id : turns) {
    Warp &w = b.warps[(size_t)id];
    if (w.done || w.at_barrier) continue;
    const u64 before = w.executed;
    w.spun = false;
    any = true;
    Runner(w, config.slice ? 1 + randomness()() % config.slice : shares_device ? 20000 : ~0ull >> 1).run();
    all_spin &= w.spun && w.executed - before < 64;
    if (w.done) release_after_exit(b);
  }
  if (running_warps(b) == 0) return false;
  if (!any) deadlock(b);
  b.idle_rounds = all_spin && b.progress == progress ? b.idle_rounds + 1 : 0;
  for (Warp &w : b.warps)
    if (b.idle_rounds > 1000 && w.spun)
      fault(w, b.kernel->code[w.pc], first_lane(w.alive), fault_launch, "waits for something that never happens");
  return true;
}

void finish_block(const Block &b)
{
  for (const Warp &w : b.warps) {
    stats.warp_instructions += w.executed;
    stats.lane_instructions += w.lanes_executed;
  }
  stats.threads += (u64)b.n_threads;
}
} // namespace

void run(const Launch &L)
{
  static std::vector<std::unique_ptr<Block>> pool;
  const u32 n = L.grid.x * L.grid.y * L.grid.z;
  const size_t resident = L.cooperative ? n : 1;
  std::vector<u32> blocks(n);
  std::vector<std::unique_ptr<Block>> live;
  order.launch++;
  order.published.clear();
  for (const Inst &i : L.kernel->code) {
    i.lo = 1;
    i.hi = 0;
  }
  for (u32 k = 0; k < n; k++) blocks[k] = k;
  shuffle(blocks);
  for (u32 next = 0; next < n || !live.empty();) {
    while (live.size() < resident && next < n) {
      if (pool.empty()) pool.push_back(std::make_unique<Block>());
      live.push_back(std::move(pool.back()));
      pool.pop_back();
      start_block(*live.back(), L, blocks[next++]);
    }
    for (size_t k = 0; k < live.size();) {
      if (run_block(*live[k], L.cooperative)) {
        k++;
        continue;
      }
      finish_block(*live[k]);
      pool.push_back(std::move(live[k]));
      live.erase(live.begin() + (long)k);
    }
  }
  stats.launches++;
}
} // namespace emu
