/* src/train/mixing.h - the sources of a run over its restarts: what its checkpoint says, and what the config wants. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TRAIN_MIXING_H
#define LM_TRAIN_MIXING_H

#include "batch/sources.h"
#include "comm/comm.h"

/** The mixture in a checkpoint, /progress/sources; of one without that, all of one source. Local: one rank.
 *  @param[out] position  samples drawn; may be NULL
 *  @return as lm_state_list(), lm_state_read(); LM_EDAMAGED where its parts do not fit together */
lm_status lm_mixing_read(lm_mixture *out, uint64_t *position, const char *checkpoint, lm_error *err) LM_NODISCARD;

/** Go on from `position` with these sources: what is known goes on where it was, other weights count from here on, and
 *  both are logged. Local: one rank.
 *  @param m  in: of the checkpoint; out: of the run
 *  @param allow_data  a source may have been replaced
 *  @return LM_EINVAL where one is gone and another one new, which may be one that was made again */
lm_status lm_mixing_follow(lm_mixture *m, const lm_sources *sources, uint64_t position, const char *checkpoint,
                           bool allow_data, lm_error *err) LM_NODISCARD;

/** Rank 0's mixture to all. Collective. */
lm_status lm_mixing_share(const lm_comm *comm, lm_mixture *m, lm_error *err) LM_NODISCARD;

/** Say what is drawn from, and what was so far. Local. @param position  samples drawn */
lm_status lm_mixing_report(const lm_mixture *m, const lm_sources *sources, uint64_t position,
                           lm_error *err) LM_NODISCARD;

#endif
