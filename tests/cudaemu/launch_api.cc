/* tests/cudaemu/launch_api.cc - libcudart: registration of the program's kernels, and their launch. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "image.h"
#include "runtime.h"
#include <cstdio>

using namespace emu;

namespace
{
struct Entry {
  Image *image;
  std::string name;
};

struct Symbol {
  Image *image;
  std::string name;
  size_t size;
};

struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};

std::map<const void *, Entry> &entries()
{
  static auto *all = new std::map<const void *, Entry>;
  return *all;
}

std::map<const void *, Symbol> &symbols()
{
  static auto *all = new std::map<const void *, Symbol>;
  return *all;
}

thread_local std::vector<Configuration> configurations;

Kernel *kernel_of(const void *host)
{
  const auto it = entries().find(host);
  return it == entries().end() ? nullptr : it->second.image->kernel(it->second.name);
}

/* Why there is no kernel for a host function. */
cudaError_t no_kernel(const void *host)
{
  return entries().count(host) ? cudaErrorNoKernelImageForDevice : cudaErrorInvalidDeviceFunction;
}

cudaError_t check_shape(const Kernel &k, dim3 g, dim3 b, size_t dynamic)
{
  const u64 threads = (u64)b.x * b.y * b.z;
  const int *most = k.function->max_threads;
  const u64 limit = most[0] ? (u64)most[0] * (u64)most[1] * (u64)most[2] : 1024;
  if (!threads || !g.x || !g.y || !g.z || threads > 1024 || b.z > 64) return cudaErrorInvalidConfiguration;
  if (g.y > 65535 || g.z > 65535 || g.x > 2147483647u) return cudaErrorInvalidConfiguration;
  if (threads > limit) return cudaErrorLaunchOutOfResources;
  if (k.function->exact_threads && threads != limit) return cudaErrorInvalidValue;
  return dynamic > (size_t)k.max_dynamic ? cudaErrorInvalidValue : cudaSuccess;
}

void trace(const Launch &L, const Stats &before, double seconds)
{
  const double lanes = (double)(stats.lane_instructions - before.lane_instructions);
  fprintf(stderr, "cudaemu: %s<<<(%u,%u,%u), %u>>>: %.2f ms, %.2f M lane instructions, %.0f M/s\n",
          L.kernel->function->name.c_str(), L.grid.x, L.grid.y, L.grid.z, L.block.x * L.block.y * L.block.z,
          seconds * 1e3, lanes / 1e6, lanes / 1e6 / seconds);
}

void run_traced(const Launch &L)
{
  const Stats before = stats;
  const auto began = Clock::now();
  run(L);
  if (config.trace) trace(L, before, std::chrono::duration<double>(Clock::now() - began).count());
}

cudaError_t launch(const Kernel *k, dim3 g, dim3 b, void **args, size_t dynamic, cudaStream_t s, bool cooperative)
{
  const cudaError_t e = check_shape(*k, g, b, dynamic);
  if (e != cudaSuccess) return result(e);
  Launch L = {k, {g.x, g.y, g.z}, {b.x, b.y, b.z}, (u32)dynamic, std::vector<u8>(k->param_bytes), cooperative};
  for (size_t n = 0; n < k->params.size(); n++) memcpy(&L.params[k->params[n].first], args[n], k->params[n].second);
  return enqueue(stream_of(s), {Work::device, [L] { run_traced(L); }, nullptr, 0, k, nullptr});
}

cudaError_t launch_host(const void *host, dim3 g, dim3 b, void **args, size_t dynamic, cudaStream_t s, bool cooperative)
{
  const Kernel *k = kernel_of(host);
  return k ? launch(k, g, b, args, dynamic, s, cooperative) : result(no_kernel(host));
}
} // namespace

extern "C" {
/* --- what nvcc's host code calls --- */

void **__cudaRegisterFatBinary(void *wrapper)
{
  const u8 *data;
  memcpy(&data, (u8 *)wrapper + 8, sizeof data);
  return (void **)new Image(data);
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
  if (config.check) ((Image *)handle)->check();
}

void __cudaUnregisterFatBinary(void **) {}

char __cudaInitModule(void **)
{
  return 1;
}

void __cudaRegisterFunction(void **handle, const char *host, char *, const char *name, int, uint3 *, uint3 *, dim3 *,
                            dim3 *, int *)
{
  Guard guard;
  entries()[host] = {(Image *)handle, name};
}

void __cudaRegisterVar(void **handle, char *host, char *, const char *name, int, size_t size, int, int)
{
  Guard guard;
  symbols()[host] = {(Image *)handle, name, size};
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st *stream)
{
  configurations.push_back({grid, block, shared, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
  const Configuration c = configurations.back();
  configurations.pop_back();
  *grid = c.grid;
  *block = c.block;
  *shared = c.shared;
  memcpy(stream, &c.stream, sizeof c.stream);
  return cudaSuccess;
}

/* The handle is the host function: what it stands for is looked up when it is launched. */
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host)
{
  *kernel = (cudaKernel_t) const_cast<void *>(host);
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t k, dim3 g, dim3 b, void **args, size_t shared, cudaStream_t s)
{
  Guard guard;
  return launch_host(k, g, b, args, shared, s, false);
}

/* --- the API --- */

cudaError_t cudaLaunchKernel(const void *f, dim3 g, dim3 b, void **args, size_t shared, cudaStream_t s)
{
  Guard guard;
  return launch_host(f, g, b, args, shared, s, false);
}

cudaError_t cudaLaunchCooperativeKernel(const void *f, dim3 g, dim3 b, void **args, size_t shared, cudaStream_t s)
{
  Guard guard;
  return launch_host(f, g, b, args, shared, s, true);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *f, void **args)
{
  Guard guard;
  bool cooperative = false;
  for (unsigned n = 0; n < c->numAttrs; n++) {
    const cudaLaunchAttribute &a = c->attrs[n];
    if (a.id == cudaLaunchAttributeCooperative) cooperative |= a.val.cooperative != 0;
    if (a.id == cudaLaunchAttributeClusterDimension &&
        a.val.clusterDim.x * a.val.clusterDim.y * a.val.clusterDim.z != 1) {
      fprintf(stderr, "cudaemu: a launch wants clusters of several blocks, which the emulator does not have\n");
      return result(cudaErrorNotSupported);
    }
  }
  return launch_host(f, c->gridDim, c->blockDim, args, c->dynamicSmemBytes, c->stream, cooperative);
}

cudaError_t cudaFuncSetAttribute(const void *f, enum cudaFuncAttribute a, int v)
{
  Guard guard;
  Kernel *k = kernel_of(f);
  if (k == nullptr) return result(no_kernel(f));
  if (a != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (v < 0 || v + (int)k->static_shared > (config.capability >= 90 ? 227 : 163) * 1024)
    return result(cudaErrorInvalidValue);
  k->max_dynamic = std::max(v, 48 * 1024);
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *f)
{
  Guard guard;
  const Kernel *k = kernel_of(f);
  if (k == nullptr) return result(no_kernel(f));
  *a = cudaFuncAttributes();
  a->sharedSizeBytes = k->static_shared;
  a->localSizeBytes = k->local_bytes;
  a->maxThreadsPerBlock = k->function->max_threads[0] ? k->function->max_threads[0] : 1024;
  a->maxDynamicSharedSizeBytes = k->max_dynamic;
  a->numRegs = 64;
  a->ptxVersion = a->binaryVersion = (int)config.capability;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *f, int threads, size_t shared,
                                                                   unsigned)
{
  Guard guard;
  const Kernel *k = kernel_of(f);
  if (k == nullptr) return result(no_kernel(f));
  const size_t each = k->static_shared + shared + 1024;
  *n = std::min({2048 / std::max(threads, 1), (int)(228 * 1024 / each), 32});
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *f, int threads, size_t shared)
{
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(n, f, threads, shared, 0);
}

cudaError_t cudaGetSymbolAddress(void **p, const void *host)
{
  Guard guard;
  const auto it = symbols().find(host);
  if (it == symbols().end()) return result(cudaErrorInvalidSymbol);
  Module *m = it->second.image->module();
  if (m == nullptr) return result(cudaErrorNoKernelImageForDevice);
  *p = (void *)m->address[it->second.name];
  return cudaSuccess;
}

cudaError_t cudaGetSymbolSize(size_t *n, const void *host)
{
  Guard guard;
  const auto it = symbols().find(host);
  if (it == symbols().end()) return result(cudaErrorInvalidSymbol);
  *n = it->second.size;
  return cudaSuccess;
}

/* Counts since the start: launches, threads, instructions of warps and of lanes. */
void cudaemu_stats(unsigned long long out[4])
{
  Guard guard;
  out[0] = stats.launches;
  out[1] = stats.threads;
  out[2] = stats.warp_instructions;
  out[3] = stats.lane_instructions;
}
}
