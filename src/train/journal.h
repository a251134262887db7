/* src/train/journal.h - RUN/journal.jsonl: a JSON object a start or rollback, and whether the starts get anywhere. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TRAIN_JOURNAL_H
#define LM_TRAIN_JOURNAL_H

#include "comm/comm.h"

typedef struct lm_journal lm_journal; /* opaque */

/** What a start has reached. Plain data. */
typedef struct lm_journal_entry {
  uint64_t resumed, step, saved;     /* the step it resumed from, the last one done, the last one saved */
  double slowest_step, slowest_save; /* seconds */
} lm_journal_entry;

/** Begin the entry of this start, below those of earlier ones; say in the log how the last one ended. Collective.
 *  A row that cannot be read, the torn last one of a killed start, counts as a start that reached nothing.
 *  @param out      NULL on all ranks but 0
 *  @param run      the run folder
 *  @param stalled  so many starts in a row without a new saved step, and this one is refused; 0: never
 *  @param[out] slowest_save  seconds that saves took before, the same on all ranks; 0: not known
 *  @return LM_NO_PROGRESS names the common step, the hosts and the last error; LM_EIO, LM_ENOMEM */
lm_status lm_journal_open(lm_journal **out, const lm_comm *comm, const char *run, int64_t stalled, double *slowest_save,
                          lm_error *err) LM_NODISCARD;

/** Write what this start has reached over its entry, in one write: a killed start leaves its last state. Local. */
lm_status lm_journal_note(lm_journal *j, const lm_journal_entry *now, lm_error *err) LM_NODISCARD;

/** A step of which the run went back to a checkpoint. Plain data. */
typedef struct lm_journal_rollback {
  uint64_t bad, to;                /* the step that was not to be trusted, and the one that the run went back to */
  uint64_t from_sample, to_sample; /* positions in the data: [from, to) is jumped over */
  const char *why;                 /* borrowed */
} lm_journal_rollback;

/** Add a row below this start's entry. Local. @return LM_EIO, LM_ENOMEM */
lm_status lm_journal_add_rollback(lm_journal *j, const lm_journal_rollback *what, lm_error *err) LM_NODISCARD;

/** Where the step that comes after `step` begins in the data, as far as the journal knows better than the batches of
 * the steps before: the last rollback that still counts for it, one that no later start or rollback has undone by going
 * back beyond it. Local.
 *  @param run  the run folder
 *  @param[out] found  false: no rollback counts, *out stays as it is
 *  @param[out] out    only .bad, .to and the samples
 *  @return LM_EIO, LM_ENOMEM */
lm_status lm_journal_rollback_before(const char *run, uint64_t step, lm_journal_rollback *out, bool *found,
                                     lm_error *err) LM_NODISCARD;

/** How this start ended: its status, and the sentence and host of a failure. Local. NULL is fine. */
void lm_journal_close(lm_journal *j, lm_status s, const lm_error *err);

#endif
