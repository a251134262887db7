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
} lm_param;

/** In the order of the forward pass; backward finishes them from the end. */
typedef struct lm_param_table {
  size_t n;
  lm_param *params;
  size_t elements;   /* of the flat space, padding included */
  size_t parameters; /* of the model, padding not included: 124439808 for GPT-2 */
} lm_param_table;

#endif
