/* src/gradsync/exchange.h - what the files of src/gradsync share. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_GRADSYNC_EXCHANGE_H
#define LM_GRADSYNC_EXCHANGE_H

#include "gradsync/gradsync.h"
#include "gradsync/tree.h"

/** A part of each rank's part of a group: elements from `skip` on, `most` of them at most. */
typedef struct lm_bucket {
  size_t group, skip;
} lm_bucket;

/** A bucket on its way. */
typedef struct lm_slot {
  enum { LM_SLOT_SUMMING, LM_SLOT_GATHERING, LM_SLOT_DONE } stage;
  lm_transfers transfers;
  float *received; /* [plan.received, most] */
} lm_slot;

enum { LM_SLOTS = 2 };

/** What follows from table, ranks and config; nothing is allocated. */
typedef struct lm_gradsync_plan {
  size_t most;    /* elements of a bucket, of one rank's part */
  int partials;   /* sums that all ranks together bring to a bucket: one each, or nodes of the tree */
  int widest;     /* the most that one rank brings */
  int received;   /* parts that a slot has room for */
  int stack;      /* blocks of gradients beside the model's: nodes that a rank may hold at a time */
  size_t spare;   /* elements of lm_gradsync.spare */
  bool exchanges; /* false: one rank, whose sums are where they belong */
} lm_gradsync_plan;

struct lm_gradsync {
  const lm_comm *comm;
  const lm_param_table *table;
  const lm_kernels *k;
  lm_gradsync_config cfg;
  lm_gradsync_plan plan;
  uint64_t *first;  /* cfg.first */
  float *gradients; /* the model's */
  float *own;       /* [own_elements], with LM_SHARD_GRADIENTS */

  lm_partial *nodes;    /* [partials] in the order of ranks */
  int *node_of;         /* [size + 1]: those of rank r are nodes[node_of[r] .. node_of[r + 1]) */
  lm_partial *joining;  /* [partials] scratch */
  float **sources;      /* [partials] scratch */
  float **blocks;       /* [stack] */
  lm_partial *held;     /* [stack]: what blocks are the sums of */
  int n_held;           /* of them, so far */
  uint64_t micros_done; /* micro-batches of this rank, so far */

  lm_bucket *buckets; /* in the order of backward */
  size_t n_buckets;
  size_t *ends;                 /* [n_groups]: buckets up to and with this group */
  size_t final, launched, done; /* buckets that may begin; that have begun; that have ended */
  uint64_t round;               /* exchanges of all buckets, so far; more than one with LM_SHARD_GRADIENTS alone */
  lm_slot slots[LM_SLOTS];      /* bucket b is in slot b % LM_SLOTS */
  const lm_device_comm *device; /* NULL: gradients are in host memory, and MPI carries them */
  float *spare;                 /* on the device: a part of a group, or what lies behind one */
  size_t offered;               /* groups of this round that the fabric has been given, from the last one on */
  size_t unsummed;              /* elements [0, unsummed) are not on their way yet; where nothing is sharded */

  lm_slices of_params;   /* what this rank has the sums of, a slice a parameter */
  double *param_squares; /* [n] of the backend: of each parameter */
  lm_slices of_runs;     /* where reproducible and on devices: of the runs that no cut parts */
  double *run_squares;   /* [n_squares], likewise */
  double *squares;       /* the same here, or of the runs that no cut parts where reproducible */
  size_t n_squares;
};

/** Begin what may begin, go on with what has arrived. Local; never waits. */
void lm_exchange_progress(lm_gradsync *s);

/** Wait until `upto` buckets of this round have ended. Collective: all ranks come here, or to a later bucket. */
void lm_exchange_wait(lm_gradsync *s, size_t upto);

/* The same on devices: the fabric has a queue, and the host never waits. */

/** Elements of lm_gradsync.spare. Local. */
size_t lm_collective_spare(const lm_param_table *t, int size);

/** A round of exchanges begins. Local. */
void lm_collective_begin(lm_gradsync *s);

/** Groups from the last one down to this one are final: sum those that are not on their way yet. Collective. */
void lm_collective_offer(lm_gradsync *s, size_t group);

/** What the backend computes from here on finds the sums of a group, and of those behind it. Local. */
void lm_collective_await(lm_gradsync *s, size_t group);

/** All sums of single sequences, as the tree says, on all ranks. Collective. */
void lm_collective_tree(lm_gradsync *s);

/** lm_gradsync_gather(). Collective. */
void lm_collective_gather(lm_gradsync *s, void *weights, lm_dtype t);

/** Does a rank bring sums to this round? Local. */
bool lm_exchange_brings(const lm_gradsync *s, int rank, uint64_t round);

#endif
