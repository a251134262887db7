/* tests/cudaemu/machine.h - what executes a kernel: instructions, warps, blocks, device memory. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EMU_MACHINE_H
#define EMU_MACHINE_H

#include "numbers.h"
#include "ptx.h"
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace emu
{
struct Warp;
struct Block;
struct Inst;

/* The knobs, CUDAEMU_<NAME>; README.md says what they do. */
struct Config {
  bool race, init, lazy, abort, trace, check, driver;
  u32 seed, capability, devices;
  u64 slice, limit, memory;
};
extern const Config config;

/* --- instructions --- */

using Handler = void (*)(Warp &, const Inst &, u32 mask);

/* 32 lanes side by side, of 4 or 8 bytes each; a predicate is one word, a bit a lane. */
struct Operand {
  u32 offset = 0;
  u8 constant = 0; /* bank: 0 the warp's registers, 1 the kernel's constants */
  u8 size = 0;     /* 4 or 8; 1: predicate; 0: there is none */
};

enum Flag : u8 { flush_subnormals = 1, saturate = 2, sign_extend = 4, relu = 8, minus = 16 };
enum Negated : u8 { negated_a = 1, negated_b = 2, negated_c = 4 };

enum class Flow : u8 {
  plain,
  branch,
  branch_table, /* brx.idx */
  exit,
  barrier,
  warp_wide, /* waits until all its lanes are there */
  retry      /* may ask to be executed again, or to let other warps go first */
};

struct Inst {
  Handler run = nullptr;
  Flow flow = Flow::plain;
  u8 flags = 0, negated = 0, count = 0;
  u32 guard = no_guard;
  bool guard_negated = false;
  u32 target = 0;
  u32 sub = 0, aux = 0; /* which form of the instruction, as its handler has it */
  s64 offset = 0;       /* of the address */
  Operand d, a, b, c, e, members;
  std::vector<Operand> list;
  std::vector<u32> table;
  const Statement *statement = nullptr;
  /* The allocation that was hit last: [lo, hi), and where the host sees lo. */
  mutable u64 lo = 1, hi = 0;
  mutable u8 *host = nullptr;

  static constexpr u32 no_guard = ~0u;
};

struct SharedArray {
  u32 offset, size;
  std::string name;
};

enum class Special : int; /* %tid.x and so on: decode.h */

struct Kernel {
  const Module *module = nullptr;
  const Function *function = nullptr;
  std::vector<Inst> code;
  std::vector<u8> constants;
  std::vector<std::pair<u32, Special>> specials; /* registers that are set when a warp starts */
  u32 register_bytes = 0, local_bytes = 0, param_bytes = 0, static_shared = 0;
  std::vector<SharedArray> shared;
  std::map<std::string, u32> param_offset;
  std::vector<std::pair<u32, u32>> params; /* offset, bytes */
  int max_dynamic = 48 * 1024;
  int unsupported = 0; /* instructions */
};

std::unique_ptr<Kernel> compile(Module &module, const Function &function);

struct Dim {
  u32 x, y, z;
};

struct Launch {
  const Kernel *kernel;
  Dim grid, block;
  u32 dynamic;
  std::vector<u8> params;
  bool cooperative = false;
};

struct Fault {
  int cuda_error;
  std::string message;
};

/* Runs a kernel to its end; throws Fault. */
void run(const Launch &launch);

/* Time across the blocks of a launch: who has published what (checks.cc). */
struct Order {
  u32 launch = 0, time = 0;
  std::vector<u32> published; /* by block */
};
extern Order order;

struct Stats {
  u64 launches, threads, warp_instructions, lane_instructions;
};
extern Stats stats;

/* --- state of a running kernel --- */

struct Group { /* lanes of a warp that are at the same place */
  u32 pc, mask;
  bool blocked;
};

struct AsyncCopy { /* one cp.async of one lane */
  u32 dst;
  u64 src;
  u16 size, copied;
  u8 lane;
  const Inst *inst;
};

struct WgmmaCall {
  const Inst *inst;
  u64 a, b; /* descriptors */
  bool accumulate;
};

/* A vector clock: an entry a warp of the block, then one a warpgroup, of the wgmma groups that are known to be over,
 * and one an mbarrier, of its phases that are. */
using Clocks = std::vector<u32>;

struct Warp {
  Block *block;
  int id;
  u8 *bank[2];
  u32 exists, alive;
  Group groups[32];
  int n_groups;
  bool done, at_barrier;
  int barrier;
  const Inst *reduction; /* bar.red that waits for its result */
  std::vector<u8> registers, local;
  u64 executed, lanes_executed;
  u32 pc;
  /* what instructions of Flow::retry ask for */
  bool yield, again, spun;
  /* order of memory accesses */
  Clocks clocks;
  u32 warp_syncs, proxy_fences, fenced_at_sync;
  bool fenced;
  /* asynchronous work */
  std::vector<AsyncCopy> open_copies;
  std::deque<std::vector<AsyncCopy>> copy_groups;
  std::vector<std::function<void()>> open_bulk; /* copies out of shared memory */
  std::deque<std::vector<std::function<void()>>> bulk_groups;
  std::vector<WgmmaCall> open_wgmma;
  std::deque<std::vector<WgmmaCall>> wgmma_groups;
  u64 wgmma_done;
};

/* The products of a warp's warpgroup, as somebody who reads: their place in clocks and records. */
int warpgroup_of(const Warp &w);

struct Barrier {
  u32 arrived = 0;
  bool counted = false; /* by a number of threads in the instruction, not by those that there are */
  std::vector<int> waiting;
  Clocks clocks;
  u32 true_lanes = 0, lanes = 0; /* bar.red */
};

struct Access { /* the last one to a granule of two bytes */
  u32 launch, block, pc, time, clock, warp_syncs, proxy_fences;
  u8 warp, lane, atomic, proxy; /* proxy: 1 written by the async proxy */
};

struct Mbarrier { /* what its 64 bits in shared memory do not hold */
  Clocks arriving, completed;
  int init_warp;
  u32 init_clock;
  int who;    /* its place in clocks and records, for the copies that count at it */
  u32 phases; /* that are over */
};
constexpr int most_mbarriers = 32; /* with a place of their own */

struct Block {
  const Launch *launch;
  const Kernel *kernel;
  Dim id;
  u32 linear;
  int n_threads, n_warps;
  std::vector<u8> shared;
  u32 dynamic_offset;
  std::vector<Warp> warps;
  Barrier barriers[16];
  std::vector<Access> shared_writes, shared_reads;
  std::vector<u8> shared_init;
  u32 acquired = 0;
  std::vector<std::function<void()>> bulk_copies; /* not yet landed */
  u64 progress = 0;                               /* completed phases of mbarriers, finished wgmma groups */
  int idle_rounds = 0;
  std::map<u32, Mbarrier> mbarriers; /* by offset */
  int mbarriers_begun = 0;
};

[[noreturn]] void fault(Warp &w, const Inst &i, int lane, int cuda_error, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* What cudaError_t says of them. */
enum {
  fault_address = 700,
  fault_timeout = 702,
  fault_assert = 710,
  fault_misaligned = 716,
  fault_launch = 719,
  fault_unsupported = 801
};

/* --- lanes --- */

template <class T> using Slot = typename std::conditional<sizeof(T) == 8, u64, u32>::type;

template <class T> inline T unpack(Slot<T> s)
{
  T t;
  memcpy(&t, &s, sizeof t);
  return t;
}

template <class T> inline Slot<T> pack(T t)
{
  Slot<T> s = 0;
  memcpy(&s, &t, sizeof t);
  return s;
}

template <class S> inline S *lanes(Warp &w, Operand o)
{
  return reinterpret_cast<S *>(w.bank[o.constant] + o.offset);
}

inline u32 &predicate(Warp &w, Operand o)
{
  return *reinterpret_cast<u32 *>(w.bank[o.constant] + o.offset);
}

inline void set_predicate(Warp &w, Operand o, u32 mask, u32 value)
{
  u32 &p = predicate(w, o);
  p = (p & ~mask) | (value & mask);
}

inline u64 get(Warp &w, Operand o, int lane)
{
  return o.size == 8 ? lanes<u64>(w, o)[lane] : lanes<u32>(w, o)[lane];
}

inline void put(Warp &w, Operand o, int lane, u64 v)
{
  if (o.size == 8) {
    lanes<u64>(w, o)[lane] = v;
  } else {
    lanes<u32>(w, o)[lane] = (u32)v;
  }
}

inline int first_lane(u32 mask)
{
  return __builtin_ctz(mask);
}

#define FOR_LANES(l, mask)                                                                                             \
  for (int l = 0; l < 32; l++)                                                                                         \
    if ((mask) >> l & 1)

void join(Clocks &into, const Clocks &from);

/* --- device memory: memory.cc --- */

struct Allocation {
  u64 base, size;
  bool live, host;
};

/* Addresses are never used twice, so that freed memory stays forbidden. */
constexpr u64 device_arena_bytes = 64ull << 30;
constexpr u32 granule = 2; /* bytes that share a record of accesses */

u64 device_alloc(u64 size); /* 0: none left */
bool device_free(u64 address);
bool is_device(u64 address);
u64 device_bytes_free();
u64 device_offset(u64 address); /* from the first byte there is */
void host_register(void *p, u64 size);
bool host_unregister(void *p);
const Allocation *find_allocation(u64 address);
/* Where the host sees device bytes. The first is checked, and throws Fault. */
u8 *host_view(u64 address, u64 size, bool write);
u8 *raw_view(u64 address);
void mark_initialised(u64 address, u64 size);

/* --- checked accesses of kernels: memory.cc, checks.cc --- */

enum Mode { reads = 1, writes = 2, atomically = 4, by_async_proxy = 8, unrecorded = 16, by_wgmma = 32 };
constexpr u64 shared_window = 0x0000100000000000ull, local_window = 0x0000110000000000ull,
              param_window = 0x0000120000000000ull, window_end = param_window + (1ull << 32),
              window_mask = 0xffffffffffull;

u8 *global_slow(Warp &w, const Inst &i, int lane, u64 address, u32 size, int mode);
u8 *shared_slow(Warp &w, const Inst &i, int lane, u32 offset, u32 size, int mode);
/* Bounds of shared memory only: no record of the access, no cache. */
u8 *shared_bounds(Warp &w, const Inst &i, int lane, u32 offset, u32 size, int mode);
/* Races and uninitialised reads; `value` is what will be written, if that is known. */
void check_global(Warp &w, const Inst &i, int lane, u64 address, u32 size, int mode, const void *value);
void check_shared(Warp &w, const Inst &i, int lane, u32 offset, u32 size, int mode, const void *value);
/* A bulk copy is there, for who knows that this phase of its mbarrier is over. */
void land(Block &b, u32 offset, u32 bytes, const Mbarrier &m);
void publish(Warp &w); /* after an atomic: what was written before a fence is now seen by other blocks */

enum class Space { global, shared, local, param };

template <Space S>
inline u8 *access(Warp &w, const Inst &i, int lane, u64 address, u32 size, int mode, const void *value = nullptr);

inline u8 *local_access(Warp &w, const Inst &i, int lane, u64 address, u32 size)
{
  const u32 bytes = w.block->kernel->local_bytes;
  if (address + size > bytes)
    fault(w, i, lane, fault_address, "local access of %u bytes at offset %llu of %u", size, (unsigned long long)address,
          bytes);
  return w.local.data() + (size_t)lane * bytes + address;
}

inline u8 *param_access(Warp &w, const Inst &i, int lane, u64 address, u32 size)
{
  const std::vector<u8> &p = w.block->launch->params;
  if (address + size > p.size())
    fault(w, i, lane, fault_address, "parameter access at offset %llu of %zu", (unsigned long long)address, p.size());
  return const_cast<u8 *>(p.data()) + address;
}

inline u8 *shared_access(Warp &w, const Inst &i, int lane, u64 address, u32 size, int mode, const void *value)
{
  if (__builtin_expect(address < i.lo || address + size > i.hi, 0)) shared_slow(w, i, lane, (u32)address, size, mode);
  if (__builtin_expect(config.race || config.init, 0)) check_shared(w, i, lane, (u32)address, size, mode, value);
  return w.block->shared.data() + address;
}

inline u8 *global_access(Warp &w, const Inst &i, int lane, u64 address, u32 size, int mode, const void *value)
{
  u8 *p;
  if (__builtin_expect(address >= i.lo && address + size <= i.hi, 1)) {
    p = i.host + (address - i.lo);
  } else {
    p = global_slow(w, i, lane, address, size, mode);
  }
  if (__builtin_expect(config.race || config.init, 0)) check_global(w, i, lane, address, size, mode, value);
  return p;
}

/* Where the host finds `size` bytes at an address of the space; every check is made here. A generic address (global)
 * may lie in one of the windows of the other spaces. */
template <Space S>
inline u8 *access(Warp &w, const Inst &i, int lane, u64 address, u32 size, int mode, const void *value)
{
  if (__builtin_expect(address & (size - 1), 0))
    fault(w, i, lane, fault_misaligned, "misaligned %u-byte access at address 0x%llx", size,
          (unsigned long long)address);
  if (S == Space::local) return local_access(w, i, lane, address, size);
  if (S == Space::param) return param_access(w, i, lane, address, size);
  if (S == Space::shared) return shared_access(w, i, lane, address, size, mode, value);
  if (__builtin_expect(address >= shared_window && address < window_end, 0)) {
    const u64 offset = address & window_mask;
    if (address >= param_window) return param_access(w, i, lane, offset, size);
    if (address >= local_window) return local_access(w, i, lane, offset, size);
    return shared_access(w, i, lane, offset, size, mode, value);
  }
  return global_access(w, i, lane, address, size, mode, value);
}
} // namespace emu

#endif
