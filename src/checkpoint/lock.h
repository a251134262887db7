/* src/checkpoint/lock.h - a run folder is owned by one job at a time. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_CHECKPOINT_LOCK_H
#define LM_CHECKPOINT_LOCK_H

#include "base/status.h"

/** A run folder in use by this process. Opaque. */
typedef struct lm_run_lock lm_run_lock;

/** Own RUN, by RUN/.lock: a lock of the file system where it has them, and in any case host, process, Slurm job and a
 *  count that grows while the owner lives. Local: rank 0 does it for its job.
 *  An owner that is gone is recognised: on this host by its process, on another by a count that has stood still for
 *  `timeout` seconds (no clocks are compared), and at once where it was the same Slurm job before a requeue.
 *  @param timeout  seconds; the count grows three times in it
 *  @return LM_EINVAL names host, process and job of the owner; LM_EIO */
lm_status lm_run_lock_take(lm_run_lock **out, const char *run, double timeout, lm_error *err) LM_NODISCARD;

/** Does RUN still belong to this process? Local. LM_EPEER names who took it over while this process stood still. */
lm_status lm_run_lock_check(lm_run_lock *lock, lm_error *err) LM_NODISCARD;

/** Local. NULL is fine. */
void lm_run_lock_release(lm_run_lock *lock);

#endif
