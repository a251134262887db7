/* kernels/cuda/graph.cu - what repeats: recorded when it comes for the second time, then launched as one graph. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cuda/cuda.h"

#include <vector>

/* What comes with a key for the first time is not recorded: it is then that products find their plans, and scratch
 * memory its size, which a recording forbids. */
typedef struct recording {
  std::vector<char> key;
  cudaGraphExec_t graph; /* NULL: it came once */
} recording;

enum { MOST = 8 }; /* in fp16 each loss scale is a key of its own: the oldest one goes */
static std::vector<recording> &recordings = *new std::vector<recording>; /* to the end of the process */
static std::vector<char> &key_now = *new std::vector<char>;
static bool recording_now, given_up;
static cudaError_t spoilt; /* by the first error of this recording */

static recording *find(const std::vector<char> &key)
{
  for (recording &r : recordings)
    if (r.key == key) return &r;
  return NULL;
}

static void drop(const recording &r)
{
  if (r.graph != NULL) lm_cuda_check(cudaGraphExecDestroy(r.graph), "graph");
}

void lm_cuda_forget_graphs(void)
{
  for (const recording &r : recordings) drop(r);
  recordings.clear();
}

bool lm_cuda_spoils_graph(cudaError_t e)
{
  if (recording_now && spoilt == cudaSuccess) spoilt = e;
  return recording_now;
}

static void give_up(cudaError_t e)
{
  cudaGetLastError(); /* it is said, and over */
  lm_cuda.host->verbose("GPU %d: no graph of what repeats: %s", lm_cuda.device, cudaGetErrorString(e));
  given_up = true;
}

bool lm_repeat_cuda(const void *key, size_t bytes)
{
  key_now.assign(static_cast<const char *>(key), static_cast<const char *>(key) + bytes);
  const recording *r = given_up ? NULL : find(key_now);
  if (r == NULL) return false;
  if (r->graph != NULL) {
    lm_cuda_check(cudaGraphLaunch(r->graph, lm_cuda.compute), "graph");
    return true;
  }
  cudaError_t e = cudaStreamBeginCapture(lm_cuda.compute, cudaStreamCaptureModeThreadLocal);
  spoilt = cudaSuccess;
  recording_now = e == cudaSuccess;
  if (e != cudaSuccess) give_up(e);
  return false;
}

/* It came for the first time, and what was made for it stays. */
static void remember()
{
  if (given_up) return;
  if (recordings.size() == MOST) {
    drop(recordings.front());
    recordings.erase(recordings.begin());
  }
  recordings.push_back({key_now, NULL});
}

static cudaError_t end_recording(cudaGraphExec_t *exec, size_t *nodes)
{
  cudaGraph_t graph = NULL;
  recording_now = false;
  cudaError_t e = cudaStreamEndCapture(lm_cuda.compute, &graph);
  if (spoilt != cudaSuccess) e = spoilt;
  if (e == cudaSuccess) e = cudaGraphGetNodes(graph, NULL, nodes);
  if (e == cudaSuccess) e = cudaGraphInstantiate(exec, graph, 0);
  if (graph != NULL) cudaGraphDestroy(graph);
  return e;
}

bool lm_recorded_cuda(void)
{
  if (!recording_now) {
    remember();
    return true;
  }
  cudaGraphExec_t exec = NULL;
  size_t nodes = 0;
  cudaError_t e = end_recording(&exec, &nodes);
  if (e != cudaSuccess) {
    give_up(e);
    return false;
  }
  lm_cuda.host->verbose("GPU %d: a graph of %zu nodes will repeat what was recorded", lm_cuda.device, nodes);
  find(key_now)->graph = exec;
  lm_cuda_check(cudaGraphLaunch(exec, lm_cuda.compute), "graph");
  return true;
}
