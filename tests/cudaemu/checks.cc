/* tests/cudaemu/checks.cc - uninitialised reads and data races, at every access. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "machine.h"
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>

namespace emu
{
Order order;

namespace
{
/* Records of all of device memory, of which the system gives only the pages that are touched. */
template <class T> T *records(u64 n)
{
  void *p = mmap(nullptr, n * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p != MAP_FAILED) return (T *)p;
  perror("cudaemu: mmap");
  abort();
}

u8 *global_init() /* a byte for each byte: 1 where it was written */
{
  static u8 *const p = records<u8>(device_arena_bytes);
  return p;
}

Access *global_writes()
{
  static Access *const p = records<Access>(device_arena_bytes / granule);
  return p;
}

Access *global_reads()
{
  static Access *const p = records<Access>(device_arena_bytes / granule);
  return p;
}

std::string description(const Block &b, const Access &a)
{
  const Inst &i = b.kernel->code[a.pc];
  const int group = a.warp - b.n_warps, groups = (b.n_warps + 3) / 4;
  const std::string who = group < 0        ? " thread " + std::to_string(a.warp * 32 + a.lane)
                          : group < groups ? " warpgroup " + std::to_string(group)
                                           : " a copy";
  return "block " + std::to_string(a.block) + who + " at line " + std::to_string(i.statement->line) + " (" +
         to_text(*i.statement).substr(0, 60) + ")";
}

/* The clock of a bulk copy that has not landed: nobody can know that it is over. */
constexpr u32 in_flight = ~0u;

/* One access in the making. */
struct Attempt {
  Warp &w;
  const Inst &i;
  int lane;
  u32 size;
  int mode;
  const u8 *memory;
  const void *value;
  const char *space;
  u64 address;

  bool ordered(const Access &a) const;
  bool changes_nothing() const;
  bool proxy_sees(const Access &a) const;
  [[noreturn]] void race(const Access &a, const char *kind) const;
  void check(Access &write, Access &read) const;
  u32 clock() const;
  void record(Access &write, Access &read) const;
};

/* Does this thread know that the access is over? */
bool Attempt::ordered(const Access &a) const
{
  const Block &b = *w.block;
  if (a.launch != order.launch) return true;
  if (a.clock == in_flight) return false;
  if (a.block != b.linear) { /* by __threadfence and an atomic on both sides */
    const u32 published = a.block < order.published.size() ? order.published[a.block] : 0;
    return published >= a.time && b.acquired >= published;
  }
  if (a.warp != w.id) return w.clocks[a.warp] >= a.clock;
  return a.lane == lane || a.warp_syncs != w.warp_syncs;
}

bool Attempt::changes_nothing() const
{
  return (mode & writes) && !(mode & reads) && value != nullptr && memcmp(memory, value, size) == 0;
}

/* What was written the usual way is seen by wgmma and bulk copies only after fence.proxy.async: by the writer, or by
 * the reader since it last synchronised. */
bool Attempt::proxy_sees(const Access &a) const
{
  if (a.launch != order.launch || a.block != w.block->linear || a.proxy) return true;
  return w.block->warps[a.warp].proxy_fences > a.proxy_fences ||
         (w.proxy_fences > 0 && w.fenced_at_sync == w.warp_syncs);
}

void Attempt::race(const Access &a, const char *kind) const
{
  fault(w, i, lane, fault_launch, "race: %s %s memory 0x%llx, of %s", kind, space, (unsigned long long)address,
        description(*w.block, a).c_str());
}

/* A product reads until somebody in its warpgroup has waited for its group, and then for all four warps. */
u32 Attempt::clock() const
{
  if (mode & by_wgmma) return (u32)(w.wgmma_done + w.wgmma_groups.size() + 1);
  return mode & by_async_proxy ? in_flight : w.clocks[(size_t)w.id];
}

void Attempt::record(Access &write, Access &read) const
{
  if (mode & unrecorded) return;
  const int who = mode & by_wgmma ? warpgroup_of(w) : w.id;
  const Access mine = {order.launch,
                       w.block->linear,
                       w.pc,
                       order.time,
                       clock(),
                       w.warp_syncs,
                       w.proxy_fences,
                       (u8)who,
                       (u8)lane,
                       (u8)((mode & atomically) != 0),
                       (u8)((mode & by_async_proxy) != 0)};
  if (mode & writes) write = mine;
  /* One reader is remembered: rather one that another thread has not yet synchronised with. */
  if ((mode & reads) && (ordered(read) || read.warp == who)) read = mine;
}

void Attempt::check(Access &write, Access &read) const
{
  const bool atomic = mode & atomically;
  if (!ordered(write) && !(atomic && write.atomic) && !changes_nothing())
    race(write, mode & writes ? "write after write to" : "read after write to");
  if ((mode & writes) && !ordered(read) && !(atomic && read.atomic)) race(read, "write after read of");
  if ((mode & reads) && (mode & by_async_proxy) && !proxy_sees(write))
    race(write, "no fence.proxy.async between this and the write to");
  record(write, read);
}

void check_races(const Attempt &a, Access *write, Access *read)
{
  order.time++;
  for (u32 k = 0; k < (a.size + granule - 1) / granule; k++) a.check(write[k], read[k]);
}

void check_written(Warp &w, const Inst &i, int lane, u8 *init, u64 address, u32 size, int mode, const char *space)
{
  if (mode & reads)
    for (u32 k = 0; k < size; k++)
      if (!init[k])
        fault(w, i, lane, fault_address, "read of uninitialised %s memory at 0x%llx", space,
              (unsigned long long)(address + k));
  if (mode & writes) memset(init, 1, size);
}
} // namespace

void mark_initialised(u64 address, u64 size)
{
  if (config.init && is_device(address)) memset(global_init() + device_offset(address), 1, size);
}

void check_global(Warp &w, const Inst &i, int lane, u64 address, u32 size, int mode, const void *value)
{
  if (!is_device(address)) return;
  const u64 at = device_offset(address);
  if (config.race)
    check_races({w, i, lane, size, mode, raw_view(address), value, "device", address}, global_writes() + at / granule,
                global_reads() + at / granule);
  if (config.init) check_written(w, i, lane, global_init() + at, address, size, mode, "device");
}

void check_shared(Warp &w, const Inst &i, int lane, u32 offset, u32 size, int mode, const void *value)
{
  Block &b = *w.block;
  if (config.race)
    check_races({w, i, lane, size, mode, b.shared.data() + offset, value, "shared", offset},
                &b.shared_writes[offset / granule], &b.shared_reads[offset / granule]);
  if (config.init) check_written(w, i, lane, &b.shared_init[offset], offset, size, mode, "shared");
}

void land(Block &b, u32 offset, u32 bytes, const Mbarrier &m)
{
  if (!config.race) return;
  for (u32 k = offset / granule; k < (offset + bytes) / granule; k++)
    if (b.shared_writes[k].clock == in_flight)
      b.shared_writes[k].clock = m.phases + 1, b.shared_writes[k].warp = (u8)m.who;
}

void publish(Warp &w)
{
  Block &b = *w.block;
  if (w.fenced) {
    if (order.published.size() <= b.linear) order.published.resize(b.linear + 1);
    order.published[b.linear] = order.time;
  }
  b.acquired = order.time;
}

int warpgroup_of(const Warp &w)
{
  return w.block->n_warps + w.id / 4;
}

void join(Clocks &into, const Clocks &from)
{
  into.resize(std::max(into.size(), from.size()));
  for (size_t k = 0; k < from.size(); k++) into[k] = std::max(into[k], from[k]);
}
} // namespace emu
