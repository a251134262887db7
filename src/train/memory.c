/* src/train/memory.c - bytes of a rank of a training, in closed form. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/memory.h"

lm_status lm_rank_memory_of(lm_rank_memory *out, const lm_rank_shape *shape, lm_error *err)
{
  lm_model_bytes model;
  lm_param_table table;
  *out = (lm_rank_memory){0};
  LM_TRY(lm_model_measure(&model, &shape->model, shape->compute, shape->sync.micro, true, err));
  LM_TRY(lm_param_table_new(&table, &shape->model, err));
  lm_param_table_shard(&table, shape->sharding, shape->rank, shape->size);
  *out = (lm_rank_memory){.weights = model.weights + table.slack * lm_dtype_size(shape->compute),
                          .gradients = (table.gradient_elements + table.slack) * sizeof(float),
                          .activations = model.activations,
                          .optimizer = lm_optimizer_bytes(&table, shape->compute, &shape->optimizer),
                          .lists = shape->sync.device ? 2 * lm_optimizer_list_bytes(&table) : 0,
                          .exchange = lm_gradsync_bytes(&table, shape->rank, shape->size, &shape->sync)};
  lm_param_table_free(&table);
  return LM_OK;
}

size_t lm_rank_memory_sum(const lm_rank_memory *m)
{
  return m->weights + m->gradients + m->activations + m->optimizer + m->exchange + m->lists;
}
