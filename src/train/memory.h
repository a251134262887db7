/* src/train/memory.h - bytes of a rank of a training, in closed form. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TRAIN_MEMORY_H
#define LM_TRAIN_MEMORY_H

#include "gradsync/gradsync.h"
#include "model/model.h"
#include "optim/optimizer.h"

/** Bytes of a rank, in the backend's memory. */
typedef struct lm_rank_memory {
  size_t weights, gradients, activations;
  size_t optimizer; /* moments and masters of what the rank owns */
  size_t exchange;  /* buckets on their way, sums of what the rank owns, partial sums of the tree */
  size_t lists;     /* on devices: where the tensors lie, for what an optimizer and a norm do to all at once */
} lm_rank_memory;

/** What makes a rank's memory. Plain data. */
typedef struct lm_rank_shape {
  lm_model_config model;
  lm_dtype compute;
  lm_optimizer_config optimizer;
  lm_sharding sharding;
  int rank, size;
  lm_gradsync_config sync; /* its .micro is also the model's largest micro-batch */
} lm_rank_shape;

/** What lm_model_new_shared(), lm_optimizer_new() and lm_gradsync_new() ask the backend for. Local; nothing is
 * allocated but the rows of a table, so models that no machine could hold can be asked about. With N elements, n = N /
 * size of them owned, S bytes of the compute type and p moments: weights S N;  gradients 4 N, with LM_SHARD_GRADIENTS 4
 * (embeddings + 2 layers + what follows the layers); optimizer 4 p n, and 4 n for the masters of 16-bit weights (n = N
 * where nothing is sharded); exchange 2 buckets; with LM_SHARD_GRADIENTS 4 n; where reproducible 4 N for each node of
 * the tree that is held; lists, on devices: two of 56 bytes for each 8192 elements of a tensor, and 4 for each tensor.
 *  @return LM_EINVAL as lm_model_new(), LM_ENOMEM */
lm_status lm_rank_memory_of(lm_rank_memory *out, const lm_rank_shape *shape, lm_error *err) LM_NODISCARD;

size_t lm_rank_memory_sum(const lm_rank_memory *m);

#endif
