/* src/train/replicas.h - do all ranks still have the same weights? */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TRAIN_REPLICAS_H
#define LM_TRAIN_REPLICAS_H

#include "base/param_table.h"
#include "comm/comm.h"
#include "kernels/kernels.h"

/** Compare a hash of every tensor between the ranks: a broken memory or a broken sum shows here, and nowhere else.
 *  Collective. One small all-gather while all is well.
 *  @param weights  [elements] of type t, on k's device: what every rank computes with
 *  @return LM_ENUMERIC naming the tensor and the ranks that differ from the most, the same on all ranks; LM_ENOMEM */
lm_status lm_check_replicas(const lm_comm *comm, const lm_param_table *table, const lm_kernels *k, const void *weights,
                            lm_dtype t, lm_error *err) LM_NODISCARD;

#endif
