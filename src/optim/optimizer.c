/* src/optim/optimizer.c - summed gradients -> new parameters. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "optim/optimizer.h"

#include "base/memory.h"
#include "kernels/slices.h"

#include <stdlib.h>

struct lm_optimizer {
  const lm_param_table *table;
  void *weights;
  const lm_kernels *k;
  lm_optimizer_config cfg;
  lm_dtype compute;
  float *master; /* [own_elements]; NULL where compute is f32: the weights are their own masters */
  int n_moments;
  lm_moment moments[LM_MOMENTS];
  lm_slices slices; /* of the parameters, in their order */
};

static int name_moments(const lm_optimizer_config *cfg, lm_moment *out)
{
  if (cfg->kind == LM_OPTIMIZER_ADAMW) {
    out[0].name = "exp_avg";
    out[1].name = "exp_avg_sq";
    return 2;
  }
  out[0].name = "momentum";
  return cfg->sgd.momentum > 0;
}

size_t lm_optimizer_bytes(const lm_param_table *table, lm_dtype compute, const lm_optimizer_config *cfg)
{
  lm_moment moments[LM_MOMENTS];
  size_t blocks = (size_t)name_moments(cfg, moments) + (compute != LM_F32);
  return blocks * table->own_elements * sizeof(float);
}

size_t lm_optimizer_list_bytes(const lm_param_table *table)
{
  size_t pieces = 0;
  for (size_t i = 0; i < table->n; i++) pieces += lm_slice_pieces(table->params[i].own_count);
  return lm_slices_bytes(table->n, pieces);
}

/* What an update of one parameter works on: this rank's elements of it. */
static lm_slice slice_of(lm_optimizer *opt, const lm_param *p)
{
  size_t at = p->offset + p->own_begin;
  bool f32 = opt->compute == LM_F32;
  return (lm_slice){.w = f32 ? (float *)opt->weights + at : opt->master + p->own_at,
                    .m = opt->n_moments > 0 ? opt->moments[0].data + p->own_at : NULL,
                    .v = opt->n_moments > 1 ? opt->moments[1].data + p->own_at : NULL,
                    .w16 = f32 ? NULL : (uint16_t *)opt->weights + at,
                    .g_at = p->gradient_at,
                    .n = p->own_count,
                    .decayed = p->decayed};
}

static lm_status list_slices(lm_optimizer *opt, lm_error *err)
{
  lm_slice *list;
  LM_TRY(lm_alloc(&list, opt->table->n, sizeof *list, "the list of tensors", err));
  for (size_t i = 0; i < opt->table->n; i++) list[i] = slice_of(opt, &opt->table->params[i]);
  lm_status s = lm_slices_new(&opt->slices, opt->k, list, opt->table->n, opt->compute, err);
  free(list);
  return s;
}

static lm_status allocate(lm_optimizer *opt, lm_error *err)
{
  size_t bytes = opt->table->own_elements * sizeof(float);
  for (int i = 0; i < opt->n_moments; i++)
    LM_TRY(opt->k->alloc((void **)&opt->moments[i].data, bytes, opt->moments[i].name, err));
  if (opt->compute != LM_F32) LM_TRY(opt->k->alloc((void **)&opt->master, bytes, "the f32 master weights", err));
  return list_slices(opt, err);
}

lm_status lm_optimizer_new(lm_optimizer **out, const lm_param_table *table, void *weights, lm_dtype compute,
                           const lm_kernels *k, const lm_optimizer_config *cfg, lm_error *err)
{
  lm_optimizer *opt = *out = calloc(1, sizeof *opt);
  if (opt == NULL) return lm_fail(err, LM_ENOMEM, "no memory for the optimizer");
  *opt = (lm_optimizer){.table = table, .weights = weights, .k = k, .cfg = *cfg, .compute = compute};
  opt->n_moments = name_moments(cfg, opt->moments);
  lm_status s = allocate(opt, err);
  if (s != LM_OK) {
    lm_optimizer_free(opt);
    *out = NULL;
  }
  return s;
}

void lm_optimizer_free(lm_optimizer *opt)
{
  if (opt == NULL) return;
  lm_slices_free(&opt->slices, opt->k);
  opt->k->release(opt->master);
  for (int i = 0; i < opt->n_moments; i++) opt->k->release(opt->moments[i].data);
  free(opt);
}

float *lm_optimizer_master(lm_optimizer *opt)
{
  return opt->compute == LM_F32 ? opt->weights : opt->master;
}

bool lm_optimizer_has_master(const lm_optimizer *opt)
{
  return opt->master != NULL;
}

int lm_optimizer_moments(const lm_optimizer *opt, lm_moment out[LM_MOMENTS])
{
  for (int i = 0; i < opt->n_moments; i++) out[i] = opt->moments[i];
  return opt->n_moments;
}

void lm_optimizer_publish(lm_optimizer *opt)
{
  if (opt->compute == LM_F32) return; /* they are the same block */
  for (size_t i = 0; i < opt->table->n_groups; i++) {
    const lm_param_group *g = &opt->table->groups[i];
    opt->k->cast((uint16_t *)opt->weights + g->begin + g->own_begin, opt->compute, opt->master + g->own_at, LM_F32,
                 g->own_count);
  }
}

void lm_optimizer_forget(lm_optimizer *opt)
{
  for (int i = 0; i < opt->n_moments; i++) opt->k->zero(opt->moments[i].data, opt->table->own_elements * sizeof(float));
}

void lm_optimizer_step(lm_optimizer *opt, const float *g, float lr, float scale, int64_t step)
{
  if (opt->cfg.kind == LM_OPTIMIZER_ADAMW)
    lm_slices_adamw(opt->k, opt->compute, &opt->slices, g, &opt->cfg.adamw, lr, scale, step);
  else
    lm_slices_sgd(opt->k, opt->compute, &opt->slices, g, &opt->cfg.sgd, lr, scale);
}

double lm_clip_factor(double norm, double most)
{
  return most > 0 && norm > most ? most / norm : 1;
}
