/* src/train/changes.h - what a run's config, and its vocabulary, were when its checkpoint was written, and are now. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TRAIN_CHANGES_H
#define LM_TRAIN_CHANGES_H

#include "base/options.h"
#include <stdbool.h>
#include <stdint.h>

/** Compare the config in a checkpoint with that of the run that resumes from it. Local: rank 0.
 *  What shapes the model must be as it was. Other keys that change the result are logged: they count from the next
 *  step on, schedules as the new closed form at the updates applied so far.
 *  @param now         the options of this start
 *  @param vocab       fingerprint of the vocabulary of this start's training data
 *  @param allow       another vocabulary is logged too
 *  @return LM_EINVAL with both values of what must not change */
lm_status lm_compare_run(const char *checkpoint, const lm_options *now, uint64_t vocab, bool allow,
                         lm_error *err) LM_NODISCARD;

/** Which checkpoint run.resume=STEP means. Local: rank 0. A command is started again as it is, by a person or a job
 *  script: where a later checkpoint was saved by a start that had itself gone back to STEP, the newest is meant.
 *  @param[in,out] step  in: STEP; out: UINT64_MAX where it is the newest, which is said
 *  @return as lm_checkpoint_scan() */
lm_status lm_resume_again(uint64_t *step, const char *run, lm_error *err) LM_NODISCARD;

#endif
