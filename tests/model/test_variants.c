/* tests/model/test_variants.c - what a model may be made of, mixed: gradients, dropout, documents, recomputation. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "gradsync/gradsync.h"
#include "optim/optimizer.h"
#include "tests/model/fixture.h"
#include "tests/tap.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { T = 16, MAX_B = 5, V = 257, END = 100 };

static int32_t tokens[MAX_B * T], targets[MAX_B * T];

/* What a model can be, but for GPT-2 itself, which test_model.c knows. */
typedef struct variant {
  const char *name;
  lm_model_config cfg;
  bool documents;
  lm_objective objective;
} variant;

enum { VARIANTS = 7 };
static variant variants[VARIANTS];

static void make_variants(void)
{
  lm_model_config llama = fixture_llama(), gpt2 = fixture_config(true, true), mixed = fixture_config(false, true);
  lm_model_config tied = llama, normed = llama, dropped = gpt2, all = llama;
  tied.tied = true;
  normed.qk_norm = true;
  normed.rope.scaling = LM_ROPE_PLAIN;
  mixed.position = LM_POSITION_ROPE;
  mixed.mlp = LM_MLP_SWIGLU;
  mixed.n_kv_head = 1;
  dropped.dropout = 0.25;
  dropped.norm = LM_NORM_RMSNORM;
  all.qk_norm = all.bias = true;
  all.dropout = 0.1;
  all.norm = LM_NORM_LAYERNORM;
  const lm_objective objective = {.z_loss = 0.01f, .label_smoothing = 0.1f};
  const variant list[VARIANTS] = {
      {"Llama", llama, false, {0}},          {"tied Llama", tied, false, {0}},
      {"norms of heads", normed, true, {0}}, {"RoPE, SwiGLU, LayerNorm, biases", mixed, false, {0}},
      {"dropout", dropped, false, {0}},      {"documents, z-loss, label smoothing", gpt2, true, objective},
      {"all at once", all, true, objective},
  };
  memcpy(variants, list, sizeof list);
}

static lm_train_args args_of(const variant *v, uint64_t sample)
{
  return (lm_train_args){.loss_scale = 1, .seed = 11, .sample = sample, .objective = v->objective};
}

static lm_model *loaded(const variant *v, const lm_kernels *k, lm_dtype compute)
{
  lm_model *m = fixture_loaded(&v->cfg, k, compute, MAX_B, true);
  if (v->documents) lm_model_mask_documents(m, END);
  return m;
}

/* Gradients of B sequences; *loss is their loss. */
static float *gradients(const variant *v, const lm_kernels *k, lm_dtype compute, int B, double *loss)
{
  lm_model *m = loaded(v, k, compute);
  const lm_train_args args = args_of(v, 1000);
  *loss = lm_model_train(m, tokens, targets, B, T, &args).sum;
  float *g = fixture_gradients(m, k);
  lm_model_free(m);
  return g;
}

/* The same gradients, bit for bit, where those that are stored were not set to 0 before, and twice as much where a
 * second micro-batch adds to them. */
static void test_stored(const variant *v, const lm_kernels *k, lm_dtype compute)
{
  lm_model *m = loaded(v, k, compute);
  const lm_param_table *t = lm_model_params(m);
  lm_train_args args = args_of(v, 1000);
  float *g = lm_model_gradients(m); /* on the host */
  double loss;
  float *want = gradients(v, k, compute, MAX_B, &loss);
  for (size_t i = 0; i < t->n; i++)
    for (size_t j = 0; j < t->params[i].count; j++) g[t->params[i].offset + j] = NAN;
  lm_gradients_begin(k, t, g);
  args.fresh = true;
  lm_model_train(m, tokens, targets, MAX_B, T, &args);
  size_t wrong = 0, wrong_twice = 0, stored = 0;
  for (size_t i = 0; i < t->elements; i++) wrong += !(g[i] == want[i]); /* 0 and -0 are equal */
  args.fresh = false;
  lm_model_train(m, tokens, targets, MAX_B, T, &args);
  for (size_t i = 0; i < t->elements; i++)
    wrong_twice += !(fabsf(g[i] - 2 * want[i]) <= 1e-4F * fabsf(want[i]) + 1e-6F);
  for (size_t i = 0; i < t->n; i++) stored += t->params[i].stored ? t->params[i].count : 0;
  tap_ok(wrong == 0 && wrong_twice == 0 && 2 * stored > t->parameters,
         "%s, %s %s: gradients that are stored are those that are added to 0", v->name, k->name,
         lm_dtype_name(compute));
  free(want);
  lm_model_free(m);
}

static lm_param_table table_of(const variant *v)
{
  lm_param_table t;
  lm_error err;
  LM_ASSERT(lm_param_table_new(&t, &v->cfg, &err) == LM_OK);
  return t;
}

/* ---- gradients ---- */

static void test_finite_differences(const variant *v)
{
  lm_model *m = loaded(v, &lm_kernels_ref, LM_F32);
  const lm_train_args args = args_of(v, 1000);
  float *w = fixture_weights(lm_model_params(m), 1);
  const char *name = "";
  lm_model_train(m, tokens, targets, 2, T, &args);
  float *g = fixture_gradients(m, &lm_kernels_ref);
  double worst = fixture_finite_differences(m, w, g, tokens, targets, 2, T, &args, &name);
  tap_ok(worst < 2e-3, "%s: finite differences: %.1e, the worst is %s", v->name, worst, name);
  lm_model_free(m);
  free(w);
  free(g);
}

static void test_backend(const variant *v, const lm_kernels *cpu)
{
  lm_param_table t = table_of(v);
  double loss, loss32, loss16;
  const char *name = "";
  float *g = gradients(v, &lm_kernels_ref, LM_F32, MAX_B, &loss), *g32 = gradients(v, cpu, LM_F32, MAX_B, &loss32);
  float *g16 = gradients(v, cpu, LM_BF16, MAX_B, &loss16);
  double d = fixture_worst(&t, fixture_distance, g32, g, &name);
  tap_ok(fabs(loss32 / loss - 1) < 1e-6 && d < 1e-5, "%s: cpu f32: %.1e, the worst is %s", v->name, d, name);
  d = fixture_worst(&t, fixture_distance_l2, g16, g, &name);
  tap_ok(fabs(loss16 / loss - 1) < 1e-2 && d < 4e-2, "%s: cpu bf16: %.1e, the worst is %s", v->name, d, name);
  free(g);
  free(g32);
  free(g16);
  lm_param_table_free(&t);
}

static void test_threads(const variant *v, const lm_kernels *cpu)
{
  lm_param_table t = table_of(v);
  double want_loss, loss;
  int before = omp_get_max_threads();
  omp_set_num_threads(1);
  float *want = gradients(v, cpu, LM_F32, MAX_B, &want_loss);
  for (int n = 2; n <= 3; n++) {
    omp_set_num_threads(n);
    float *got = gradients(v, cpu, LM_F32, MAX_B, &loss);
    tap_ok(loss == want_loss && memcmp(got, want, t.elements * sizeof *got) == 0, "%s: %d threads give the bits of one",
           v->name, n);
    free(got);
  }
  omp_set_num_threads(before);
  free(want);
  lm_param_table_free(&t);
}

/* ---- recomputation: the same bits ---- */

static void test_recompute(const variant *v, const lm_kernels *k, lm_dtype compute)
{
  static const char *const names[] = {"nothing", "attention", "blocks"};
  lm_param_table t = table_of(v);
  double want_loss, loss;
  variant other = *v;
  other.cfg.n_layer = 3;
  lm_param_table_free(&t);
  t = table_of(&other);
  float *want = gradients(&other, k, compute, MAX_B, &want_loss);
  for (int r = LM_RECOMPUTE_ATTENTION; r <= LM_RECOMPUTE_BLOCK; r++) {
    other.cfg.recompute = r;
    float *got = gradients(&other, k, compute, MAX_B, &loss);
    tap_ok(loss == want_loss && memcmp(got, want, t.elements * sizeof *got) == 0,
           "%s, %s %s: recomputing %s changes no bit", v->name, k->name, lm_dtype_name(compute), names[r]);
    free(got);
  }
  free(want);
  lm_param_table_free(&t);
}

static size_t activations(const lm_model_config *shape, int64_t layers, int recompute)
{
  lm_model_config cfg = *shape;
  lm_model_bytes bytes;
  lm_error err;
  cfg.n_layer = layers;
  cfg.recompute = recompute;
  LM_ASSERT(lm_model_measure(&bytes, &cfg, LM_BF16, 4, true, &err) == LM_OK);
  return bytes.activations;
}

/* What a layer more costs, in bytes: 64 rows of bf16, each of which fills whole cache lines. */
static void test_recompute_memory(void)
{
  const lm_model_config gpt2 = fixture_config(true, true), llama = fixture_llama();
  const size_t rows = 64, C = 32, size = 2;
  size_t input = rows * C * size;
  size_t attention = rows * (3 * C + C) * size + rows * 2 * 4;                /* qkv, mixed; lse */
  size_t rest = rows * (C + C + C + 4 * C + 4 * C) * size + rows * 4 * 4;     /* norms, stream, MLP; mean, rstd */
  size_t attention_llama = rows * (2 * C + C) * size + rows * 4 * 4;          /* two of four heads have keys */
  size_t rest_llama = rows * (C + C + C + 2 * 44 + 44) * size + rows * 2 * 4; /* no means */
  const size_t want[2][3] = {{input + attention + rest, input + rest, input},
                             {input + attention_llama + rest_llama, input + rest_llama, input}};
  for (int i = 0; i < 2; i++)
    for (int r = 0; r < 3; r++) {
      const lm_model_config *cfg = i ? &llama : &gpt2;
      size_t got = activations(cfg, 9, r) - activations(cfg, 8, r);
      tap_ok(got == want[i][r], "%s, recompute %d: a layer more takes %zu bytes of activations (%zu)",
             i ? "Llama" : "GPT-2", r, got, want[i][r]);
    }
}

/* ---- dropout ---- */

static double loss_of(lm_model *m, uint64_t seed, uint64_t sample, int B)
{
  return lm_model_train(m, tokens, targets, B, T, &(lm_train_args){.loss_scale = 1, .seed = seed, .sample = sample})
      .sum;
}

static void test_dropout(const lm_kernels *k)
{
  const variant *v = &variants[4];
  lm_model *m = loaded(v, k, LM_F32);
  double first = loss_of(m, 1, 7, 2), eval = lm_model_eval(m, tokens, targets, 2, T).sum;
  tap_ok(loss_of(m, 1, 7, 2) == first, "%s: dropout is a function of seed and sample", k->name);
  tap_ok(loss_of(m, 2, 7, 2) != first && loss_of(m, 1, 8, 2) != first, "another seed, another sample: another mask");
  variant without = *v;
  without.cfg.dropout = 0;
  lm_model *plain = loaded(&without, k, LM_F32);
  tap_ok(eval == lm_model_eval(plain, tokens, targets, 2, T).sum && eval != first, "evaluation drops nothing");
  tap_ok(loss_of(plain, 1, 7, 2) == eval, "training without dropout has evaluation's loss");

  float *whole = calloc(lm_model_params(m)->elements, sizeof *whole), *pieces;
  k->zero(lm_model_gradients(m), lm_model_params(m)->elements * sizeof *whole);
  double loss = loss_of(m, 1, 40, MAX_B), sum = 0;
  free(whole);
  whole = fixture_gradients(m, k);
  k->zero(lm_model_gradients(m), lm_model_params(m)->elements * sizeof *whole);
  for (int b = 0; b < MAX_B; b++)
    sum += lm_model_train(m, tokens + b * T, targets + b * T, 1, T,
                          &(lm_train_args){.loss_scale = 1, .seed = 1, .sample = 40 + (uint64_t)b})
               .sum;
  pieces = fixture_gradients(m, k);
  const char *name = "";
  double d = fixture_worst(lm_model_params(m), fixture_distance, pieces, whole, &name);
  tap_ok(fabs(sum / loss - 1) < 1e-6 && d < 1e-6, "micro-batches change no mask: %.1e, the worst is %s", d, name);
  free(whole);
  free(pieces);
  lm_model_free(m);
  lm_model_free(plain);
}

/* ---- documents ---- */

/* Rotary positions know distances alone, so a document's losses do not depend on where it stands. */
static void test_documents(const lm_kernels *k)
{
  variant v = variants[0];
  v.documents = true;
  lm_model *m = loaded(&v, k, LM_F32);
  int32_t x[T], y[T], only_second[T];
  for (int i = 0; i < T; i++) x[i] = i == 6 ? END : (tokens[i] == END ? 1 : tokens[i]), y[i] = targets[i];
  for (int i = 0; i < T; i++) only_second[i] = i < 7 ? -1 : y[i];
  double both = lm_model_eval(m, x, y, 1, T).sum;
  double apart = lm_model_eval(m, x, y, 1, 7).sum + lm_model_eval(m, x + 7, y + 7, 1, T - 7).sum;
  tap_near(both / apart, 1, 1e-6, "%s: two documents in a window are as each alone", k->name);
  double second = lm_model_eval(m, x, only_second, 1, T).sum;
  x[2] = (x[2] + 1) % END;
  tap_ok(lm_model_eval(m, x, only_second, 1, T).sum == second, "the first document changes no bit of the second");
  lm_model_mask_documents(m, -1);
  tap_ok(lm_model_eval(m, x, only_second, 1, T).sum != second, "without the mask it does");
  float logits[2][V];
  lm_model_mask_documents(m, END);
  lm_model_next(m, x, T, logits[0]);
  lm_model_next(m, x + 7, T - 7, logits[1]);
  double worst = 0;
  for (int i = 0; i < V; i++) worst = fmax(worst, fabs((double)logits[0][i] - (double)logits[1][i]));
  tap_ok(worst < 1e-5, "nor of the logits that follow it: %.1e", worst);
  lm_model_free(m);
}

/* A model of zeros gives every token the same logit, 0: the loss is in closed form. */
static void test_objective(const lm_kernels *k)
{
  const lm_model_config cfg = fixture_llama();
  lm_model *m = fixture_model(&cfg, k, LM_F32, MAX_B, true);
  const lm_train_args args = {.loss_scale = 1, .objective = {.z_loss = 0.01f, .label_smoothing = 0.3f}};
  lm_loss loss = lm_model_train(m, tokens, targets, 2, T, &args);
  tap_near(loss.sum / (double)loss.count, log(V) + 0.01 * log(V) * log(V), 1e-5, "%s: z-loss is part of the loss",
           k->name);
  loss = lm_model_eval(m, tokens, targets, 2, T);
  tap_near(loss.sum / (double)loss.count, log(V), 1e-5, "and not of evaluation's");
  lm_model_free(m);
}

/* ---- the start ---- */

/* GPT-2's vocabulary: near ln 50257, whatever the model is made of. */
static void test_start(const lm_kernels *k, lm_model_config cfg)
{
  cfg.vocab_size = 50257;
  lm_model *m = fixture_model(&cfg, k, LM_F32, MAX_B, false);
  const lm_param_table *t = lm_model_params(m);
  float *w = calloc(t->elements, sizeof *w);
  lm_param_init(t, &cfg, 42, 0, t->elements, w);
  fixture_set(m, k, w);
  lm_loss loss = lm_model_eval(m, tokens, targets, MAX_B, T);
  tap_ok(fabs(loss.sum / (double)loss.count - 10.824905) < 0.3, "an untrained model's loss is near ln 50257: %.4f",
         loss.sum / (double)loss.count);
  free(w);
  lm_model_free(m);
}

/* ---- decay ---- */

/* Without gradients a step shrinks matrices, a shared one once, and leaves all else. */
static void test_decay(const lm_kernels *k, lm_model_config cfg)
{
  const lm_optimizer_config how = {.kind = LM_OPTIMIZER_ADAMW,
                                   .adamw = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .decay = 0.5f}};
  lm_model *m = fixture_loaded(&cfg, k, LM_F32, 1, true);
  const lm_param_table *t = lm_model_params(m);
  lm_optimizer *opt;
  lm_error err;
  float *before = fixture_weights(t, 1), *after = calloc(t->elements, sizeof *after);
  LM_ASSERT(lm_optimizer_new(&opt, t, lm_model_weights(m), LM_F32, k, &how, &err) == LM_OK);
  lm_optimizer_step(opt, lm_model_gradients(m), 0.1f, 1, 1);
  k->to_host(after, lm_model_weights(m), t->elements * sizeof *after);
  size_t wrong = 0;
  for (size_t i = 0; i < t->n; i++)
    for (size_t j = t->params[i].offset; j < t->params[i].offset + t->params[i].count; j++) {
      double want = (t->params[i].ndim == 2 ? 0.95 : 1) * (double)before[j];
      wrong += fabs((double)after[j] - want) > (t->params[i].ndim == 2 ? 0x1p-23 * fabs(want) : 0);
    }
  tap_ok(wrong == 0, "%s: decay is for matrices alone, times 0.95", k->name);
  lm_optimizer_free(opt);
  lm_model_free(m);
  free(before);
  free(after);
}

int main(int argc, char **argv)
{
  lm_comm comm;
  tap_begin(&comm, argc, argv);
  const lm_kernels *cpu;
  lm_error err;
  tap_ok(lm_kernels_select(&cpu, LM_BACKEND_CPU, &err) == LM_OK, "there is a CPU backend");
  fixture_tokens(tokens, MAX_B * T, V, 3, false);
  fixture_tokens(targets, MAX_B * T, V, 4, true);
  for (int b = 0; b < MAX_B; b++) tokens[b * T + 3 + 2 * b] = END;
  make_variants();
  for (int i = 0; i < VARIANTS; i++) {
    test_finite_differences(&variants[i]);
    test_backend(&variants[i], cpu);
    test_threads(&variants[i], cpu);
    test_stored(&variants[i], &lm_kernels_ref, LM_F32);
    test_stored(&variants[i], cpu, LM_F32);
    test_stored(&variants[i], cpu, LM_BF16);
    test_recompute(&variants[i], cpu, LM_F32);
    test_recompute(&variants[i], cpu, LM_BF16);
  }
  test_recompute(&variants[VARIANTS - 1], &lm_kernels_ref, LM_F32);
  test_recompute_memory();
  for (int i = 0; i < 2; i++) {
    const lm_kernels *k = i ? cpu : &lm_kernels_ref;
    test_dropout(k);
    test_documents(k);
    test_objective(k);
    test_decay(k, variants[1].cfg);
    test_decay(k, fixture_config(true, true));
  }
  test_start(cpu, fixture_config(true, true));
  test_start(cpu, fixture_llama());
  return tap_end();
}
