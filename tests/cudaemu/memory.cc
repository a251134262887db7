/* tests/cudaemu/memory.cc - device memory: where it lies, what was allocated, bounds. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "machine.h"
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <unistd.h>

namespace emu
{
namespace
{
/* Device memory is one file in memory, mapped once for the emulator. The addresses that kernels use are reserved but
 * forbidden: host code that follows a device pointer gets SIGSEGV. */
struct Arena {
  u64 device = 0;
  u8 *view = nullptr;
  u64 top = 0, in_use = 0;
  std::map<u64, Allocation> allocations;
};

void *map(int protection, int flags, int fd)
{
  void *p = mmap(nullptr, device_arena_bytes, protection, flags | MAP_NORESERVE, fd, 0);
  if (p != MAP_FAILED) return p;
  perror("cudaemu: mmap");
  abort();
}

Arena *make_arena()
{
  Arena *a = new Arena;
  const int fd = memfd_create("cudaemu", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, (off_t)device_arena_bytes) != 0) {
    perror("cudaemu: memfd_create");
    abort();
  }
  a->view = (u8 *)map(PROT_READ | PROT_WRITE, MAP_SHARED, fd);
  a->device = (u64)map(PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  close(fd);
  return a;
}

Arena &arena()
{
  static Arena *a = make_arena(); /* lives as long as the process: code at exit still frees */
  return *a;
}

const char *verb_of(int mode)
{
  return mode & atomically ? "atomic operation" : mode & writes ? "write" : "read";
}

[[noreturn]] void out_of_bounds(Warp &w, const Inst &i, int lane, u64 address, u32 size, int mode)
{
  const char *verb = verb_of(mode);
  const auto at = (unsigned long long)address;
  if (const Allocation *x = find_allocation(address))
    fault(w, i, lane, fault_address, "%s of %u bytes at 0x%llx %s an allocation of %llu bytes%s", verb, size, at,
          x->live ? "crosses the end of" : "in", (unsigned long long)x->size, x->live ? "" : " that was freed");
  auto before = arena().allocations.upper_bound(address);
  if (is_device(address) && before != arena().allocations.begin()) {
    const Allocation &x = (--before)->second;
    fault(w, i, lane, fault_address, "%s of %u bytes at 0x%llx, %llu bytes past the end of an allocation of %llu bytes",
          verb, size, at, (unsigned long long)(address - x.base - x.size), (unsigned long long)x.size);
  }
  fault(w, i, lane, fault_address, "%s of %u bytes at 0x%llx, which is no device memory (a host pointer?)", verb, size,
        at);
}
} // namespace

u64 device_bytes_free()
{
  return config.memory - std::min(config.memory, arena().in_use);
}

/* Filled with 0xff, which is NaN in every type of float. */
u64 device_alloc(u64 size)
{
  Arena &a = arena();
  const u64 room = (size + 511) / 512 * 512 + 512;
  if (size > device_bytes_free() || a.top + room > device_arena_bytes) return 0;
  const u64 address = a.device + a.top;
  a.top += room;
  a.in_use += size;
  a.allocations[address] = {address, size, true, false};
  memset(raw_view(address), 0xff, size);
  return address;
}

bool device_free(u64 address)
{
  Arena &a = arena();
  const auto it = a.allocations.find(address);
  if (it == a.allocations.end() || !it->second.live || it->second.host) return false;
  it->second.live = false;
  a.in_use -= it->second.size;
  const u64 from = (address - a.device + 4095) & ~4095ull, to = (address - a.device + it->second.size) & ~4095ull;
  if (to > from) madvise(a.view + from, to - from, MADV_REMOVE);
  return true;
}

bool is_device(u64 address)
{
  return address >= arena().device && address < arena().device + device_arena_bytes;
}

void host_register(void *p, u64 size)
{
  arena().allocations[(u64)p] = {(u64)p, size, true, true};
}

bool host_unregister(void *p)
{
  return arena().allocations.erase((u64)p) > 0;
}

const Allocation *find_allocation(u64 address)
{
  auto it = arena().allocations.upper_bound(address);
  if (it == arena().allocations.begin()) return nullptr;
  --it;
  return address < it->second.base + it->second.size ? &it->second : nullptr;
}

u8 *raw_view(u64 address)
{
  return is_device(address) ? arena().view + (address - arena().device) : (u8 *)address;
}

u64 device_offset(u64 address)
{
  return address - arena().device;
}

u8 *host_view(u64 address, u64 size, bool write)
{
  const Allocation *x = find_allocation(address);
  if (x == nullptr || !x->live || address + size > x->base + x->size) {
    char text[200];
    snprintf(text, sizeof text, "%s of %llu bytes at 0x%llx %s", write ? "write" : "read", (unsigned long long)size,
             (unsigned long long)address,
             x == nullptr ? "outside any allocation"
             : !x->live   ? "in freed memory"
                          : "runs past the end of its allocation");
    throw Fault{fault_address, text};
  }
  if (write) mark_initialised(address, size);
  return raw_view(address);
}

u8 *global_slow(Warp &w, const Inst &i, int lane, u64 address, u32 size, int mode)
{
  const Allocation *x = find_allocation(address);
  if (x == nullptr || !x->live || address + size > x->base + x->size) out_of_bounds(w, i, lane, address, size, mode);
  i.lo = x->base;
  i.hi = x->base + x->size;
  i.host = raw_view(x->base);
  return i.host + (address - i.lo);
}

namespace
{
/* The array that holds all of the bytes. */
SharedArray shared_array(Warp &w, const Inst &i, int lane, u32 offset, u32 size, int mode)
{
  const Block &b = *w.block;
  SharedArray dynamic = {b.dynamic_offset, b.launch->dynamic, "dynamic shared memory"};
  const SharedArray *nearest = nullptr;
  auto look = [&](const SharedArray &a) {
    if (offset >= a.offset) nearest = &a;
    return offset >= a.offset && offset + size <= a.offset + a.size;
  };
  for (const SharedArray &a : b.kernel->shared)
    if (look(a)) return a;
  if (look(dynamic)) return dynamic;
  fault(w, i, lane, fault_address, "%s of %u bytes at byte %u of %s, which has %u", verb_of(mode), size,
        nearest ? offset - nearest->offset : offset, nearest ? nearest->name.c_str() : "shared memory",
        nearest ? nearest->size : 0);
}
} // namespace

u8 *shared_bounds(Warp &w, const Inst &i, int lane, u32 offset, u32 size, int mode)
{
  shared_array(w, i, lane, offset, size, mode);
  return w.block->shared.data() + offset;
}

u8 *shared_slow(Warp &w, const Inst &i, int lane, u32 offset, u32 size, int mode)
{
  const SharedArray a = shared_array(w, i, lane, offset, size, mode);
  i.lo = a.offset;
  i.hi = a.offset + a.size;
  return w.block->shared.data() + offset;
}
} // namespace emu
