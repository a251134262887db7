/* tests/cudaemu/device_api.cc - libcudart: devices, errors, versions, and the one function of the driver. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime.h"
#include "tensor_map.h"
#include <cstdio>
#include <cuda.h>

using namespace emu;

namespace
{
thread_local int current_device;

cudaError_t usable()
{
  if (!config.driver) return result(cudaErrorInsufficientDriver);
  return config.devices == 0 ? result(cudaErrorNoDevice) : cudaSuccess;
}

/* As small as what tests run, so that a grid by the number of multiprocessors or by the cache has several turns. */
constexpr int multiprocessors = 4, cache_bytes = 128 << 10;

int shared_opt_in()
{
  return (config.capability >= 90 ? 227 : 163) << 10;
}

struct Name {
  cudaError_t error;
  const char *name, *words;
};

#define NAMED(e, words)                                                                                                \
  {                                                                                                                    \
    e, #e, words                                                                                                       \
  }
const Name names[] = {
    NAMED(cudaSuccess, "no error"),
    NAMED(cudaErrorInvalidValue, "invalid argument"),
    NAMED(cudaErrorMemoryAllocation, "out of memory"),
    NAMED(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    NAMED(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    NAMED(cudaErrorInvalidSymbol, "invalid device symbol"),
    NAMED(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    NAMED(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    NAMED(cudaErrorInvalidDeviceFunction, "invalid device function"),
    NAMED(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    NAMED(cudaErrorInvalidDevice, "invalid device ordinal"),
    NAMED(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"),
    NAMED(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    NAMED(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    NAMED(cudaErrorNotReady, "device not ready"),
    NAMED(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    NAMED(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    NAMED(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    NAMED(cudaErrorAssert, "device-side assert triggered"),
    NAMED(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped"),
    NAMED(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region"),
    NAMED(cudaErrorMisalignedAddress, "misaligned address"),
    NAMED(cudaErrorLaunchFailure, "unspecified launch failure"),
    NAMED(cudaErrorNotSupported, "operation not supported"),
    NAMED(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    NAMED(cudaErrorStreamCaptureUnjoined, "stream was captured and not joined to the capture's origin"),
    NAMED(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    NAMED(cudaErrorStreamCaptureImplicit,
          "operation would make the legacy stream depend on a capturing blocking stream"),
    NAMED(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
    NAMED(cudaErrorGraphExecUpdateFailure, "the graph update was not performed because it included changes"),
};

const Name *name_of(cudaError_t e)
{
  for (const Name &n : names)
    if (n.error == e) return &n;
  return nullptr;
}

/* cuTensorMapEncodeTiled: as strict as the driver. */
CUresult encode(CUtensorMap *out, CUtensorMapDataType type, cuuint32_t rank, void *base, const cuuint64_t *size,
                const cuuint64_t *stride, const cuuint32_t *box, const cuuint32_t *element_stride,
                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                CUtensorMapFloatOOBfill)
{
  static const u8 bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
  TensorMap m = {};
  if (rank < 1 || rank > 5 || type >= sizeof bytes || interleave != CU_TENSOR_MAP_INTERLEAVE_NONE ||
      swizzle > CU_TENSOR_MAP_SWIZZLE_128B || (u64)base % 16 != 0)
    return CUDA_ERROR_INVALID_VALUE;
  m.magic = TensorMap::magic_value;
  m.element = bytes[type];
  m.rank = (u8)rank;
  m.swizzle = (u8)swizzle;
  m.base = (u64)base;
  for (u32 k = 0; k < rank; k++) {
    if (size[k] == 0 || size[k] > 1ull << 32 || box[k] == 0 || box[k] > 256 || element_stride[k] != 1)
      return CUDA_ERROR_INVALID_VALUE;
    m.size[k] = size[k];
    m.box[k] = box[k];
    if (k == 0) continue;
    if (stride[k - 1] % 16 != 0) return CUDA_ERROR_INVALID_VALUE;
    m.stride[k - 1] = stride[k - 1];
  }
  const u32 inner = box[0] * m.element;
  if (inner % 16 != 0 || (swizzle && inner > 16u << swizzle)) return CUDA_ERROR_INVALID_VALUE;
  memset((void *)out, 0, sizeof *out);
  memcpy((void *)out, &m, sizeof m);
  return CUDA_SUCCESS;
}
} // namespace

extern "C" {
cudaError_t cudaGetDeviceCount(int *n)
{
  const cudaError_t e = usable();
  if (e != cudaErrorInsufficientDriver) *n = (int)config.devices; /* without a driver it is left alone */
  return e;
}

cudaError_t cudaSetDevice(int d)
{
  const cudaError_t e = usable();
  if (e != cudaSuccess) return e;
  if (d < 0 || d >= (int)config.devices) return result(cudaErrorInvalidDevice);
  current_device = d;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int *d)
{
  *d = current_device;
  return usable();
}

cudaError_t cudaInitDevice(int d, unsigned, unsigned)
{
  return d >= 0 && d < (int)config.devices ? usable() : result(cudaErrorInvalidDevice);
}

cudaError_t cudaSetDeviceFlags(unsigned)
{
  return usable();
}

cudaError_t cudaDeviceSetLimit(enum cudaLimit, size_t)
{
  return usable();
}

cudaError_t cudaDeviceReset(void)
{
  Guard guard;
  drain_all();
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int, int)
{
  *can = 0;
  return usable();
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int n, int d)
{
  snprintf(id, (size_t)n, "0000:%02x:00.0", d + 1);
  return usable();
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int d)
{
  const cudaError_t e = usable();
  if (e != cudaSuccess) return e;
  if (d < 0 || d >= (int)config.devices) return result(cudaErrorInvalidDevice);
  *p = cudaDeviceProp();
  snprintf(p->name, sizeof p->name, "emulator of sm_%u on the CPU", config.capability);
  memset(p->uuid.bytes, d, sizeof p->uuid.bytes);
  p->major = (int)config.capability / 10;
  p->minor = (int)config.capability % 10;
  p->multiProcessorCount = multiprocessors;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsPerMultiProcessor = 2048;
  p->maxBlocksPerMultiProcessor = 32;
  p->sharedMemPerBlock = 48 << 10;
  p->sharedMemPerBlockOptin = (size_t)shared_opt_in();
  p->sharedMemPerMultiprocessor = (size_t)shared_opt_in() + 1024;
  p->reservedSharedMemPerBlock = 1024;
  p->totalGlobalMem = config.memory;
  p->totalConstMem = 65536;
  p->l2CacheSize = cache_bytes;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->memoryBusWidth = 5120;
  p->pciBusID = d + 1;
  p->concurrentKernels = p->cooperativeLaunch = p->unifiedAddressing = p->asyncEngineCount = 1;
  for (int k = 0; k < 3; k++) {
    p->maxThreadsDim[k] = k == 2 ? 64 : 1024;
    p->maxGridSize[k] = k ? 65535 : 2147483647;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *v, enum cudaDeviceAttr a, int d)
{
  const cudaError_t e = usable();
  if (e != cudaSuccess) return e;
  if (d < 0 || d >= (int)config.devices) return result(cudaErrorInvalidDevice);
  switch (a) {
  case cudaDevAttrComputeCapabilityMajor: *v = (int)config.capability / 10; break;
  case cudaDevAttrComputeCapabilityMinor: *v = (int)config.capability % 10; break;
  case cudaDevAttrMultiProcessorCount: *v = multiprocessors; break;
  case cudaDevAttrMaxSharedMemoryPerBlock: *v = 48 << 10; break;
  case cudaDevAttrMaxSharedMemoryPerBlockOptin: *v = shared_opt_in(); break;
  case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *v = shared_opt_in() + 1024; break;
  case cudaDevAttrMaxThreadsPerMultiProcessor: *v = 2048; break;
  case cudaDevAttrMaxThreadsPerBlock: *v = 1024; break;
  case cudaDevAttrMaxBlocksPerMultiprocessor: *v = 32; break;
  case cudaDevAttrWarpSize: *v = 32; break;
  case cudaDevAttrL2CacheSize: *v = cache_bytes; break;
  case cudaDevAttrClockRate: *v = 1980000; break;
  case cudaDevAttrMemoryClockRate: *v = 2619000; break;
  case cudaDevAttrGlobalMemoryBusWidth: *v = 5120; break;
  case cudaDevAttrCooperativeLaunch: *v = 1; break;
  default: *v = 0;
  }
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *v)
{
  *v = config.driver ? CUDART_VERSION : 0;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *v)
{
  *v = CUDART_VERSION;
  return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t e)
{
  const Name *n = name_of(e);
  return n ? n->words : "unrecognized error code";
}

const char *cudaGetErrorName(cudaError_t e)
{
  const Name *n = name_of(e);
  return n ? n->name : "unrecognized error code";
}

cudaError_t cudaProfilerStart(void)
{
  return cudaSuccess;
}

cudaError_t cudaProfilerStop(void)
{
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **f, unsigned, unsigned long long,
                                             enum cudaDriverEntryPointQueryResult *found)
{
  const cudaError_t e = usable();
  if (e != cudaSuccess) return e;
  const bool known = strcmp(name, "cuTensorMapEncodeTiled") == 0;
  *f = known ? (void *)encode : nullptr;
  if (found != nullptr) *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  if (!known) fprintf(stderr, "cudaemu: the emulator has no %s of the driver\n", name);
  return cudaSuccess;
}
}
