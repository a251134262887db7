/* src/batch/sampler.h - which window is the n-th sample of the endless sequence of shuffled epochs. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_BATCH_SAMPLER_H
#define LM_BATCH_SAMPLER_H

#include <stdint.h>

/** The window at `position`: epoch = position / W, and within an epoch a keyed bijection of [0, W): nothing is stored,
 *  nothing depends on ranks, micro-batches or workers. Local. A Feistel network on the next even number of bits, walked
 *  until the value is below W (cycle walking: Black & Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002).
 *  @param source  below 2^28: each source of a run has orders of its own @param windows  W >= 1, of one epoch
 *  @return in [0, W) */
uint64_t lm_sample_window(uint64_t seed, uint64_t source, uint64_t windows, uint64_t position);

/** The slice of a global batch that a rank takes: [*first, *first + *count), contiguous, in rank order; differs by at
 *  most one between ranks. Local. */
void lm_sample_slice(uint64_t global_batch, int rank, int size, uint64_t *first, uint64_t *count);

#endif
