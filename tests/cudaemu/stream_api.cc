/* tests/cudaemu/stream_api.cc - libcudart: streams, events, graphs. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime.h"
#include "stand_in.h"
#include <cstdio>
#include <cstdlib>

using namespace emu;

cudaError_t emu::enqueue_host(cudaStream_t s, std::function<void()> f)
{
  Guard guard;
  return enqueue(stream_of(s), {Work::host, std::move(f), nullptr, 0, nullptr, nullptr});
}

extern "C" {
/* --- streams --- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
  Guard guard;
  *s = new CUstream_st;
  (*s)->nonblocking = flags & cudaStreamNonBlocking;
  streams().insert(*s);
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *s)
{
  return cudaStreamCreateWithFlags(s, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int)
{
  return cudaStreamCreateWithFlags(s, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
  Guard guard;
  if (!streams().count(s)) return result(cudaErrorInvalidResourceHandle);
  drain_all();
  streams().erase(s);
  delete s;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
  Guard guard;
  if (stream_of(s)->capture != nullptr) return result(cudaErrorStreamCaptureUnsupported);
  drain(stream_of(s));
  return result(sticky_error());
}

/* Asking moves the work on: a loop that polls comes to an end. */
cudaError_t cudaStreamQuery(cudaStream_t handle)
{
  Guard guard;
  CUstream_st *s = stream_of(handle);
  if (s->capture != nullptr) return result(cudaErrorStreamCaptureUnsupported);
  if (s->busy) return cudaErrorNotReady;
  if (!s->queue.empty()) step(s);
  return s->queue.empty() ? result(sticky_error()) : cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize(void)
{
  Guard guard;
  if (capturing()) return result(cudaErrorStreamCaptureUnsupported);
  drain_all();
  return result(sticky_error());
}

cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void *data)
{
  return enqueue_host(s, [f, data] { f(data); });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

/* --- events --- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
  Guard guard;
  *e = new CUevent_st;
  (*e)->timing = !(flags & cudaEventDisableTiming);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *e)
{
  return cudaEventCreateWithFlags(e, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
  Guard guard;
  drain_all();
  delete e;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t handle)
{
  Guard guard;
  CUstream_st *s = stream_of(handle);
  e->capture = s->capture;
  e->stream = s;
  e->captured = s->captured;
  if (s->capture != nullptr) return cudaSuccess;
  e->recorded++;
  s->queue.push_back({Work::record, nullptr, e, e->recorded, nullptr, nullptr});
  if (!config.lazy) drain(s);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t e, unsigned)
{
  Guard guard;
  CUstream_st *s = stream_of(handle);
  if (e->capture != nullptr) { /* this stream joins the capture, or the other one's work joins this stream's */
    if (s->capture == nullptr) s->captured = s->joined = 0;
    s->capture = e->capture;
    e->stream->joined = std::max(e->stream->joined, e->captured);
    return cudaSuccess;
  }
  if (e->recorded == 0) return cudaSuccess;
  if (s->capture != nullptr) return result(cudaErrorStreamCaptureIsolation);
  s->queue.push_back({Work::wait, nullptr, e, e->recorded, nullptr, nullptr});
  if (!config.lazy) drain(s);
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
  Guard guard;
  if (e->capture != nullptr) return result(cudaErrorCapturedEvent);
  advance_to(e, e->recorded);
  return result(sticky_error());
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
  Guard guard;
  if (e->capture != nullptr) return result(cudaErrorCapturedEvent);
  if (e->done < e->recorded && e->stream->busy) return cudaErrorNotReady;
  if (e->done < e->recorded) step(e->stream);
  return e->done >= e->recorded ? result(sticky_error()) : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b)
{
  Guard guard;
  if (!a->recorded || !b->recorded || !a->timing || !b->timing) return result(cudaErrorInvalidResourceHandle);
  if (a->done < a->recorded || b->done < b->recorded) return cudaErrorNotReady;
  *ms = std::chrono::duration<float, std::milli>(b->time - a->time).count();
  return cudaSuccess;
}

/* --- graphs --- */

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode)
{
  Guard guard;
  if (stream_of(s) == null_stream()) return result(cudaErrorStreamCaptureUnsupported);
  if (s->capture != nullptr) return result(cudaErrorIllegalState);
  s->capture = new CUgraph_st;
  s->began_capture = true;
  s->captured = s->joined = 0;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph)
{
  Guard guard;
  if (stream_of(s) == null_stream() || s->capture == nullptr || !s->began_capture) return result(cudaErrorIllegalState);
  CUgraph_st *g = s->capture;
  bool joined = true;
  for (CUstream_st *other : streams()) {
    if (other->capture != g) continue;
    joined &= other == s || other->joined >= other->captured;
    other->capture = nullptr;
    other->began_capture = false;
  }
  *graph = joined ? g : nullptr;
  if (!joined) delete g;
  return joined ? cudaSuccess : result(cudaErrorStreamCaptureUnjoined);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status)
{
  Guard guard;
  *status = stream_of(s)->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
  *mode = cudaStreamCaptureModeGlobal;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
  Guard guard;
  const char *any = getenv("CUDAEMU_GRAPHS");
  if (any != nullptr && *any == '0') return result(cudaErrorNotSupported);
  *exec = new CUgraphExec_st{graph->nodes};
  return cudaSuccess;
}

/* The same nodes with other arguments. */
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *info)
{
  Guard guard;
  bool same = exec->nodes.size() == graph->nodes.size();
  for (size_t n = 0; same && n < exec->nodes.size(); n++)
    same = exec->nodes[n].kind == graph->nodes[n].kind && exec->nodes[n].kernel == graph->nodes[n].kernel;
  *info = cudaGraphExecUpdateResultInfo();
  info->result = same ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorTopologyChanged;
  if (!same) return result(cudaErrorGraphExecUpdateFailure);
  drain_all();
  exec->nodes = graph->nodes;
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n)
{
  Guard guard;
  if (nodes != nullptr) return result(cudaErrorNotSupported); /* only their number is known */
  *n = graph->nodes.size();
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
  Guard guard;
  if (config.trace) fprintf(stderr, "cudaemu: a graph of %zu nodes\n", exec->nodes.size());
  for (const Work &node : exec->nodes) {
    const cudaError_t e = enqueue(stream_of(s), node);
    if (e != cudaSuccess) return e;
  }
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t)
{
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
  Guard guard;
  delete g;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
  Guard guard;
  drain_all();
  delete exec;
  return cudaSuccess;
}
}
