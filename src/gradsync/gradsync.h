/* src/gradsync/gradsync.h - grads -> summed grads: buckets, overlap with backward, sharding (ZeRO), one fixed order. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_GRADSYNC_GRADSYNC_H
#define LM_GRADSYNC_GRADSYNC_H

#include "base/param_table.h"
#include "comm/comm.h"
#include "comm/device.h"
#include "kernels/kernels.h"

/* Gradients are cut into buckets, in the order in which backward makes them. A bucket is summed by direct exchange:
 * each rank sends every other its part, each adds what it gets, in the order of the ranks, to its own. Where all ranks
 * need all sums, the parts are then gathered the same way. A sum is the same bits whenever a bucket was begun, whoever
 * owns it and however large buckets are. Rajbhandari et al., arXiv:1910.02054, describe what is sharded.
 *
 * Gradients on devices are summed by the collectives of the devices' fabric instead, in its order: the same bits for
 * the same ranks and buckets. Where reproducible, the fabric only carries: each rank gets the partial sums of all, and
 * adds them as the tree says. */

typedef struct lm_gradsync_config {
  size_t bucket_bytes;   /* > 0: at most so much is received for a bucket; two are on their way at a time */
  bool overlap;          /* begin while backward goes on; else after it */
  bool reproducible;     /* sum single sequences as a binary tree over the batch; not with LM_SHARD_GRADIENTS */
  const uint64_t *first; /* [size + 1] copied: rank r has sequences [first[r], first[r + 1]) of each step */
  int micro;             /* >= 1: sequences of a micro-batch; 1 where reproducible */
  bool device;           /* the gradients are on devices */
} lm_gradsync_config;

typedef struct lm_gradsync lm_gradsync; /* opaque */

/** Set the gradients to 0 that the first micro-batch of a step adds to: of all rows but those that are .stored. Local.
 *  @param gradients  [elements] of the flat space */
void lm_gradients_begin(const lm_kernels *k, const lm_param_table *table, float *gradients);

/** Make one. Collective.
 *  @param table      kept: as lm_param_table_shard() left it for this rank
 *  @param device     kept: how devices exchange, with a mark for each group; NULL where cfg->device is false
 *  @param k          kept
 *  @param gradients  kept: [gradient_elements] f32, the block that backward adds to
 *  @return LM_EINVAL (cfg), LM_ENOMEM */
lm_status lm_gradsync_new(lm_gradsync **out, const lm_comm *comm, const lm_param_table *table, const lm_kernels *k,
                          const lm_device_comm *device, float *gradients, const lm_gradsync_config *cfg,
                          lm_error *err) LM_NODISCARD;
void lm_gradsync_free(lm_gradsync *s);

/** What lm_gradsync_new() asks the backend for. Local. */
size_t lm_gradsync_bytes(const lm_param_table *table, int rank, int size, const lm_gradsync_config *cfg);

/* A step is begun, its micro-batches are begun and ended, and it is finished. In between come only local operations and
 * transfers that are not waited for, but with LM_SHARD_GRADIENTS, whose ranks go through backward together. */

/** From here on steps have other sequences: first as in the config, and never none. Local; the same on all ranks,
 * between steps. Not where reproducible, whose tree is that of one batch. */
void lm_gradsync_set_batch(lm_gradsync *s, const uint64_t *first);

/** Gradients are 0, as far as the first micro-batch adds to them. Local. */
void lm_gradsync_begin(lm_gradsync *s);
void lm_gradsync_begin_micro(lm_gradsync *s);

/** lm_train_args.fresh of the micro-batch that was begun: it must write over the gradients of the rows that are
 * .stored, which were not set to 0. Local. */
bool lm_gradsync_fresh(const lm_gradsync *s);

/** Does the micro-batch that was begun need lm_gradsync_ready()? */
bool lm_gradsync_listens(const lm_gradsync *s);
/** lm_train_args.ready of a micro-batch; the context is the lm_gradsync. */
void lm_gradsync_ready(void *s, size_t from);
void lm_gradsync_end_micro(lm_gradsync *s);

/** All sums are there, in f32. Collective; also for a rank that had no sequences, or could not finish its own (which
 *  then must not be used). Where nothing is sharded the sums are in the model's block, all on each rank. */
void lm_gradsync_finish(lm_gradsync *s);

/** Seconds of the last lm_gradsync_finish() in which a device had nothing to compute, since sums were still on their
 * way; 0 where gradients are in host memory, or nothing is exchanged. Local; the host has waited for the device since.
 */
double lm_gradsync_exposed(const lm_gradsync *s);

/** The summed gradients: rows of the table have those that this rank owns at .gradient_at. Local. */
const float *lm_gradsync_sums(const lm_gradsync *s);

/** The square of the Euclidean norm of all summed gradients, padding not counted; the same bits on all ranks.
 * Collective where parameters are sharded. Not finite where a gradient is not. */
double lm_gradsync_squares(lm_gradsync *s);

/** The first parameter, in the order of the forward pass, whose sums are not finite on any rank; NULL: all are finite.
 * Collective. */
const lm_param *lm_gradsync_not_finite(lm_gradsync *s);

/** Each rank has updated what it owns of the weights: gather them. Collective; nothing to do where nothing is sharded.
 *  @param weights  [elements] of the flat space, of type t */
void lm_gradsync_gather(lm_gradsync *s, void *weights, lm_dtype t);

#endif
