/* src/checkpoint/saver.h - saves of a run: a snapshot between two steps, written while training goes on. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_CHECKPOINT_SAVER_H
#define LM_CHECKPOINT_SAVER_H

#include "hdf5/state_file.h"
#include "kernels/kernels.h"

/** How a run saves. Plain data, the same on all ranks. */
typedef struct lm_saver_policy {
  lm_state_how how;
  int64_t keep;            /* complete ones that stay, the new one and the newest by step number; 0: all */
  int64_t milestone_every; /* multiples of so many steps stay besides; 0: none */
  const lm_copies *copies; /* how what is on a device gets out of it; NULL: nothing is */
  bool keep_best;          /* RUN/checkpoints/best.h5 is a hard link to the one with the lowest validation loss */
} lm_saver_policy;

/** The saves of a run; at most one is under way. Opaque. */
typedef struct lm_saver lm_saver;

/** Local. @param comm kept @param run, policy  copied */
lm_status lm_saver_new(lm_saver **out, const lm_comm *comm, const char *run, const lm_saver_policy *policy,
                       lm_error *err) LM_NODISCARD;

/** Take the memory for snapshots, and see that a checkpoint of these slices has room on the disk. Collective. Before
 *  the first step: later failures cost training. @return LM_ENOMEM, LM_EIO */
lm_status lm_saver_prepare(lm_saver *s, const lm_state_slice *slices, size_t n, lm_error *err) LM_NODISCARD;

/** Begin to save `slices` as the checkpoint of a step. Collective; none may be under way.
 *  With how.background the state is copied, and this returns as soon as the file is laid out: the state may change
 *  then; what is on a device may change after policy.copies->await(). Without, the state is on disk when this returns,
 * under a temporary name.
 *  @param slices, their data  borrowed for the call; the same tensors at each save
 *  @param validation_loss  of this state; NaN where it was not evaluated
 *  @return as lm_state_write_begin(); nothing is under way after a failure */
lm_status lm_saver_begin(lm_saver *s, uint64_t step, const lm_state_slice *slices, size_t n, double validation_loss,
                         lm_error *err) LM_NODISCARD;

/** Is a save under way, of which step? Local, the same on all ranks. @param step may be NULL */
bool lm_saver_busy(const lm_saver *s, uint64_t *step);

/** Has this rank written its share of the save under way, or failed to? Local. When all ranks have, lm_saver_end()
 *  does not wait. */
bool lm_saver_done(const lm_saver *s);

/** Seconds from the beginning to the end of the last save; 0 before. Local. */
double lm_saver_seconds(const lm_saver *s);

/** Wait for the save under way, complete it, give it its name, then remove what the policy no longer keeps. Collective.
 *  After a failure nothing was removed, and nothing is under way.
 *  @return as lm_state_write_begin(), LM_EDAMAGED where the new file does not list; what cannot be removed is a warning
 */
lm_status lm_saver_end(lm_saver *s, lm_error *err) LM_NODISCARD;

/** Local; none may be under way. NULL is fine. */
void lm_saver_free(lm_saver *s);

#endif
