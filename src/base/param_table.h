/* src/base/param_table.h - the parameter table: what a model hands to all who walk its parameters. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_BASE_PARAM_TABLE_H
#define LM_BASE_PARAM_TABLE_H

#include <stdbool.h>
#include <stddef.h>

typedef enum lm_init {
  LM_INIT_NORMAL,   /* N(0, 0.02^2) */
  LM_INIT_RESIDUAL, /* N(0, (0.02 / sqrt(2 L))^2): projections that write into the residual stream */
  LM_INIT_ZERO,
  LM_INIT_ONE,
} lm_init;

/** One parameter. Its elements are [offset, offset + count) of the flat space that weights, gradients and optimizer
 * state share; [offset + count, offset + reserved) is padding and always 0. */
typedef struct lm_param {
  char name[96]; /* "layers/3/attention/qkv/weight" */
  int ndim;
  size_t shape[2];
  size_t offset, count, reserved;
  lm_init init;
  bool decayed; /* weight decay applies: matrices, and nothing else */
  bool stored;  /* its gradient is that of a product, which can be stored as well as added: it need not be 0 before */

  size_t group;                /* its index in the table's groups */
  size_t own_begin, own_count; /* its elements that this rank updates: [own_begin, own_begin + own_count) of count */
  size_t own_at;               /* where they lie in this rank's block of owned elements */
  size_t gradient_at;          /* where the sums of their gradients lie; see lm_param_table */
} lm_param;

/** Consecutive parameters whose gradients backward finishes together: the embeddings, a layer, what follows the layers.
 */
typedef struct lm_param_group {
  size_t begin, count;         /* elements [begin, begin + count) of the flat space, padding included */
  size_t own_begin, own_count; /* elements of the group that this rank owns, counted from begin */
  size_t own_at;               /* where they lie in this rank's block of owned elements */
  size_t window;               /* where backward puts the group's gradients in the model's block of gradients */
} lm_param_group;

/** Who owns what, and where gradients are summed. */
typedef enum lm_sharding {
  LM_SHARD_NOTHING = 0,   /* every rank updates all */
  LM_SHARD_OPTIMIZER = 1, /* a rank updates what it owns; gradients lie in [elements] of the flat space */
  LM_SHARD_GRADIENTS = 2, /* and their sums in a block of owned elements; what backward makes passes through windows */
} lm_sharding;

/** In the order of the forward pass; backward finishes them from the end. */
typedef struct lm_param_table {
  size_t n;
  lm_param *params;
  size_t elements;   /* of the flat space, padding included */
  size_t parameters; /* of the model, padding not included: 124439808 for GPT-2 */

  size_t n_groups;
  lm_param_group *groups; /* from first to last they cover the flat space */
  lm_sharding sharding;
  size_t own_elements;      /* of this rank's block: elements where nothing is sharded */
  size_t gradient_elements; /* of the model's block of gradients: elements, or the windows */
  size_t slack;             /* behind the blocks of weights and of gradients: so that each group is as long as its parts
                               were they all of one size, whatever lies behind the group */
} lm_param_table;

/** Fill in the groups' ranges from the rows' .group, and share nothing. Local. */
void lm_param_table_group(lm_param_table *t);

/** Cut every group evenly over `size` ranks, whatever the borders of its tensors, and say what `rank` owns. Local.
 *  Cuts lie at multiples of lm_param_unit() in a group, so that they are the same elements' borders for any size. */
void lm_param_table_shard(lm_param_table *t, lm_sharding sharding, int rank, int size);

/** Elements that are never parted from each other: a cache line or more, so that a table has at most some 65536 such
 * units. Local. */
size_t lm_param_unit(const lm_param_table *t);

/** Where in a group of `count` elements the part of `rank` begins; that of `size` is count. Local. All parts are of the
 *  same size, a multiple of the unit, until the elements end: the last ones may be shorter, or empty. */
size_t lm_param_cut(const lm_param_table *t, size_t count, int rank, int size);

#endif
