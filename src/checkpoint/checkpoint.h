/* src/checkpoint/checkpoint.h - state <-> disk: where checkpoints are, which is the newest good one, how many stay. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_CHECKPOINT_CHECKPOINT_H
#define LM_CHECKPOINT_CHECKPOINT_H

#include "base/memory.h"
#include "hdf5/state_file.h"
#include <stdbool.h>

/** A checkpoint found in a run folder. Plain data. */
typedef struct lm_checkpoint {
  uint64_t step;
  bool complete;    /* has its mark and lists */
  uint64_t bytes;   /* of the file */
  char path[4096];  /* RUN/checkpoints/step-00001000.h5 */
  char reason[256]; /* why it is not complete */
} lm_checkpoint;

/** The checkpoints of a run, by step, ascending. Local. *out is the caller's to free(); none is not an error. */
lm_status lm_checkpoint_scan(const char *run, lm_checkpoint **out, size_t *n, lm_error *err) LM_NODISCARD;

/** Take a run folder into use, before the first step. Collective.
 *  Makes RUN and RUN/checkpoints, removes what killed saves left (.step-*.part), and makes a test write that every rank
 *  must see. Missing folders above RUN are made for a relative path only: the parent of an absolute path that is not
 *  there is more likely a file system that is not mounted. For the job that owns the run; who only reads must not call
 * it.
 *  @return LM_EINVAL with path and system text where the folder cannot be made or written */
lm_status lm_checkpoint_prepare(const lm_comm *comm, const char *run, lm_error *err) LM_NODISCARD;

/** Save `slices` as step's checkpoint, then remove what `keep` no longer wants. Collective.
 *  @param keep  how many complete ones stay, this one and the newest by step number; 0: all. Nothing is removed before
 * the new one has its name, and nothing after a failed save.
 *  @return as lm_state_write(); a checkpoint that cannot be removed is a warning */
lm_status lm_checkpoint_save(const lm_comm *comm, const char *run, uint64_t step, const lm_state_slice *slices,
                             size_t n, int64_t keep, lm_error *err) LM_NODISCARD;

/** Remove complete checkpoints of a run, oldest first, until `keep` of them are left. Local. What is damaged neither
 * counts nor goes.
 *  @param keep     at least 1
 *  @param always   a step that stays and counts, whatever its number; UINT64_MAX: none
 *  @param removed  where their paths are appended, a line each; may be NULL */
lm_status lm_checkpoint_prune(const char *run, int64_t keep, uint64_t always, lm_buffer *removed,
                              lm_error *err) LM_NODISCARD;

/** Load the newest checkpoint, by step number, whose content verifies while it is read, passing over damaged ones with
 * a warning each; nothing is removed. Collective: all ranks load the same.
 *  @param[out] step  of what was loaded
 *  @param[out] found false where the run has no checkpoint at all: nothing was read
 *  @return LM_EDAMAGED where there are checkpoints and none is good; LM_EINVAL where a shape does not fit (both shown)
 */
lm_status lm_checkpoint_resume(const lm_comm *comm, const char *run, const lm_state_slice *slices, size_t n,
                               uint64_t *step, bool *found, lm_error *err) LM_NODISCARD;

#endif
