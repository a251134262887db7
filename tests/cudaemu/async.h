/* tests/cudaemu/async.h - addresses and layouts that asynchronous instructions share. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EMU_ASYNC_H
#define EMU_ASYNC_H

#include "machine.h"

namespace emu
{
/* The offset in shared memory of an operand, which may be generic. */
inline u32 shared_offset(Warp &w, Operand o, int lane, s64 offset)
{
  return (u32)((get(w, o, lane) & window_mask) + (u64)offset);
}

/* Where a byte of a tile lies: 32, 64 or 128 bytes of swizzle exchange its 16-byte columns by the row. */
enum Swizzle : int { no_swizzle, swizzle_32, swizzle_64, swizzle_128 };
inline u32 swizzled(u32 offset, int mode)
{
  return mode == no_swizzle ? offset : offset ^ (offset >> 7 & ((1u << mode) - 1)) << 4;
}

/* Arrival of asynchronous bytes at an mbarrier: mbarrier.cc. */
void complete_bytes(Warp &w, const Inst &i, int lane, u32 mbarrier, u32 bytes, u32 issue_clock);
void check_mbarrier(Warp &w, const Inst &i, int lane, u32 mbarrier);

void land_bulk_copies(Block &b); /* in any order */

/* Parts of cp.async.bulk: bulk.cc. */
void decode_bulk(class Decoder &x, Inst &i);
} // namespace emu

#endif
