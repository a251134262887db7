/* tests/cudaemu/stand_in.h - what the stand-in for libcudart offers to those for cuBLASLt and NCCL. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EMU_STAND_IN_H
#define EMU_STAND_IN_H

#include <cuda_runtime_api.h>
#include <functional>

namespace emu
{
/* In the order of the stream, captured like any other work. */
cudaError_t enqueue_host(cudaStream_t s, std::function<void()> f);

/* Device bytes as the host sees them, checked; nullptr after a fault that did not abort. */
void *device_view(const void *device, size_t n, bool write);
} // namespace emu

#endif
