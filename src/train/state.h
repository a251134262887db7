/* src/train/state.h - what a run is at a step, as the slices that checkpoints keep. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TRAIN_STATE_H
#define LM_TRAIN_STATE_H

#include "batch/mixture.h"
#include "hdf5/state_file.h"
#include "model/model.h"
#include "optim/optimizer.h"
#include "optim/scaler.h"
#include "train/monitor.h"

/** Where a run stands. Plain data, the same on all ranks; /progress, /rng, /monitor and, in fp16, /scaler of a
 * checkpoint, field by field. */
typedef struct lm_progress {
  uint64_t step;    /* steps done, skipped ones included */
  uint64_t applied; /* updates applied: the optimizer's counter, the schedule's argument */
  uint64_t tokens;  /* targets trained on */
  uint64_t
      position; /* in the endless sequence of shuffled epochs: samples drawn, and those that rollbacks jumped over */
  uint64_t skipped;   /* steps in a row until now whose update was left out */
  uint64_t rollbacks; /* of the run so far */
  lm_monitor monitor;
  lm_scaler scaler; /* fp16 only */
  uint64_t key;     /* of Philox4x32-10: run.seed; every counter follows from the position and the step */
} lm_progress;

/** What a checkpoint says of where it came from. Borrowed for the save; the same on all ranks. */
typedef struct lm_provenance {
  const char *config;    /* config.used.yaml, at /config */
  const char *program;   /* version, host, job, backend, time, as YAML, at /provenance/program */
  uint64_t world;        /* ranks */
  float loss;            /* of the step; NaN: none */
  float validation_loss; /* NaN: not evaluated at this step */
  uint64_t vocab;        /* fingerprint of the vocabulary that made the data */
  uint64_t data;         /* sum of the checksums of the training data */
  lm_mixture *mixture;   /* of its sources, at /progress/sources */
} lm_provenance;

typedef struct lm_state {
  lm_state_slice *slices;
  size_t n;
} lm_state;

/** The slices that this rank writes: what it owns, or its even cut of the flat parameter space, whatever the tensor
 *  borders, where every rank has all; scalars and texts on rank 0. Local. Free with lm_state_free(). @param p, from, m,
 * opt  kept */
lm_status lm_state_to_save(lm_state *out, const lm_comm *comm, lm_model *m, lm_optimizer *opt, lm_progress *p,
                           lm_provenance *from, lm_error *err) LM_NODISCARD;

/** The slices that this rank reads: all weights and scalars, and what it owns of the optimizer's tensors. Local.
 *  Masters are read where there are some, whatever the precision of the run that wrote the file.
 *  @param opt  NULL: weights only, as they were used (generate, eval)
 *  @param p    its scaler and monitor are kept where the file has none */
lm_status lm_state_to_load(lm_state *out, lm_model *m, lm_optimizer *opt, lm_progress *p, lm_error *err) LM_NODISCARD;

/** The slices of a new run that begins with the weights of another: the masters where the file has them, else its
 *  weights. Local. */
lm_status lm_state_to_begin(lm_state *out, lm_model *m, lm_optimizer *opt, lm_error *err) LM_NODISCARD;
void lm_state_free(lm_state *s);

#endif
