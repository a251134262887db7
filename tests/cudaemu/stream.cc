/* tests/cudaemu/stream.cc - work in the order of streams, at once or (lazy) no earlier than somebody waits for it. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime.h"
#include <condition_variable>
#include <cstdio>
#include <cstdlib>

namespace emu
{
namespace
{
std::mutex everything;
std::condition_variable stream_idle;
thread_local std::unique_lock<std::mutex> *held;
thread_local cudaError_t last_error = cudaSuccess;
cudaError_t sticky = cudaSuccess;

void run_host_function(CUstream_st *s, const std::function<void()> &f)
{
  std::unique_lock<std::mutex> *mine = held;
  s->busy = true;
  mine->unlock();
  f();
  mine->lock();
  held = mine; /* f may have called the API, which has its own guard */
  s->busy = false;
  stream_idle.notify_all();
}

void execute(CUstream_st *s, const Work &w)
{
  if (w.kind == Work::record) {
    w.event->done = std::max(w.event->done, w.version);
    w.event->time = Clock::now();
  } else if (w.kind == Work::wait) {
    advance_to(w.event, w.version);
  } else if (sticky == cudaSuccess && w.kind == Work::host) {
    run_host_function(s, w.function);
  } else if (sticky == cudaSuccess) {
    try {
      w.function();
    } catch (const Fault &f) {
      report(f);
    }
  }
}

/* What is queued on `later` from now on comes after all that is queued on `first`. */
void order_after(CUstream_st *first, CUstream_st *later)
{
  if (first->queue.empty() && !first->busy) return;
  const auto e = std::make_shared<CUevent_st>();
  e->stream = first;
  e->recorded = 1;
  first->queue.push_back({Work::record, nullptr, e.get(), 1, nullptr, e});
  later->queue.push_back({Work::wait, nullptr, e.get(), 1, nullptr, e});
}

/* The legacy stream waits for all blocking streams, and they for it. */
void order_with_legacy(CUstream_st *s)
{
  if (s == null_stream()) {
    for (CUstream_st *other : streams())
      if (!other->nonblocking) order_after(other, s);
  } else if (!s->nonblocking) {
    order_after(null_stream(), s);
  }
}

bool captures_blocking_stream()
{
  for (CUstream_st *s : streams())
    if (s->capture != nullptr && !s->nonblocking) return true;
  return false;
}
} // namespace

Guard::Guard() : lock(everything)
{
  held = &lock;
}

cudaError_t result(cudaError_t e)
{
  if (e != cudaSuccess) last_error = e;
  return e;
}

cudaError_t sticky_error()
{
  return sticky;
}

void report(const Fault &f)
{
  fprintf(stderr, "cudaemu: %s\n", f.message.c_str());
  sticky = (cudaError_t)f.cuda_error;
  if (config.abort) abort();
}

CUstream_st *null_stream()
{
  static CUstream_st *s = new CUstream_st;
  return s;
}

std::set<CUstream_st *> &streams()
{
  static auto *all = new std::set<CUstream_st *>;
  return *all;
}

CUstream_st *stream_of(cudaStream_t s)
{
  return s == nullptr || s == cudaStreamLegacy || s == cudaStreamPerThread ? null_stream() : s;
}

bool capturing()
{
  for (CUstream_st *s : streams())
    if (s->capture != nullptr) return true;
  return false;
}

cudaError_t enqueue(CUstream_st *s, Work w)
{
  if (sticky != cudaSuccess) return result(sticky);
  if (s->capture != nullptr) {
    s->capture->nodes.push_back(std::move(w));
    s->captured++;
    return cudaSuccess;
  }
  if (s == null_stream() && captures_blocking_stream()) return result(cudaErrorStreamCaptureImplicit);
  order_with_legacy(s);
  s->queue.push_back(std::move(w));
  if (!config.lazy) drain(s);
  return result(sticky);
}

cudaError_t enqueue(CUstream_st *s, std::function<void()> f)
{
  return enqueue(s, {Work::device, std::move(f), nullptr, 0, nullptr, nullptr});
}

void step(CUstream_st *s)
{
  if (s->busy) { /* another thread is at it */
    stream_idle.wait(*held, [s] { return !s->busy; });
    return;
  }
  const Work w = std::move(s->queue.front());
  s->queue.pop_front();
  execute(s, w);
}

void drain(CUstream_st *s)
{
  while (!s->queue.empty() || s->busy) step(s);
}

/* In some order of the streams, another one with each seed. */
void drain_all()
{
  static std::mt19937 random(config.seed);
  for (;;) {
    std::vector<CUstream_st *> ready;
    for (CUstream_st *s : streams())
      if (!s->queue.empty() || s->busy) ready.push_back(s);
    if (!null_stream()->queue.empty() || null_stream()->busy) ready.push_back(null_stream());
    if (ready.empty()) return;
    step(ready[random() % ready.size()]);
  }
}

void advance_to(CUevent_st *e, u64 version)
{
  while (e->done < version && e->stream != nullptr && (!e->stream->queue.empty() || e->stream->busy)) step(e->stream);
}
} // namespace emu

using namespace emu;

extern "C" {
cudaError_t cudaGetLastError(void)
{
  const cudaError_t e = last_error;
  last_error = sticky;
  return e;
}

cudaError_t cudaPeekAtLastError(void)
{
  return last_error;
}
}
