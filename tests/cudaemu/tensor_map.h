/* tests/cudaemu/tensor_map.h - what cuTensorMapEncodeTiled writes into a CUtensorMap, and cp.async.bulk.tensor reads.
 */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EMU_TENSOR_MAP_H
#define EMU_TENSOR_MAP_H

#include "numbers.h"

namespace emu
{
struct TensorMap {
  static constexpr u16 magic_value = 0x544d;
  u16 magic;
  u8 element; /* bytes */
  u8 rank, swizzle, unused[3];
  u64 base, size[5], stride[4]; /* strides of dimensions 1 and up, in bytes */
  u32 box[5];
};
static_assert(sizeof(TensorMap) <= 128, "fits a CUtensorMap");
} // namespace emu

#endif
