/* tests/cudaemu/memory_api.cc - libcudart: memory and copies. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime.h"
#include "stand_in.h"
#include <cstdlib>

using namespace emu;

bool emu::is_pinned(const void *p)
{
  const Allocation *a = find_allocation((u64)p);
  return a != nullptr && a->host;
}

namespace
{
u8 *seen(const void *p, size_t n, bool write)
{
  return is_device((u64)p) ? host_view((u64)p, n, write) : (u8 *)const_cast<void *>(p);
}

bool right_direction(const void *to, const void *from, enum cudaMemcpyKind kind)
{
  const bool to_device = is_device((u64)to), from_device = is_device((u64)from);
  switch (kind) {
  case cudaMemcpyHostToHost: return !to_device && !from_device;
  case cudaMemcpyHostToDevice: return to_device && !from_device;
  case cudaMemcpyDeviceToHost: return !to_device && from_device;
  case cudaMemcpyDeviceToDevice: return to_device && from_device;
  default: return true;
  }
}

/* Pageable host memory is read before an asynchronous copy returns, and written before it returns. */
cudaError_t copy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind, CUstream_st *s, bool asynchronous)
{
  if (n == 0) return cudaSuccess;
  if (!right_direction(to, from, kind)) return result(cudaErrorInvalidMemcpyDirection);
  const bool captured = s->capture != nullptr;
  const bool staged = !is_device((u64)from) && !is_pinned(from), lands = !is_device((u64)to) && !is_pinned(to);
  cudaError_t e;
  if (asynchronous && staged && !lands && !captured) {
    const auto bytes = std::make_shared<std::vector<u8>>((const u8 *)from, (const u8 *)from + n);
    e = enqueue(s, [=] { memcpy(seen(to, n, true), bytes->data(), n); });
  } else {
    e = enqueue(s, [=] {
      const u8 *source = seen(from, n, false);
      memmove(seen(to, n, true), source, n);
    });
  }
  if (e != cudaSuccess || captured || (asynchronous && !lands)) return e;
  drain(s);
  return result(sticky_error());
}

cudaError_t copy_2d(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                    enum cudaMemcpyKind kind, CUstream_st *s, bool asynchronous)
{
  if (width > to_pitch || width > from_pitch) return result(cudaErrorInvalidPitchValue);
  for (size_t y = 0; y < height; y++) {
    const cudaError_t e =
        copy((u8 *)to + y * to_pitch, (const u8 *)from + y * from_pitch, width, kind, s, asynchronous);
    if (e != cudaSuccess) return e;
  }
  return cudaSuccess;
}

cudaError_t symbol_copy(const void *symbol, size_t n, size_t offset, void **address)
{
  size_t size;
  cudaError_t e = cudaGetSymbolAddress(address, symbol);
  if (e == cudaSuccess) e = cudaGetSymbolSize(&size, symbol);
  if (e != cudaSuccess) return e;
  *address = (u8 *)*address + offset;
  return offset + n > size ? result(cudaErrorInvalidValue) : cudaSuccess;
}

cudaError_t fill(void *p, int value, size_t n, CUstream_st *s)
{
  if (n == 0) return cudaSuccess;
  return enqueue(s, [=] { memset(host_view((u64)p, n, true), value, n); });
}
} // namespace

extern "C" {
cudaError_t cudaMalloc(void **p, size_t n)
{
  Guard guard;
  if (capturing()) return result(cudaErrorStreamCaptureUnsupported);
  *p = nullptr;
  if (n == 0) return cudaSuccess;
  *p = (void *)device_alloc(n);
  return *p != nullptr ? cudaSuccess : result(cudaErrorMemoryAllocation);
}

cudaError_t cudaMallocAsync(void **p, size_t n, cudaStream_t)
{
  return cudaMalloc(p, n);
}

cudaError_t cudaFree(void *p)
{
  Guard guard;
  if (p == nullptr) return cudaSuccess;
  if (capturing()) return result(cudaErrorStreamCaptureUnsupported);
  drain_all();
  return device_free((u64)p) ? cudaSuccess : result(cudaErrorInvalidValue);
}

cudaError_t cudaFreeAsync(void *p, cudaStream_t s)
{
  Guard guard;
  return enqueue(stream_of(s), [p] { device_free((u64)p); });
}

/* Filled with 0xff, as device memory is. */
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned)
{
  Guard guard;
  if (capturing()) return result(cudaErrorStreamCaptureUnsupported);
  *p = nullptr;
  if (n == 0) return cudaSuccess;
  *p = aligned_alloc(4096, (n + 4095) / 4096 * 4096);
  if (*p == nullptr) return result(cudaErrorMemoryAllocation);
  memset(*p, 0xff, n);
  host_register(*p, n);
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void **p, size_t n)
{
  return cudaHostAlloc(p, n, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *p)
{
  Guard guard;
  if (p == nullptr) return cudaSuccess;
  drain_all();
  if (!host_unregister(p)) return result(cudaErrorInvalidValue);
  free(p);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void *p, size_t n, unsigned)
{
  Guard guard;
  if (p == nullptr || n == 0) return result(cudaErrorInvalidValue);
  if (is_pinned(p)) return result(cudaErrorHostMemoryAlreadyRegistered);
  host_register(p, n);
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *p)
{
  Guard guard;
  drain_all();
  return host_unregister(p) ? cudaSuccess : result(cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned)
{
  Guard guard;
  *device = host;
  return is_pinned(host) ? cudaSuccess : result(cudaErrorInvalidValue);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind)
{
  Guard guard;
  if (capturing()) return result(cudaErrorStreamCaptureUnsupported);
  return copy(to, from, n, kind, null_stream(), false);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind kind, cudaStream_t s)
{
  Guard guard;
  return copy(to, from, n, kind, stream_of(s), true);
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                         enum cudaMemcpyKind kind)
{
  Guard guard;
  if (capturing()) return result(cudaErrorStreamCaptureUnsupported);
  return copy_2d(to, to_pitch, from, from_pitch, width, height, kind, null_stream(), false);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t s)
{
  Guard guard;
  return copy_2d(to, to_pitch, from, from_pitch, width, height, kind, stream_of(s), true);
}

cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t n, size_t offset, enum cudaMemcpyKind kind)
{
  void *to;
  const cudaError_t e = symbol_copy(symbol, n, offset, &to);
  return e != cudaSuccess ? e : cudaMemcpy(to, from, n, kind);
}

cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t n, size_t offset, enum cudaMemcpyKind kind)
{
  void *from;
  const cudaError_t e = symbol_copy(symbol, n, offset, &from);
  return e != cudaSuccess ? e : cudaMemcpy(to, from, n, kind);
}

cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t n, size_t offset,
                                    enum cudaMemcpyKind kind, cudaStream_t s)
{
  void *to;
  const cudaError_t e = symbol_copy(symbol, n, offset, &to);
  return e != cudaSuccess ? e : cudaMemcpyAsync(to, from, n, kind, s);
}

cudaError_t cudaMemset(void *p, int value, size_t n)
{
  Guard guard;
  return fill(p, value, n, null_stream());
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t s)
{
  Guard guard;
  return fill(p, value, n, stream_of(s));
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
  Guard guard;
  *available = device_bytes_free();
  *total = config.memory;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p)
{
  Guard guard;
  const bool device = is_device((u64)p), pinned = is_pinned(p);
  *a = cudaPointerAttributes();
  a->type = device ? cudaMemoryTypeDevice : pinned ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
  a->devicePointer = device || pinned ? const_cast<void *>(p) : nullptr;
  a->hostPointer = device ? nullptr : const_cast<void *>(p);
  return cudaSuccess;
}
}

void *emu::device_view(const void *device, size_t n, bool write)
{
  Guard guard;
  try {
    return host_view((u64)device, n, write);
  } catch (const Fault &f) {
    report(f);
    return nullptr;
  }
}
