/* src/optim/optimizer.c - summed gradients -> new parameters. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "optim/optimizer.h"

#include <stdlib.h>

struct lm_optimizer {
  const lm_param_table *table;
  void *weights;
  const lm_kernels *k;
  lm_optimizer_config cfg;
  lm_dtype compute;
  float *master; /* [elements]; the weights themselves where compute is f32 */
  int n_moments;
  lm_moment moments[LM_MOMENTS];
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

static lm_status allocate(lm_optimizer *opt, lm_error *err)
{
  size_t bytes = opt->table->elements * sizeof(float);
  for (int i = 0; i < opt->n_moments; i++)
    LM_TRY(opt->k->alloc((void **)&opt->moments[i].data, bytes, opt->moments[i].name, err));
  if (opt->compute != LM_F32) return opt->k->alloc((void **)&opt->master, bytes, "the f32 master weights", err);
  opt->master = opt->weights;
  return LM_OK;
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
  if (opt->compute != LM_F32) opt->k->release(opt->master);
  for (int i = 0; i < opt->n_moments; i++) opt->k->release(opt->moments[i].data);
  free(opt);
}

float *lm_optimizer_master(lm_optimizer *opt)
{
  return opt->master;
}

bool lm_optimizer_has_master(const lm_optimizer *opt)
{
  return opt->compute != LM_F32;
}

int lm_optimizer_moments(const lm_optimizer *opt, lm_moment out[LM_MOMENTS])
{
  for (int i = 0; i < opt->n_moments; i++) out[i] = opt->moments[i];
  return opt->n_moments;
}

void lm_optimizer_publish(lm_optimizer *opt)
{
  if (opt->compute == LM_F32) return; /* they are the same block */
  opt->k->cast(opt->weights, opt->compute, opt->master, LM_F32, opt->table->elements);
}

/* One parameter: the elements [p->offset, p->offset + p->count). */
static void step_adamw(lm_optimizer *opt, const lm_param *p, const float *g, void *w16, float lr, float scale,
                       int64_t step)
{
  lm_adamw_config cfg = opt->cfg.adamw;
  if (!p->decayed) cfg.decay = 0;
  opt->k->adamw(opt->compute, opt->master + p->offset, opt->moments[0].data + p->offset,
                opt->moments[1].data + p->offset, g + p->offset, w16, p->count, &cfg, lr, scale, step);
}

static void step_sgd(lm_optimizer *opt, const lm_param *p, const float *g, void *w16, float lr, float scale)
{
  lm_sgd_config cfg = opt->cfg.sgd;
  if (!p->decayed) cfg.decay = 0;
  float *momentum = opt->n_moments > 0 ? opt->moments[0].data + p->offset : NULL;
  opt->k->sgd(opt->compute, opt->master + p->offset, momentum, g + p->offset, w16, p->count, &cfg, lr, scale);
}

void lm_optimizer_step(lm_optimizer *opt, const float *g, float lr, float scale, int64_t step)
{
  for (size_t i = 0; i < opt->table->n; i++) {
    const lm_param *p = &opt->table->params[i];
    void *w16 = opt->compute == LM_F32 ? NULL : (uint16_t *)opt->weights + p->offset;
    if (opt->cfg.kind == LM_OPTIMIZER_ADAMW)
      step_adamw(opt, p, g, w16, lr, scale, step);
    else
      step_sgd(opt, p, g, w16, lr, scale);
  }
}
