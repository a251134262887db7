/* src/train/trainer.h - what a running training holds, shared by the files of this folder. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TRAIN_TRAINER_H
#define LM_TRAIN_TRAINER_H

#include "batch/loader.h"
#include "batch/prefetch.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/saver.h"
#include "comm/watchdog.h"
#include "train/journal.h"
#include "train/memory.h"
#include "train/metrics.h"
#include "train/run_config.h"
#include "train/state.h"

typedef struct lm_trainer {
  const lm_comm *comm;
  const lm_config *cfg;
  const lm_kernels *k;
  lm_dtype compute;
  int T, micro;
  lm_model *model;
  lm_optimizer *optimizer;
  lm_device_comm *device; /* NULL: nothing is on devices */
  lm_gradsync *sync;
  lm_rank_shape shape;
  lm_rank_memory memory;
  lm_sources sources;
  lm_mixture mixture;            /* of the sources, since the run began */
  lm_dataset *val;               /* NULL without */
  lm_loader *loader, *describer; /* describer: for log.samples */
  lm_prefetch *prefetch;
  struct {
    uint64_t step, position, done; /* of the micro-batch to ask for next; done: samples of the rank's slice before it */
  } ahead;                         /* lm_trainer_jump() begins anew */
  int32_t *tokens, *targets;       /* [micro, T]: an evaluation's */
  uint64_t *samples;               /* [2 batch.global] windows, then sources; NULL unless log.samples */
  double *losses;                  /* [batch.global], one a sequence; NULL unless run.reproducible */
  lm_progress at;
  lm_watchdog *watchdog; /* NULL: none */
  lm_schedule schedule;
  lm_ramp ramp;          /* the global batch of each step */
  uint64_t *first;       /* [size + 1]: rank r has sequences [first[r], first[r + 1]) of the step */
  double peak_flops;     /* of all ranks, measured at the start */
  lm_metrics *metrics;   /* rank 0 */
  lm_journal *journal;   /* rank 0 */
  lm_buffer config_text; /* config.used.yaml */
  lm_run_lock *lock;     /* rank 0 */
  lm_saver *saver;
  bool save_failed;                  /* the last save did */
  uint64_t saved_step;               /* of the newest checkpoint; 0: none */
  double slowest_step, slowest_save; /* seconds of this start; before the first save a guess */
  double started;                    /* lm_clock() at the first step of this start */
  uint64_t started_step;
} lm_trainer;

/** Enter a phase of a step: for the watchdog, and for a profiler of the device. Local. @param phase  a literal */
void lm_trainer_phase(lm_trainer *t, uint64_t step, const char *phase);

/** Share a global batch among the ranks: t->first. Local. */
void lm_trainer_share_batch(lm_trainer *t, uint64_t batch);

/** Go on with the data at this position, whatever was read ahead. Local. */
void lm_trainer_jump(lm_trainer *t, uint64_t position);

/** What the ranks learn of a step, all the same. */
typedef struct lm_step_result {
  lm_metrics_row row;
  lm_bad_step bad; /* what the config says of such a step; LM_BAD_OFF: the update was applied */
  char why[200];   /* not applied: in words */
  bool stop;       /* a rank got a stop request */
  bool saved;      /* every rank has written its share of the save under way, or failed to */
} lm_step_result;

/** One update: micro-batches, reduction, clipping, the optimizer. Collective. Advances t->at by one step, also where
 * the update was left out.
 *  @return LM_EDAMAGED where a rank met a token id out of range; nothing was applied then */
lm_status lm_trainer_step(lm_trainer *t, lm_step_result *out, lm_error *err) LM_NODISCARD;

#endif
