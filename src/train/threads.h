/* src/train/threads.h - how many threads a rank computes with. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TRAIN_THREADS_H
#define LM_TRAIN_THREADS_H

#include "comm/comm.h"

/** Set OpenMP's threads: `wanted`; where it is 0, OMP_NUM_THREADS; where that is not set, this process' cores divided
 * by the ranks of the node that share them. Local. Warns where the threads are more than the cores. */
void lm_threads_set(const lm_comm *comm, int64_t wanted);

/** A node on which ranks x threads are more than the cores that the launcher left them, all ranks bound to one core
 *  included, is named once. Collective, after lm_threads_set(). */
void lm_threads_report(const lm_comm *comm);

/** Threads in use. Local. */
int lm_threads(void);

#endif
