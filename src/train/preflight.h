/* src/train/preflight.h - are the nodes fit for a run: measured and compared in seconds, before training. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TRAIN_PREFLIGHT_H
#define LM_TRAIN_PREFLIGHT_H

#include "comm/comm.h"
#include "train/run_config.h"

/** What is known of a rank. Plain data, gathered to all. */
typedef struct lm_preflight_rank {
  char host[64];
  int local_rank, local_size, threads;
  char backend[16]; /* that the rank would use: "cpu", "cuda" */
  bool on_device;
  double rate;              /* product FLOP/s while all ranks compute: f32 of its threads, or bf16 of its device */
  double memory;            /* bytes that the node, or the rank's device, can still give */
  double link;              /* bytes/s to and from rank 0; 0 on rank 0 itself */
  double clock_skew;        /* seconds that its clock is ahead of rank 0's */
  uint64_t program, config; /* hashes of the binary, of the config as used */
} lm_preflight_rank;

typedef struct lm_preflight {
  lm_preflight_rank *ranks; /* [size]; free() */
  double allreduce;  /* bytes/s: what each rank's share of 2 (n - 1) / n passes in an all-reduce; 0 on one rank */
  double need;       /* bytes of state a rank */
  double free_space; /* bytes, in the run folder */
} lm_preflight;

/** Measure and compare. Collective. What only makes a run slow is a warning that names the node.
 *  @param cfg  NULL: look at nodes and network only
 *  @param least  a node whose product rate or link is below this share of the median is refused; 0: none is
 *  @return LM_EINVAL: another binary or config on a rank, data that a node cannot read, a run folder that a node does
 *          not see or that is full, too little memory; LM_EPEER: a node is too slow. The sentence names rank and host.
 */
lm_status lm_preflight_run(lm_preflight *out, const lm_comm *comm, const lm_config *cfg, const lm_options *options,
                           double least, lm_error *err) LM_NODISCARD;

/** The first of n values that is below `share` of their median; n where none is. Local. Values <= 0 do not count.
 *  @param sorted  [n] room */
size_t lm_preflight_slow(const double *x, size_t n, double share, double *sorted);

#endif
