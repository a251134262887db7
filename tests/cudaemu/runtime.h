/* tests/cudaemu/runtime.h - what the parts of the stand-in for libcudart share: streams, events, graphs, errors. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EMU_RUNTIME_H
#define EMU_RUNTIME_H

#include "machine.h"
#include <chrono>
#include <cuda_runtime_api.h>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <vector>

namespace emu
{
using Clock = std::chrono::steady_clock;

struct Work {
  enum Kind { device, host, record, wait } kind;
  std::function<void()> function; /* device, host */
  CUevent_st *event = nullptr;    /* record, wait */
  u64 version = 0;
  const Kernel *kernel = nullptr;    /* for cudaGraphExecUpdate: the same nodes? */
  std::shared_ptr<CUevent_st> owned; /* an event of the emulator's own */
};
} // namespace emu

struct CUgraph_st {
  std::vector<emu::Work> nodes; /* in the order of their issue, which respects every dependency */
};

struct CUgraphExec_st {
  std::vector<emu::Work> nodes;
};

struct CUstream_st {
  std::deque<emu::Work> queue;
  bool nonblocking = false, busy = false; /* busy: a thread executes a host function of it */
  CUgraph_st *capture = nullptr;
  bool began_capture = false;
  size_t captured = 0, joined = 0; /* nodes, and how many of them the rest of the capture waits for */
};

struct CUevent_st {
  emu::u64 recorded = 0, done = 0; /* versions */
  CUstream_st *stream = nullptr;
  bool timing = true;
  emu::Clock::time_point time;
  CUgraph_st *capture = nullptr;
  size_t captured = 0;
};

namespace emu
{
/* Every function of the API holds it; host functions of a stream run without. */
struct Guard {
  Guard();
  std::unique_lock<std::mutex> lock;
};

cudaError_t result(cudaError_t e); /* remembered for cudaGetLastError */
cudaError_t sticky_error();        /* of a kernel that faulted: nothing works after it */
void report(const Fault &f);

CUstream_st *stream_of(cudaStream_t s);
std::set<CUstream_st *> &streams();
CUstream_st *null_stream();
bool capturing();
cudaError_t enqueue(CUstream_st *s, Work w);
cudaError_t enqueue(CUstream_st *s, std::function<void()> f);
void drain(CUstream_st *s);
void drain_all();
void step(CUstream_st *s);
void advance_to(CUevent_st *e, u64 version);

bool is_pinned(const void *p);
} // namespace emu

#endif
