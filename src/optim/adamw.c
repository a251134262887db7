/* src/optim/adamw.c - summed gradients -> new parameters. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "optim/adamw.h"

#include <stdlib.h>

struct lm_adamw {
  const lm_param_table *table;
  void *weights;
  const lm_kernels *k;
  lm_adamw_config cfg;
  lm_dtype compute;
  float *master; /* [elements]; the weights themselves where compute is f32 */
  float *exp_avg, *exp_avg_sq;
};

static lm_status allocate(lm_adamw *opt, lm_error *err)
{
  size_t bytes = opt->table->elements * sizeof(float);
  LM_TRY(opt->k->alloc((void **)&opt->exp_avg, bytes, "the first moments", err));
  LM_TRY(opt->k->alloc((void **)&opt->exp_avg_sq, bytes, "the second moments", err));
  if (opt->compute != LM_F32) return opt->k->alloc((void **)&opt->master, bytes, "the f32 master weights", err);
  opt->master = opt->weights;
  return LM_OK;
}

lm_status lm_adamw_new(lm_adamw **out, const lm_param_table *table, void *weights, lm_dtype compute,
                       const lm_kernels *k, const lm_adamw_config *cfg, lm_error *err)
{
  lm_adamw *opt = *out = calloc(1, sizeof *opt);
  if (opt == NULL) return lm_fail(err, LM_ENOMEM, "no memory for the optimizer");
  *opt = (lm_adamw){.table = table, .weights = weights, .k = k, .cfg = *cfg, .compute = compute};
  lm_status s = allocate(opt, err);
  if (s != LM_OK) {
    lm_adamw_free(opt);
    *out = NULL;
  }
  return s;
}

void lm_adamw_free(lm_adamw *opt)
{
  if (opt == NULL) return;
  if (opt->compute != LM_F32) opt->k->release(opt->master);
  opt->k->release(opt->exp_avg);
  opt->k->release(opt->exp_avg_sq);
  free(opt);
}

float *lm_adamw_master(lm_adamw *opt)
{
  return opt->master;
}

float *lm_adamw_exp_avg(lm_adamw *opt)
{
  return opt->exp_avg;
}

float *lm_adamw_exp_avg_sq(lm_adamw *opt)
{
  return opt->exp_avg_sq;
}

bool lm_adamw_has_master(const lm_adamw *opt)
{
  return opt->compute != LM_F32;
}

void lm_adamw_publish(lm_adamw *opt)
{
  if (opt->compute == LM_F32) return; /* they are the same block */
  opt->k->cast(opt->weights, opt->compute, opt->master, LM_F32, opt->table->elements);
}

void lm_adamw_step(lm_adamw *opt, const float *g, float lr, float scale, int64_t step)
{
  const lm_param_table *table = opt->table;
  lm_bf16 *w16 = opt->compute == LM_F32 ? NULL : opt->weights;
  for (size_t i = 0; i < table->n; i++) {
    const lm_param *p = &table->params[i];
    lm_adamw_config cfg = opt->cfg;
    if (!p->decayed) cfg.decay = 0;
    opt->k->adamw(opt->master + p->offset, opt->exp_avg + p->offset, opt->exp_avg_sq + p->offset, g + p->offset,
                  w16 ? w16 + p->offset : NULL, p->count, &cfg, lr, scale, step);
  }
}
