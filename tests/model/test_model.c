/* tests/model/test_model.c - the whole model: finite differences, and what must not change its numbers. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/rng.h"
#include "tests/model/fixture.h"
#include "tests/tap.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { T = 16, MAX_B = 5, V = 257 }; /* 5 x 16 rows are two chunks of the head: 64 and 16 */

static int32_t tokens[MAX_B * T], targets[MAX_B * T];

static bool same(const float *a, const float *b, size_t n)
{
  return memcmp(a, b, n * sizeof *a) == 0;
}

/* A model with the fixture's weights. */
static lm_model *loaded(lm_model_config cfg, const lm_kernels *k, lm_dtype compute, bool training)
{
  lm_model *m = fixture_model(&cfg, k, compute, MAX_B, training);
  float *w = fixture_weights(lm_model_params(m), 1);
  fixture_set(m, k, w);
  free(w);
  return m;
}

/* ---- finite differences ---- */

static void test_finite_differences(bool tied, bool bias)
{
  lm_model *m = loaded(fixture_config(tied, bias), &lm_kernels_ref, LM_F32, true);
  const lm_param_table *t = lm_model_params(m);
  float *w = fixture_weights(t, 1);
  lm_loss loss = lm_model_train(m, tokens, targets, 2, T, NULL);
  float *g = fixture_gradients(m, &lm_kernels_ref);
  const char *name = "";
  double worst = fixture_finite_differences(m, w, g, tokens, targets, 2, T, NULL, &name);
  tap_ok(worst < 2e-3, "finite differences (tied %d, bias %d): %.1e, the worst is %s", tied, bias, worst, name);
  tap_ok(loss.count > 0 && loss.count < 2 * T, "with %d of %d targets", (int)loss.count, 2 * T);
  lm_model_free(m);
  free(w);
  free(g);
}

/* ---- the same numbers, however they are asked for ---- */

/* Gradients of five sequences in micro-batches of at most b; *sum is the loss. */
static float *in_pieces(const lm_kernels *k, int b, lm_loss *sum)
{
  lm_model *m = loaded(fixture_config(true, true), k, LM_F32, true);
  *sum = (lm_loss){0};
  for (int i = 0; i < MAX_B; i += b) {
    int n = MAX_B - i < b ? MAX_B - i : b;
    lm_loss one = lm_model_train(m, tokens + i * T, targets + i * T, n, T, NULL);
    sum->sum += one.sum;
    sum->count += one.count;
  }
  float *g = fixture_gradients(m, k);
  lm_model_free(m);
  return g;
}

static void test_micro_batches(const lm_kernels *k)
{
  lm_model_config cfg = fixture_config(true, true);
  lm_param_table t;
  lm_error err;
  tap_ok(lm_param_table_new(&t, &cfg, &err) == LM_OK, "a table");
  lm_loss whole, pieces;
  float *want = in_pieces(k, MAX_B, &whole);
  for (int b = 1; b < MAX_B; b++) {
    float *got = in_pieces(k, b, &pieces);
    const char *name = "";
    double d = fixture_worst(&t, fixture_distance, got, want, &name);
    tap_ok(pieces.count == whole.count && fabs(pieces.sum / whole.sum - 1) < 1e-6,
           "%s: in micro-batches of %d the same loss", k->name, b);
    tap_ok(d < 1e-6, "and gradients: %.1e, the worst is %s", d, name);
    free(got);
  }
  free(want);
  lm_param_table_free(&t);
}

static void test_backends(const lm_kernels *cpu)
{
  for (int i = 0; i < 4; i++) {
    lm_model_config cfg = fixture_config((i & 1) != 0, (i & 2) != 0);
    lm_model *want = loaded(cfg, &lm_kernels_ref, LM_F32, true), *f32 = loaded(cfg, cpu, LM_F32, true);
    lm_model *bf16 = loaded(cfg, cpu, LM_BF16, true);
    double loss = lm_model_train(want, tokens, targets, MAX_B, T, NULL).sum;
    double loss_f32 = lm_model_train(f32, tokens, targets, MAX_B, T, NULL).sum;
    double loss_bf16 = lm_model_train(bf16, tokens, targets, MAX_B, T, NULL).sum;
    float *g = fixture_gradients(want, &lm_kernels_ref), *g32 = fixture_gradients(f32, cpu);
    float *g16 = fixture_gradients(bf16, cpu);
    const char *name = "";
    tap_near(loss_f32 / loss, 1, 1e-6, "cpu f32 gives the reference's loss");
    tap_near(loss_bf16 / loss, 1, 1e-2, "cpu bf16 too, %.2e off", loss_bf16 / loss - 1);
    double d = fixture_worst(lm_model_params(want), fixture_distance, g32, g, &name);
    tap_ok(d < 1e-5, "cpu f32 gradients: %.1e, the worst is %s", d, name);
    d = fixture_worst(lm_model_params(want), fixture_distance_l2, g16, g, &name);
    tap_ok(d < 3e-2, "cpu bf16 gradients: %.1e, the worst is %s", d, name);
    free(g);
    free(g32);
    free(g16);
    lm_model_free(want);
    lm_model_free(f32);
    lm_model_free(bf16);
  }
}

/* Evaluation, generation and shorter sequences between two steps change nothing; a model without gradients agrees. */
static void test_eval_and_next(const lm_kernels *k, lm_dtype compute)
{
  lm_model *m = loaded(fixture_config(true, true), k, compute, true);
  lm_model *plain = loaded(fixture_config(true, true), k, compute, false);
  size_t n = lm_model_params(m)->elements;
  float logits[V], logits_plain[V];
  lm_loss first = lm_model_train(m, tokens, targets, MAX_B, T, NULL);
  float *g = fixture_gradients(m, k);
  lm_loss eval = lm_model_eval(m, tokens, targets, MAX_B, T);
  tap_ok(eval.sum == first.sum && eval.count == first.count, "%s %s: evaluation gives the loss of training", k->name,
         lm_dtype_name(compute));
  eval = lm_model_eval(plain, tokens, targets, MAX_B, T);
  tap_ok(eval.sum == first.sum && lm_model_gradients(plain) == NULL, "so does a model without gradients");

  int32_t only_last[7] = {-1, -1, -1, -1, -1, -1, 100};
  lm_loss last = lm_model_eval(m, tokens, only_last, 1, 7);
  lm_model_next(m, tokens, 7, logits);
  lm_model_next(plain, tokens, 7, logits_plain);
  double sum = 0;
  for (int v = 0; v < V; v++) sum += exp(logits[v]);
  tap_ok(last.count == 1, "one target");
  tap_near(log(sum) - logits[100], last.sum, 1e-5, "the next token's logits are those of the loss");
  tap_ok(same(logits, logits_plain, V), "the same without gradients");

  float *after = fixture_gradients(m, k);
  tap_ok(same(g, after, n), "gradients are untouched");
  k->zero(lm_model_gradients(m), n * sizeof *g);
  free(after);
  lm_loss again = lm_model_train(m, tokens, targets, MAX_B, T, NULL);
  after = fixture_gradients(m, k);
  tap_ok(again.sum == first.sum && same(g, after, n), "and the next step gives the same bits");
  free(after);
  free(g);
  lm_model_free(m);
  lm_model_free(plain);
}

/* On n threads: the gradients; *sum is the loss. */
static float *on_threads(const lm_kernels *k, lm_dtype compute, int n, double *sum)
{
  int before = omp_get_max_threads();
  omp_set_num_threads(n);
  lm_model *m = loaded(fixture_config(false, true), k, compute, true);
  *sum = lm_model_train(m, tokens, targets, MAX_B, T, NULL).sum;
  float *g = fixture_gradients(m, k);
  lm_model_free(m);
  omp_set_num_threads(before);
  return g;
}

static void test_threads(const lm_kernels *k, lm_dtype compute)
{
  lm_model_config cfg = fixture_config(false, true);
  lm_param_table t;
  lm_error err;
  tap_ok(lm_param_table_new(&t, &cfg, &err) == LM_OK, "a table");
  double want_sum, sum;
  float *want = on_threads(k, compute, 1, &want_sum);
  for (int n = 2; n <= 4; n++) {
    float *got = on_threads(k, compute, n, &sum);
    tap_ok(sum == want_sum && same(got, want, t.elements), "%s %s: %d threads give the bits of one", k->name,
           lm_dtype_name(compute), n);
    free(got);
  }
  free(want);
  lm_param_table_free(&t);
}

static void test_nothing_to_learn(const lm_kernels *k)
{
  lm_model *m = loaded(fixture_config(true, true), k, LM_F32, true);
  int32_t none[T];
  memset(none, 0xff, sizeof none);
  lm_loss loss = lm_model_train(m, tokens, none, 1, T, NULL);
  float *g = fixture_gradients(m, k);
  float largest = 0;
  for (size_t i = 0; i < lm_model_params(m)->elements; i++) largest = fmaxf(largest, fabsf(g[i]));
  tap_ok(loss.count == 0 && loss.sum == 0 && largest == 0, "%s: without targets no loss and no gradient", k->name);
  free(g);
  lm_model_free(m);
}

/* ---- the scale of the loss ---- */

/* A power of two changes no bit but the exponent. */
static void test_loss_scale(const lm_kernels *k)
{
  float *g[2];
  double loss[2];
  size_t n = 0;
  for (int i = 0; i < 2; i++) {
    lm_model *m = loaded(fixture_config(true, true), k, LM_F32, true);
    loss[i] = lm_model_train(m, tokens, targets, 2, T, &(lm_train_args){.loss_scale = i ? 0x1p12f : 1}).sum;
    g[i] = fixture_gradients(m, k);
    n = lm_model_params(m)->elements;
    lm_model_free(m);
  }
  size_t differ = 0;
  for (size_t i = 0; i < n; i++) differ += g[1][i] != 0x1p12f * g[0][i];
  tap_ok(differ == 0 && loss[0] == loss[1], "%s: a loss scale of 2^12 scales every gradient, and not the loss",
         k->name);
  free(g[0]);
  free(g[1]);
}

/* ---- the vocabulary's padding ---- */

/* Whatever lies in the rows that pad the vocabulary: no probability, no gradient. */
static void test_padding(const lm_kernels *k, bool tied)
{
  lm_model *m = loaded(fixture_config(tied, true), k, LM_F32, true);
  const lm_param_table *t = lm_model_params(m);
  const lm_param *p = lm_param_find(t, tied ? "token_embedding/weight" : "head/weight");
  float *w = fixture_weights(t, 1), logits[2][V];
  lm_loss clean = lm_model_train(m, tokens, targets, MAX_B, T, NULL);
  float *g = fixture_gradients(m, k);
  lm_model_next(m, tokens, T, logits[0]);
  for (size_t i = p->count; i < p->reserved; i++) w[p->offset + i] = 3;
  fixture_set(m, k, w);
  k->zero(lm_model_gradients(m), t->elements * sizeof *g);
  lm_loss loss = lm_model_train(m, tokens, targets, MAX_B, T, NULL);
  float *after = fixture_gradients(m, k);
  lm_model_next(m, tokens, T, logits[1]);
  tap_ok(loss.sum == clean.sum, "%s: padded rows get no probability (tied %d)", k->name, tied);
  tap_ok(same(g, after, t->elements) && same(logits[0], logits[1], V), "and change nothing");
  float largest = 0;
  for (size_t i = p->count; i < p->reserved; i++) largest = fmaxf(largest, fabsf(after[p->offset + i]));
  tap_ok(largest == 0, "and get no gradient");
  free(g);
  free(after);
  free(w);
  lm_model_free(m);
}

/* ---- the start ---- */

static void test_initial_loss(const lm_kernels *k)
{
  lm_model_config cfg = fixture_config(true, true);
  lm_model *m = fixture_model(&cfg, k, LM_F32, MAX_B, false);
  size_t n = lm_model_params(m)->elements;
  float *w = calloc(n, sizeof *w);
  lm_param_init(lm_model_params(m), &cfg, 42, 0, n, w);
  fixture_set(m, k, w);
  lm_loss loss = lm_model_eval(m, tokens, targets, MAX_B, T);
  tap_ok(fabs(loss.sum / (double)loss.count - log(V)) < 0.25, "an untrained model's loss is near ln V: %.4f, %.4f",
         loss.sum / (double)loss.count, log(V));
  free(w);
  fixture_set(m, k, w = calloc(n, sizeof *w));
  loss = lm_model_eval(m, tokens, targets, MAX_B, T);
  tap_near(loss.sum / (double)loss.count, log(V), 1e-6, "one of zeros knows nothing: ln V");
  free(w);
  lm_model_free(m);
}

/* ---- memory: a backend that counts, and refuses ---- */

static size_t allocations, allocated, refuse_at;

static lm_status counting_alloc(void **out, size_t bytes, const char *what, lm_error *err)
{
  allocations++;
  allocated += bytes;
  *out = NULL;
  if (allocations == refuse_at || bytes >> 40 != 0)
    return lm_fail(err, LM_ENOMEM, "no memory for %s (%zu)", what, bytes);
  return lm_kernels_ref.alloc(out, bytes, what, err);
}

static void test_memory(void)
{
  lm_kernels k = lm_kernels_ref;
  k.alloc = counting_alloc;
  lm_model_config cfg = fixture_config(false, true);
  for (int i = 0; i < 4; i++) {
    bool training = (i & 1) != 0;
    lm_dtype compute = (i & 2) != 0 ? LM_BF16 : LM_F32;
    lm_model_bytes bytes;
    lm_error err;
    allocations = allocated = 0;
    tap_ok(lm_model_measure(&bytes, &cfg, compute, MAX_B, training, &err) == LM_OK && allocations == 0, "measured");
    lm_model *m = loaded(cfg, &k, compute, training);
    tap_ok(allocated == bytes.weights + bytes.gradients + bytes.activations, "%zu bytes, as measured", allocated);
    tap_ok(allocations == (training ? 3 : 2), "in one block each");
    if (training) lm_model_train(m, tokens, targets, MAX_B, T, NULL);
    lm_model_eval(m, tokens, targets, MAX_B, T);
    tap_ok(allocations == (training ? 3 : 2), "a step allocates nothing");
    lm_model_free(m);
  }
}

static void test_refused(void)
{
  lm_kernels k = lm_kernels_ref;
  k.alloc = counting_alloc;
  lm_model_config cfg = fixture_config(true, true);
  static const char *const blocks[] = {"weights of 34208", "gradients of 34208", "activations of 34208"};
  lm_model *m;
  lm_error err;
  lm_status s;
  for (refuse_at = 1; refuse_at <= 3; refuse_at++) {
    allocations = 0;
    s = lm_model_new(&m, &cfg, &k, LM_F32, MAX_B, true, &err);
    tap_ok(s == LM_ENOMEM && m == NULL && strstr(err.text, blocks[refuse_at - 1]), "%s", err.text);
  }
  refuse_at = 0;
  lm_model_config huge = {.vocab_size = 1000, .n_layer = 1000, .n_head = 1, .n_embd = 65536, .n_ctx = 1024};
  s = lm_model_new(&m, &huge, &k, LM_F32, 1, false, &err);
  tap_ok(s == LM_ENOMEM && m == NULL && strstr(err.text, "206159760064512") != NULL, "%s", err.text);
  cfg.n_head = 5;
  tap_ok(lm_model_new(&m, &cfg, &k, LM_F32, 1, true, &err) == LM_EINVAL && m == NULL, "%s", err.text);
  cfg.n_head = 2;
  tap_ok(lm_model_new(&m, &cfg, &k, LM_F32, 0, true, &err) == LM_EINVAL && m == NULL, "%s", err.text);
  cfg.n_ctx = 1 << 20;
  tap_ok(lm_model_new(&m, &cfg, &k, LM_F32, 4096, true, &err) == LM_EINVAL && m == NULL, "%s", err.text);
}

static size_t activations(int64_t vocab, int64_t layers, int B, bool training)
{
  lm_model_config cfg = fixture_config(true, true);
  lm_model_bytes bytes;
  lm_error err;
  cfg.vocab_size = vocab;
  cfg.n_layer = layers;
  return lm_model_measure(&bytes, &cfg, LM_F32, B, training, &err) == LM_OK ? bytes.activations : 0;
}

static void test_memory_grows_as_it_must(void)
{
  size_t wide[2] = {activations(1000000, 2, 8, true), activations(1000000, 2, 512, true)};
  size_t slim[2] = {activations(257, 2, 8, true), activations(257, 2, 512, true)};
  tap_ok(wide[0] - slim[0] == wide[1] - slim[1], "logits of the whole batch never exist at once");
  tap_ok(activations(257, 2, 8, false) == activations(257, 200, 8, false), "evaluation keeps one layer");
  tap_ok(activations(257, 2, 8, true) - activations(257, 1, 8, true) ==
             activations(257, 9, 8, true) - activations(257, 8, 8, true),
         "training keeps them all");
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
  for (int i = 0; i < 4; i++) test_finite_differences((i & 1) != 0, (i & 2) != 0);
  test_micro_batches(&lm_kernels_ref);
  test_micro_batches(cpu);
  test_backends(cpu);
  test_eval_and_next(&lm_kernels_ref, LM_F32);
  test_eval_and_next(cpu, LM_F32);
  test_eval_and_next(cpu, LM_BF16);
  test_threads(cpu, LM_F32);
  test_threads(cpu, LM_BF16);
  test_nothing_to_learn(&lm_kernels_ref);
  test_nothing_to_learn(cpu);
  test_loss_scale(&lm_kernels_ref);
  test_loss_scale(cpu);
  for (int tied = 0; tied < 2; tied++) {
    test_padding(&lm_kernels_ref, tied != 0);
    test_padding(cpu, tied != 0);
  }
  test_initial_loss(&lm_kernels_ref);
  test_initial_loss(cpu);
  test_memory();
  test_refused();
  test_memory_grows_as_it_must();
  return tap_end();
}
