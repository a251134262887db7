/* src/gradsync/gradsync.h - grads -> summed grads. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_GRADSYNC_GRADSYNC_H
#define LM_GRADSYNC_GRADSYNC_H

#include "comm/comm.h"

/** Sum the gradients of all ranks, in place, in f32; the same bits on every rank. Collective.
 *  @param g  [n] f32 in host memory: the flat parameter space
 *  @param bucket_bytes  > 0: what one all-reduce carries */
void lm_gradsync_sum(const lm_comm *comm, float *g, size_t n, size_t bucket_bytes);

#endif
