/* tests/cudaemu/nccl.cc - a stand-in for libnccl: ranks of one host meet in shared memory, in the order of streams. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "numbers.h"
#include "stand_in.h"
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <nccl.h>
#include <sched.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

using emu::device_view;

namespace
{
constexpr size_t slot_bytes = 1 << 20;
constexpr int max_ranks = 16;

enum Kind { all_reduce, reduce_scatter, all_gather, broadcast };
const char *const kind_names[] = {"AllReduce", "ReduceScatter", "AllGather", "Broadcast"};

/* What all ranks must call alike. */
struct Signature {
  int kind, type, operation, root;
  size_t count;
};

struct Meeting { /* in shared memory, zeros at first; the slots of the ranks follow */
  std::atomic<int> attached, arrived, generation;
  Signature signatures[max_ranks];
};

long knob(const char *name, long otherwise)
{
  const char *text = getenv(name);
  return text != nullptr && *text ? atol(text) : otherwise;
}
} // namespace

struct ncclComm {
  int rank, size;
  Meeting *meeting;
  std::string name;
  unsigned long calls = 0;
  std::atomic<bool> aborted{false}, working{false};
  std::atomic<ncclResult_t> error{ncclSuccess};

  unsigned char *slot(int of) const
  {
    return (unsigned char *)(meeting + 1) + (size_t)of * slot_bytes;
  }
  size_t bytes() const
  {
    return sizeof(Meeting) + (size_t)size * slot_bytes;
  }
};

namespace
{
/* Until `done`, or an abort. Where that takes a minute, nobody is coming. */
template <class Done> bool wait_until(const ncclComm *c, const char *what, Done done)
{
  const time_t began = time(nullptr), limit = knob("CUDAEMU_NCCL_TIMEOUT", 60);
  while (!done()) {
    if (c->aborted) return false;
    sched_yield();
    if (time(nullptr) - began <= limit) continue;
    fprintf(stderr, "cudaemu: NCCL: rank %d of %d waits for %s that the others do not join (call %lu)\n", c->rank,
            c->size, what, c->calls);
    abort();
  }
  return true;
}

bool meet(const ncclComm *c, const char *what)
{
  Meeting &m = *c->meeting;
  const int generation = m.generation;
  if (m.arrived.fetch_add(1) + 1 == c->size) {
    m.arrived = 0;
    m.generation++;
    return true;
  }
  return wait_until(c, what, [&m, generation] { return m.generation != generation; });
}

/* --- numbers --- */

size_t bytes_of(ncclDataType_t t)
{
  switch (t) {
  case ncclInt8:
  case ncclUint8: return 1;
  case ncclFloat16:
  case ncclBfloat16: return 2;
  case ncclInt32:
  case ncclUint32:
  case ncclFloat32: return 4;
  case ncclInt64:
  case ncclUint64:
  case ncclFloat64: return 8;
  default: return 0;
  }
}

template <class T> T combined(T a, T b, ncclRedOp_t op)
{
  return op == ncclMax ? std::max(a, b) : op == ncclMin ? std::min(a, b) : op == ncclProd ? (T)(a * b) : (T)(a + b);
}

/* out[i] = slots combined in the order of ranks, for n numbers. */
template <class T> void reduce(const ncclComm *c, T *out, size_t n, ncclRedOp_t op)
{
  memcpy(out, c->slot(0), n * sizeof(T));
  for (int r = 1; r < c->size; r++) {
    const T *in = (const T *)c->slot(r);
    for (size_t i = 0; i < n; i++) out[i] = combined(out[i], in[i], op);
  }
  if (op == ncclAvg)
    for (size_t i = 0; i < n; i++) out[i] = (T)(out[i] / (T)c->size);
}

void reduce_half(const ncclComm *c, emu::u16 *out, size_t n, ncclRedOp_t op, bool bf16)
{
  for (size_t i = 0; i < n; i++) {
    float v = emu::from_half(((const emu::u16 *)c->slot(0))[i], bf16);
    for (int r = 1; r < c->size; r++) v = combined(v, emu::from_half(((const emu::u16 *)c->slot(r))[i], bf16), op);
    if (op == ncclAvg) v /= (float)c->size;
    out[i] = bf16 ? emu::f32_to_bf16(v) : emu::f32_to_f16(v);
  }
}

void reduce_typed(const ncclComm *c, unsigned char *out, size_t n, ncclDataType_t t, ncclRedOp_t op)
{
  switch (t) {
  case ncclFloat32: return reduce(c, (float *)out, n, op);
  case ncclFloat64: return reduce(c, (double *)out, n, op);
  case ncclInt32: return reduce(c, (int32_t *)out, n, op);
  case ncclUint32: return reduce(c, (uint32_t *)out, n, op);
  case ncclInt64: return reduce(c, (int64_t *)out, n, op);
  case ncclUint64: return reduce(c, (uint64_t *)out, n, op);
  case ncclInt8: return reduce(c, (int8_t *)out, n, op);
  case ncclUint8: return reduce(c, (uint8_t *)out, n, op);
  default: return reduce_half(c, (emu::u16 *)out, n, op, t == ncclBfloat16);
  }
}

/* --- a collective --- */

struct Call {
  Kind kind;
  const void *send;
  void *recv;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t operation;
  int root;
  ncclComm *comm;
  cudaStream_t stream;

  size_t sent() const
  {
    return (kind == reduce_scatter ? (size_t)comm->size : 1) * count * bytes_of(type);
  }
  size_t received() const
  {
    return (kind == all_gather ? (size_t)comm->size : 1) * count * bytes_of(type);
  }
  const char *name() const
  {
    return kind_names[kind];
  }
};

bool same_on_all_ranks(const Call &x)
{
  ncclComm *c = x.comm;
  Signature *all = c->meeting->signatures, &mine = all[c->rank];
  mine = {x.kind, x.type, x.operation, x.root, x.count};
  if (!meet(c, x.name())) return false;
  for (int r = 0; r < c->size; r++) {
    const Signature &s = all[r];
    if (s.kind == mine.kind && s.type == mine.type && s.operation == mine.operation && s.root == mine.root &&
        s.count == mine.count)
      continue;
    fprintf(
        stderr,
        "cudaemu: NCCL: call %lu differs: rank %d has %s of %zu of type %d, rank %d %s of %zu of type %d (or another "
        "operation or root)\n",
        c->calls, c->rank, x.name(), mine.count, mine.type, r, kind_names[s.kind], s.count, s.type);
    abort();
  }
  return meet(c, x.name());
}

/* Elements [at, at + n) of part `part` go through the slots; a part is what ReduceScatter leaves on a rank. */
bool exchange(const Call &x, const unsigned char *in, unsigned char *out, int part, size_t at, size_t n)
{
  ncclComm *c = x.comm;
  const size_t size = bytes_of(x.type), from = ((size_t)part * x.count + at) * size;
  if (x.kind != broadcast || c->rank == x.root) memcpy(c->slot(c->rank), in + from, n * size);
  if (!meet(c, x.name())) return false;
  if (x.kind == all_gather) {
    for (int r = 0; r < c->size; r++) memcpy(out + ((size_t)r * x.count + at) * size, c->slot(r), n * size);
  } else if (x.kind == broadcast) {
    memcpy(out + at * size, c->slot(x.root), n * size);
  } else if (x.kind == all_reduce || part == c->rank) {
    reduce_typed(c, out + at * size, n, x.type, x.operation);
  }
  return meet(c, x.name());
}

bool perform(const Call &x)
{
  if (!same_on_all_ranks(x)) return false;
  if (x.count == 0) return true;
  const size_t step = slot_bytes / bytes_of(x.type);
  const int parts = x.kind == reduce_scatter ? x.comm->size : 1;
  std::vector<unsigned char> in(x.sent()), out(x.received());
  if (const void *v = device_view(x.send, in.size(), false)) memcpy(in.data(), v, in.size());
  for (int part = 0; part < parts; part++)
    for (size_t at = 0; at < x.count; at += step)
      if (!exchange(x, in.data(), out.data(), part, at, std::min(step, x.count - at))) return false;
  if (void *v = device_view(x.recv, out.size(), true)) memcpy(v, out.data(), out.size());
  return true;
}

/* CUDAEMU_NCCL_FAIL=RANK:CALL: that rank's call reports an error, and never ends by itself. */
bool fails(const ncclComm *c)
{
  const char *text = getenv("CUDAEMU_NCCL_FAIL");
  int rank;
  unsigned long call;
  return text != nullptr && sscanf(text, "%d:%lu", &rank, &call) == 2 && rank == c->rank && call == c->calls;
}

void run(const Call &x)
{
  ncclComm *c = x.comm;
  c->working = true;
  c->calls++;
  if (fails(c)) {
    c->error = ncclSystemError;
    wait_until(c, x.name(), [] { return false; });
  }
  if (!c->aborted) perform(x);
  c->working = false;
}

thread_local int group_depth;
thread_local std::vector<Call> group;

ncclResult_t issue(const Call &x)
{
  return emu::enqueue_host(x.stream, [x] { run(x); }) ? ncclUnhandledCudaError : ncclSuccess;
}

/* Apart, or in place as the manual has it: this rank's part of the longer buffer. */
bool buffers_fit(const Call &x)
{
  const char *s = (const char *)x.send, *r = (const char *)x.recv;
  const size_t part = x.count * bytes_of(x.type) * (size_t)x.comm->rank;
  if (s + x.sent() <= r || r + x.received() <= s) return true;
  return x.kind == all_gather ? s == r + part : x.kind == reduce_scatter ? r == s + part : s == r;
}

ncclResult_t add(const Call &x)
{
  if (x.comm == nullptr || bytes_of(x.type) == 0 || x.root < 0 || x.root >= x.comm->size) return ncclInvalidArgument;
  if (x.comm->meeting->attached < x.comm->size) return ncclInvalidUsage; /* not yet initialised */
  if (!buffers_fit(x)) {
    fprintf(stderr, "cudaemu: NCCL: %s on buffers that overlap and are not in place\n", x.name());
    return ncclInvalidArgument;
  }
  if (group_depth == 0) return issue(x);
  group.push_back(x);
  return ncclSuccess;
}

ncclResult_t attach(ncclComm *c)
{
  const int fd = shm_open(c->name.c_str(), O_CREAT | O_RDWR, 0600);
  if (fd < 0 || ftruncate(fd, (off_t)c->bytes()) != 0) return ncclSystemError;
  void *p = mmap(nullptr, c->bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (p == MAP_FAILED) return ncclSystemError;
  c->meeting = (Meeting *)p;
  if (c->meeting->attached.fetch_add(1) + 1 == c->size) shm_unlink(c->name.c_str()); /* the last one needs no name */
  return ncclSuccess;
}

bool ready(const ncclComm *c)
{
  return c->meeting->attached >= c->size;
}

void release(ncclComm *c)
{
  if (!ready(c)) shm_unlink(c->name.c_str());
  munmap((void *)c->meeting, c->bytes());
  delete c;
}
} // namespace

extern "C" {
ncclResult_t ncclGetVersion(int *v)
{
  *v = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
  timespec now; /* the number of a process comes again: what a dead one left must not be met */
  clock_gettime(CLOCK_REALTIME, &now);
  memset(id, 0, sizeof *id);
  snprintf(id->internal, sizeof id->internal, "/cudaemu-nccl.%d.%ld.%09ld", (int)getpid(), (long)now.tv_sec,
           now.tv_nsec);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int n, ncclUniqueId id, int rank, ncclConfig_t *config)
{
  *out = nullptr;
  if (n < 1 || n > max_ranks || rank < 0 || rank >= n) return ncclInvalidArgument;
  ncclComm *c = new ncclComm;
  c->rank = rank;
  c->size = n;
  c->name = id.internal;
  const ncclResult_t r = attach(c);
  if (r != ncclSuccess) {
    delete c;
    return r;
  }
  *out = c;
  if (config != nullptr && config->blocking == 0) return ready(c) ? ncclSuccess : ncclInProgress;
  wait_until(c, "an initialisation", [c] { return ready(c); });
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *out, int n, ncclUniqueId id, int rank)
{
  return ncclCommInitRankConfig(out, n, id, rank, nullptr);
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
  return c ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
  if (c == nullptr) return ncclSuccess;
  release(c);
  return ncclSuccess;
}

/* From any thread: what waits in a collective gives up. */
ncclResult_t ncclCommAbort(ncclComm_t c)
{
  if (c == nullptr) return ncclSuccess;
  c->aborted = true;
  while (c->working) sched_yield();
  release(c);
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *e)
{
  *e = c->error != ncclSuccess ? c->error.load() : ready(c) ? ncclSuccess : ncclInProgress;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t c, int *n)
{
  *n = c->size;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t c, int *r)
{
  *r = c->rank;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t, int *d)
{
  return cudaGetDevice(d) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

const char *ncclGetErrorString(ncclResult_t r)
{
  const char *const words[] = {"no error",
                               "unhandled cuda error",
                               "unhandled system error",
                               "internal error",
                               "invalid argument",
                               "invalid usage",
                               "remote process exited or there was a network error",
                               "NCCL operation in progress"};
  return r >= ncclSuccess && r <= ncclInProgress ? words[r] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t)
{
  return "";
}

ncclResult_t ncclGroupStart(void)
{
  group_depth++;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
  if (group_depth == 0) return ncclInvalidUsage;
  if (--group_depth > 0) return ncclSuccess;
  std::vector<Call> calls;
  calls.swap(group);
  for (const Call &x : calls) {
    const ncclResult_t r = issue(x);
    if (r != ncclSuccess) return r;
  }
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
                           cudaStream_t s)
{
  return add({all_reduce, send, recv, n, t, op, 0, c, s});
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
                               cudaStream_t s)
{
  return add({reduce_scatter, send, recv, n, t, op, 0, c, s});
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t s)
{
  return add({all_gather, send, recv, n, t, ncclSum, 0, c, s});
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t n, ncclDataType_t t, int root, ncclComm_t c,
                           cudaStream_t s)
{
  return add({broadcast, send, recv, n, t, ncclSum, root, c, s});
}

ncclResult_t ncclBcast(void *buffer, size_t n, ncclDataType_t t, int root, ncclComm_t c, cudaStream_t s)
{
  return ncclBroadcast(buffer, buffer, n, t, root, c, s);
}
}
