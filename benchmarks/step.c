/* benchmarks/step.c - tokens/s, model FLOP/s and share of the product rate of a training step, on one rank. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/clock.h"
#include "base/log.h"
#include "optim/optimizer.h"
#include "train/run_config.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

/* usage: step [--model.preset=gpt2-124m --model.n_ctx=64 --batch.micro=4 --precision=f32 ...]; run.steps timed steps */

static double now_best(double best, double begin)
{
  double seconds = lm_clock() - begin;
  return best == 0 || seconds < best ? seconds : best;
}

static lm_status bench(const lm_config *cfg, lm_error *err)
{
  const lm_kernels *k;
  lm_model *m;
  lm_optimizer *opt;
  int B = (int)cfg->batch.micro, T = (int)cfg->model.shape.n_ctx;
  lm_model_config shape = cfg->model.shape;
  if (shape.vocab_size == 0) shape.vocab_size = 8192;
  lm_optimizer_config optimizer = lm_config_optimizer(cfg);
  LM_TRY(lm_kernels_select(&k, (lm_backend)cfg->backend, err));
  lm_dtype t = lm_config_compute(cfg, k);
  LM_TRY(lm_model_new(&m, &shape, k, t, B, true, err));
  LM_TRY(lm_optimizer_new(&opt, lm_model_params(m), lm_model_weights(m), t, k, &optimizer, err));
  const lm_param_table *table = lm_model_params(m);
  lm_param_init(table, &shape, 1, 0, table->elements, lm_optimizer_master(opt));
  lm_optimizer_publish(opt);

  int32_t *tokens = malloc((size_t)(B * T + 1) * sizeof *tokens);
  for (int i = 0; i <= B * T; i++) tokens[i] = (int32_t)((unsigned)i * 2654435761u % (unsigned)shape.vocab_size);
  double pass = 0, norm = 0, update = 0, zero = 0;
  for (int64_t step = 1; step <= cfg->run.steps + 1; step++) {
    double begin = lm_clock();
    k->zero(lm_model_gradients(m), table->elements * sizeof(float));
    zero = now_best(zero, begin);
    begin = lm_clock();
    lm_loss loss = lm_model_train(m, tokens, tokens + 1, B, T, NULL);
    if (step > 1) pass = now_best(pass, begin);
    begin = lm_clock();
    double squares = k->sum_squares(lm_model_gradients(m), table->elements);
    norm = now_best(norm, begin);
    begin = lm_clock();
    lm_optimizer_step(opt, lm_model_gradients(m), 1e-4f, (float)(1 / (double)loss.count), step);
    update = now_best(update, begin);
    if (step == 1) printf("loss %.6f, gradient norm %.6f\n", loss.sum / (double)loss.count, squares);
  }
  double total = pass + norm + update + zero, peak = lm_cpu_product_rate(t);
  double flops = lm_model_flops_per_token(&shape, T) * B * T;
  printf("%s %s, %d threads, B=%d T=%d: %.1f ms a step (forward+backward %.1f, norm %.1f, AdamW %.1f, zero %.1f)\n",
         k->isa, lm_dtype_name(t), omp_get_max_threads(), B, T, 1e3 * total, 1e3 * pass, 1e3 * norm, 1e3 * update,
         1e3 * zero);
  printf("%.0f tokens/s; %.1f GFLOP/s by 6N + 6LCT; product rate %.1f GFLOP/s; share %.1f %%\n", B * T / total,
         flops / total * 1e-9, peak * 1e-9, 100 * flops / total / peak);
  free(tokens);
  lm_optimizer_free(opt);
  lm_model_free(m);
  return LM_OK;
}

int main(int argc, char **argv)
{
  lm_config cfg;
  lm_options *o;
  lm_error err;
  lm_status s = lm_options_new(&o, lm_config_options, lm_options_count(lm_config_options), &cfg, &err);
  if (s == LM_OK) s = lm_options_parse(o, argc - 1, argv + 1, &err);
  if (s == LM_OK) s = lm_config_apply_preset(&cfg, o, &err);
  if (s == LM_OK) s = bench(&cfg, &err);
  if (s != LM_OK) lm_log_error(&err);
  lm_options_free(o);
  return lm_exit_code(s);
}
