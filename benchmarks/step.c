/* benchmarks/step.c - tokens/s, model FLOP/s and share of the product rate of a training step, on one rank. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "benchmarks/timed.h"
#include "gradsync/gradsync.h"
#include "optim/optimizer.h"
#include "train/run_config.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* usage: step [--json] [--model.preset=gpt2-124m --model.n_ctx=64 --batch.micro=4 --precision=f32 ...]; run.steps timed
 * steps. On one thread times are the processor's. Every row is the best of its steps. On a device steps are timed
 * first, then a few in which the host waits for each operation. */

typedef struct measured {
  const char *isa;
  bool on_device;
  lm_dtype t;
  int B, T;
  double step;           /* seconds */
  double causal, full;   /* FLOPs a step: 6N + 6LCT, 6N + 12LCT */
  double products, copy; /* what the machine does: FLOP/s, bytes/s */
  lm_timed rows[LM_TIMED_MOST];
  int n;
  double *squares; /* of the gradient, in the backend's memory */
} measured;

/* Each operation's best step, and the best step. */
static void keep_best(measured *r, double seconds)
{
  lm_timed now[LM_TIMED_MOST];
  int n = lm_timed_read(now);
  for (int i = 0; i < n; i++) {
    int j = 0;
    while (j < r->n && strcmp(r->rows[j].name, now[i].name) != 0) j++;
    if (j == r->n)
      r->rows[r->n++] = now[i];
    else if (now[i].seconds < r->rows[j].seconds)
      r->rows[j] = now[i];
  }
  if (r->step == 0 || seconds < r->step) r->step = seconds;
}

static void one_step(const lm_kernels *k, lm_model *m, lm_optimizer *opt, const int32_t *tokens, measured *r,
                     int64_t step)
{
  size_t n = lm_model_params(m)->elements;
  const lm_train_args args = {.loss_scale = 1, .fresh = true};
  lm_timed_reset();
  double began = lm_timed_clock();
  lm_gradients_begin(k, lm_model_params(m), lm_model_gradients(m));
  lm_loss loss = lm_model_train(m, tokens, tokens + 1, r->B, r->T, &args);
  k->sum_squares(r->squares, lm_model_gradients(m), n);
  lm_optimizer_step(opt, lm_model_gradients(m), 1e-4f, (float)(1 / (double)loss.count), step);
  if (k->on_device) k->to_host(NULL, NULL, 0);
  if (step > 1) keep_best(r, lm_timed_clock() - began);
  double squares;
  k->to_host(&squares, r->squares, sizeof squares);
  if (step == 1) fprintf(stderr, "loss %.6f, squares of the gradient %.6g\n", loss.sum / (double)loss.count, squares);
}

/* Bytes a second that a device reads and writes. */
static double device_copy_rate(const lm_kernels *k)
{
  enum { ELEMENTS = 1 << 27, TIMES = 5 };
  float *x;
  lm_error err;
  double best = 0;
  if (k->alloc((void **)&x, 2 * sizeof *x * (size_t)ELEMENTS, "a copy", &err) != LM_OK) return 0;
  for (int i = 0; i < TIMES; i++) {
    k->to_host(NULL, NULL, 0);
    double began = lm_clock();
    k->cast(x + ELEMENTS, LM_F32, x, LM_F32, ELEMENTS);
    k->to_host(NULL, NULL, 0);
    double rate = 2 * sizeof *x * (double)ELEMENTS / (lm_clock() - began);
    if (rate > best) best = rate;
  }
  k->release(x);
  return best;
}

/* The rates of products and of memory, between the steps: what disturbs the one disturbs the other. */
static void measure_machine(const lm_kernels *k, measured *r)
{
  double products = k->product_rate != NULL ? k->product_rate(r->t) : lm_cpu_product_rate(r->t);
  double copy = k->on_device ? r->copy : lm_cpu_copy_rate();
  if (products > r->products) r->products = products;
  if (copy > r->copy) r->copy = copy;
}

static lm_status put_weights(const lm_kernels *k, lm_model *m, lm_optimizer *opt, lm_error *err)
{
  const lm_param_table *table = lm_model_params(m);
  float *host;
  LM_TRY(lm_alloc(&host, table->elements, sizeof *host, "the weights", err));
  lm_param_init(table, lm_model_config_of(m), 1, 0, table->elements, host);
  k->to_device(lm_optimizer_master(opt), host, table->elements * sizeof *host);
  free(host);
  lm_optimizer_publish(opt);
  return LM_OK;
}

/* Step 1 makes products, touches memory, and is not counted. */
static void run_steps(const lm_config *cfg, const lm_kernels *k, lm_model *m, lm_optimizer *opt, const int32_t *tokens,
                      measured *r)
{
  enum { APART = 3 /* steps, of a device */ };
  lm_timed_wait(!k->on_device);
  for (int64_t step = 1; step <= cfg->run.steps + 1; step++) {
    one_step(k, m, opt, tokens, r, step);
    measure_machine(k, r);
  }
  if (!k->on_device) return;
  double whole = r->step;
  r->n = 0; /* what the host needed to queue an operation */
  lm_timed_wait(true);
  for (int64_t step = 2; step < 2 + APART; step++) one_step(k, m, opt, tokens, r, step);
  r->step = whole;
}

static lm_status bench(const lm_config *cfg, measured *r, lm_error *err)
{
  const lm_kernels *k;
  lm_model *m;
  lm_optimizer *opt;
  lm_model_config shape = cfg->model.shape;
  if (shape.vocab_size == 0) shape.vocab_size = 8192;
  lm_optimizer_config optimizer = lm_config_optimizer(cfg);
  LM_TRY(lm_kernels_select(&k, (lm_backend)cfg->backend, err));
  r->t = lm_config_compute(cfg, k);
  k = lm_timed_table(k);
  r->isa = k->isa;
  r->on_device = k->on_device;
  r->B = (int)cfg->batch.micro;
  r->T = (int)shape.n_ctx;
  r->causal = lm_model_flops_per_token(&shape, r->T) * r->B * r->T;
  r->full = r->causal + 6.0 * (double)(shape.n_layer * shape.n_embd) * r->T * r->B * r->T;
  LM_TRY(lm_model_new(&m, &shape, k, r->t, r->B, true, err));
  LM_TRY(lm_optimizer_new(&opt, lm_model_params(m), lm_model_weights(m), r->t, k, &optimizer, err));
  LM_TRY(k->alloc((void **)&r->squares, sizeof *r->squares, "the gradient's norm", err));
  LM_TRY(put_weights(k, m, opt, err));
  if (k->on_device) r->copy = device_copy_rate(k);
  size_t n = (size_t)r->B * (size_t)r->T + 1;
  int32_t *tokens;
  LM_TRY(lm_alloc(&tokens, n, sizeof *tokens, "tokens", err));
  for (size_t i = 0; i < n; i++) tokens[i] = (int32_t)((unsigned)i * 2654435761u % (unsigned)shape.vocab_size);
  run_steps(cfg, k, m, opt, tokens, r);
  free(tokens);
  k->release(r->squares);
  lm_optimizer_free(opt);
  lm_model_free(m);
  return LM_OK;
}

static void print_table(const measured *r)
{
  double rest = r->step;
  printf("%s %s, %d threads, B=%d T=%d: %.1f ms a step, %.0f tokens/s\n", r->isa, lm_dtype_name(r->t),
         omp_get_max_threads(), r->B, r->T, 1e3 * r->step, r->B * r->T / r->step);
  printf("products %.1f GFLOP/s%s, copy %.1f GB/s in this run\n", 1e-9 * r->products,
         r->on_device ? " by its data sheet" : "", 1e-9 * r->copy);
  printf("6N + 6LCT %.1f GFLOP/s, %.1f %% of products; 6N + 12LCT %.1f, %.1f %%\n", 1e-9 * r->causal / r->step,
         100 * r->causal / r->step / r->products, 1e-9 * r->full / r->step, 100 * r->full / r->step / r->products);
  printf("%-18s %6s %9s %6s %9s %9s %12s\n", "operation", "calls", "ms", "%", "GFLOP/s", "GB/s", "of the limit");
  for (int i = 0; i < r->n; i++) {
    const lm_timed *o = &r->rows[i];
    rest -= o->seconds;
    double share = o->flops > 0 ? o->flops / o->seconds / r->products : o->bytes / o->seconds / r->copy;
    printf("%-18s %6ld %9.2f %6.1f %9.1f %9.1f %10.0f %%\n", o->name, o->calls, 1e3 * o->seconds,
           100 * o->seconds / r->step, 1e-9 * o->flops / o->seconds, 1e-9 * o->bytes / o->seconds, 100 * share);
  }
  if (!r->on_device) printf("%-18s %6s %9.2f %6.1f\n", "(rest)", "", 1e3 * rest, 100 * rest / r->step);
}

static void print_json(const measured *r)
{
  printf("{\"isa\": \"%s\", \"precision\": \"%s\", \"threads\": %d, \"B\": %d, \"T\": %d, \"step_s\": %.6g,", r->isa,
         lm_dtype_name(r->t), omp_get_max_threads(), r->B, r->T, r->step);
  printf(" \"tokens_per_s\": %.6g, \"flops_causal\": %.6g, \"flops_full\": %.6g,", r->B * r->T / r->step, r->causal,
         r->full);
  printf(" \"product_flops_per_s\": %.6g, \"copy_bytes_per_s\": %.6g, \"share_causal\": %.4g, \"operations\": [",
         r->products, r->copy, r->causal / r->step / r->products);
  for (int i = 0; i < r->n; i++)
    printf("%s{\"name\": \"%s\", \"calls\": %ld, \"s\": %.6g, \"flops\": %.6g, \"bytes\": %.6g}", i ? ", " : "",
           r->rows[i].name, r->rows[i].calls, r->rows[i].seconds, r->rows[i].flops, r->rows[i].bytes);
  printf("]}\n");
}

int main(int argc, char **argv)
{
  lm_config cfg;
  lm_options *o;
  lm_error err;
  bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
  measured result = {0};
  argc -= json;
  argv += json;
  lm_status s = lm_options_new(&o, lm_config_options, lm_options_count(lm_config_options), &cfg, &err);
  if (s == LM_OK) s = lm_options_parse(o, argc - 1, argv + 1, &err);
  if (s == LM_OK) s = lm_config_apply_preset(&cfg, o, &err);
  if (s == LM_OK) s = bench(&cfg, &result, &err);
  if (s == LM_OK) (json ? print_json : print_table)(&result);
  if (s != LM_OK) lm_log_error(&err);
  lm_options_free(o);
  return lm_exit_code(s);
}
