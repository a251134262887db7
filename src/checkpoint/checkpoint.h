/* src/checkpoint/checkpoint.h - state <-> disk: where checkpoints are, which is the newest good one, how many stay. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_CHECKPOINT_CHECKPOINT_H
#define LM_CHECKPOINT_CHECKPOINT_H

#include "base/memory.h"
#include "checkpoint/lock.h"
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

/** Make RUN. Local. Missing folders above it are made for a relative path only: the parent of an absolute path that is
 * not there is more likely a file system that is not mounted. */
lm_status lm_checkpoint_make_run(const char *run, lm_error *err) LM_NODISCARD;

/** Take a run folder into use, before the first step. Collective.
 *  Makes RUN and RUN/checkpoints, owns them (rank 0: lm_run_lock_take()), removes what killed saves left
 *  (.step-*.part), and makes a test write that every rank must see. RUN is made as by lm_checkpoint_make_run(). Who
 * only reads must not call it.
 *  @param lock_timeout  seconds, as lm_run_lock_take() has them
 *  @param stripes  over how many of Lustre's targets files in a new RUN/checkpoints are spread, where there is an `lfs`
 *                  to say so; -1: all; 0: as the folder above has it. That this fails is no failure.
 *  @param[out] lock  the caller's to release; NULL on other ranks than 0, and after a failure
 *  @return LM_EINVAL with path and system text where the folder cannot be made or written, or with its owner */
lm_status lm_checkpoint_prepare(const lm_comm *comm, const char *run, double lock_timeout, int stripes,
                                lm_run_lock **lock, lm_error *err) LM_NODISCARD;

/** Which complete checkpoints stay: the newest `keep` by step number, and the milestones besides. Plain data. */
typedef struct lm_checkpoint_rule {
  int64_t keep;            /* at least 1 */
  int64_t milestone_every; /* what lies at a multiple of so many steps stays; 0: no milestones */
  uint64_t always;         /* a step that stays and counts, whatever its number; UINT64_MAX: none */
} lm_checkpoint_rule;

/** What the rule does not keep, oldest first. Local. What is damaged neither counts nor goes.
 *  @param out  where the paths are appended, each with its '\0' */
lm_status lm_checkpoint_surplus(const char *run, const lm_checkpoint_rule *rule, lm_buffer *out,
                                lm_error *err) LM_NODISCARD;

/** Remove those, in order; what cannot be removed does not stop the others. Local; calls no HDF5. */
lm_status lm_checkpoint_remove(const lm_buffer *paths, lm_error *err) LM_NODISCARD;

/** Load the newest checkpoint, by step number, whose content verifies while it is read, passing over damaged ones with
 * a warning each; nothing is removed. Collective: all ranks load the same.
 *  @param only  the step to load, and no other; UINT64_MAX: the newest good one
 *  @param[out] step  of what was loaded
 *  @param[out] found false where the run has no checkpoint at all: nothing was read
 *  @return LM_EDAMAGED where there are checkpoints and none is good; LM_EINVAL where a shape does not fit (both shown)
 */
lm_status lm_checkpoint_resume(const lm_comm *comm, const char *run, uint64_t only, const lm_state_slice *slices,
                               size_t n, uint64_t *step, bool *found, lm_error *err) LM_NODISCARD;

/** The file of a step. Local. @param out [4096] */
lm_status lm_checkpoint_file(char *out, const char *run, uint64_t step, lm_error *err) LM_NODISCARD;

/** Give checkpoints of later steps than this the name abandoned-step-*.h5, or abandoned-2-step-*.h5 where there is one:
 *  they belong to a future that will not be. Local: rank 0. Nothing is removed. @param[out] n  how many */
lm_status lm_checkpoint_abandon_after(const char *run, uint64_t step, size_t *n, lm_error *err) LM_NODISCARD;

#endif
