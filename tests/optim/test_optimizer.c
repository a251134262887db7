/* tests/optim/test_optimizer.c - five updates of two tensors against PyTorch's in float64; what a resume needs. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/file.h"
#include "optim/optimizer.h"
#include "tests/tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 5, MOST = 35 };

/* The values after the line "name count". */
static void read_values(const char *text, const char *name, size_t n, double *out)
{
  char head[64];
  snprintf(head, sizeof head, "\n%s %zu\n", name, n);
  const char *at = strstr(text, head);
  LM_ASSERT(at != NULL);
  char *p = (char *)(uintptr_t)at + strlen(head);
  for (size_t i = 0; i < n; i++) out[i] = strtod(p, &p);
}

static const char *const names[] = {"matrix", "vector"};
static lm_param params[] = {
    {.name = "matrix", .ndim = 2, .shape = {5, 7}, .offset = 0, .count = 35, .reserved = 48, .decayed = true},
    {.name = "vector", .ndim = 1, .shape = {9}, .offset = 48, .count = 9, .reserved = 16},
};
enum { ELEMENTS = 64 };
static lm_param_group group;
static lm_param_table table = {.n = 2, .params = params, .elements = ELEMENTS, .n_groups = 1, .groups = &group};

static double rate(int step) /* as in the script */
{
  return step < 3 ? 1e-2 * (step + 1) / 3 : 8e-3;
}

/* The largest |a - b| of n values. */
static double distance(const float *a, const double *b, size_t n)
{
  double worst = 0;
  for (size_t i = 0; i < n; i++) worst = fmax(worst, isnan(a[i]) ? INFINITY : fabs((double)a[i] - b[i]));
  return worst;
}

/* Parameters of the flat space from the text: "start", or "gradient" with a step. */
static void load(const char *text, const char *what, int step, float *flat)
{
  for (int i = 0; i < 2; i++) {
    char name[64];
    double values[MOST];
    snprintf(name, sizeof name, step < 0 ? "%s %s" : "%s %s %d", what, names[i], step);
    read_values(text, name, params[i].count, values);
    for (size_t j = 0; j < params[i].count; j++) flat[params[i].offset + j] = (float)values[j];
  }
}

static const struct {
  const char *kind;
  lm_optimizer_config cfg;
} kinds[] = {
    {"adamw", {.kind = LM_OPTIMIZER_ADAMW, .adamw = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .decay = 0.1f}}},
    {"sgd", {.kind = LM_OPTIMIZER_SGD, .sgd = {.decay = 0.1f}}},
    {"sgd_momentum", {.kind = LM_OPTIMIZER_SGD, .sgd = {.momentum = 0.9f, .decay = 0.1f}}},
    {"sgd_nesterov", {.kind = LM_OPTIMIZER_SGD, .sgd = {.momentum = 0.9f, .nesterov = true, .decay = 0.1f}}},
};

/* How far weights and moments are from PyTorch's after the five updates. */
static double compare(const char *text, const char *kind, const float *masters, lm_optimizer *opt)
{
  double worst = 0, want[MOST];
  char name[96];
  lm_moment moments[LM_MOMENTS];
  int n = lm_optimizer_moments(opt, moments);
  for (int i = 0; i < 2; i++) {
    const lm_param *p = &params[i];
    snprintf(name, sizeof name, "%s %s", kind, names[i]);
    read_values(text, name, p->count, want);
    worst = fmax(worst, distance(masters + p->offset, want, p->count));
    for (int m = 0; m < n; m++) {
      snprintf(name, sizeof name, "%s %s %s", kind, names[i], moments[m].name);
      read_values(text, name, p->count, want);
      worst = fmax(worst, distance(moments[m].data + p->offset, want, p->count));
    }
  }
  return worst;
}

/* Weights of a type, updated five times; from step `stop` on by a second optimizer that got the first one's state. */
static void test_updates(const lm_kernels *k, const char *text, size_t which, lm_dtype t, int stop)
{
  static _Alignas(64) float start[ELEMENTS], gradient[ELEMENTS], flat[ELEMENTS];
  lm_optimizer *opt = NULL, *next;
  lm_error err;
  void *weights = t == LM_F32 ? (void *)flat : calloc(ELEMENTS, sizeof(uint16_t));
  load(text, "start", -1, start);
  LM_ASSERT(lm_optimizer_new(&opt, &table, weights, t, k, &kinds[which].cfg, &err) == LM_OK);
  memcpy(lm_optimizer_master(opt), start, sizeof start);
  for (int step = 0; step < STEPS; step++) {
    if (step == stop) {
      lm_moment from[LM_MOMENTS], to[LM_MOMENTS];
      LM_ASSERT(lm_optimizer_new(&next, &table, weights, t, k, &kinds[which].cfg, &err) == LM_OK);
      memcpy(lm_optimizer_master(next), lm_optimizer_master(opt), t == LM_F32 ? 0 : sizeof start);
      int n = lm_optimizer_moments(opt, from);
      lm_optimizer_moments(next, to);
      for (int m = 0; m < n; m++) memcpy(to[m].data, from[m].data, sizeof start);
      lm_optimizer_free(opt);
      opt = next;
    }
    load(text, "gradient", step, gradient);
    lm_optimizer_step(opt, gradient, (float)rate(step), 0.5f, step + 1);
  }
  double worst = compare(text, kinds[which].kind, lm_optimizer_master(opt), opt);
  bool rounded = true;
  for (size_t i = 0; t != LM_F32 && i < 35; i++)
    rounded = rounded && ((uint16_t *)weights)[i] == lm_half_from_f32(t, lm_optimizer_master(opt)[i]);
  tap_ok(worst < 2e-6 && rounded, "%s %s, weights in %s%s: %.1e from PyTorch", k->name, kinds[which].kind,
         lm_dtype_name(t), stop < STEPS ? ", state handed on" : "", worst);
  lm_optimizer_free(opt);
  if (t != LM_F32) free(weights);
}

/* Nothing to learn, lr 0.1, decay 0.5: decayed weights x 0.95 to an ulp, the others the same bits. */
static void test_decay(const lm_kernels *k, lm_optimizer_kind kind)
{
  static _Alignas(64) float w[ELEMENTS], g[ELEMENTS];
  const lm_optimizer_config cfg = {.kind = kind,
                                   .adamw = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .decay = 0.5f},
                                   .sgd = {.momentum = 0.9f, .decay = 0.5f}};
  lm_optimizer *opt;
  lm_error err;
  for (int i = 0; i < ELEMENTS; i++) w[i] = 1 + (float)i / 7;
  LM_ASSERT(lm_optimizer_new(&opt, &table, w, LM_F32, k, &cfg, &err) == LM_OK);
  lm_optimizer_step(opt, g, 0.1f, 1, 1);
  bool decayed = true, kept = true;
  for (int i = 0; i < ELEMENTS; i++) {
    float before = 1 + (float)i / 7;
    if (i < 35)
      decayed = decayed && fabs((double)w[i] - 0.95 * (double)before) <= 0.95 * (double)before * 0x1p-23;
    else
      kept = kept && w[i] == before; /* padding included */
  }
  tap_ok(decayed && kept, "%s: %s decays the matrix, and nothing else", k->name, kind ? "SGD" : "AdamW");
  lm_optimizer_free(opt);
}

/* Ten updates with the gradient 1, then one by an optimizer that got the moments, the count of updates, or both. By
 * hand, with m = 1 - 0.9^10 and v = 1 - 0.95^10 before it: both corrections cancel to 1; without the count they divide
 * by 0.1 and 0.05 what is nearly 1 and 0.43; without the moments they divide 0.1 and 0.05 by what is meant for eleven.
 */
static void test_handed_on(const lm_kernels *k, bool moments, bool count, double want)
{
  static _Alignas(64) float w[ELEMENTS], g[ELEMENTS];
  const lm_optimizer_config cfg = {.kind = LM_OPTIMIZER_ADAMW, .adamw = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f}};
  lm_optimizer *first, *second;
  lm_moment from[LM_MOMENTS], to[LM_MOMENTS];
  lm_error err;
  LM_ASSERT(lm_optimizer_new(&first, &table, w, LM_F32, k, &cfg, &err) == LM_OK);
  LM_ASSERT(lm_optimizer_new(&second, &table, w, LM_F32, k, &cfg, &err) == LM_OK);
  for (int i = 0; i < ELEMENTS; i++) g[i] = 1;
  for (int step = 1; step <= 10; step++) lm_optimizer_step(first, g, 0.01f, 1, step);
  memset(w, 0, sizeof w);
  int n = lm_optimizer_moments(first, from);
  lm_optimizer_moments(second, to);
  for (int i = 0; moments && i < n; i++) memcpy(to[i].data, from[i].data, sizeof w);
  lm_optimizer_step(second, g, 1, 1, count ? 11 : 1);
  tap_ok(fabs(-(double)w[0] - want) < 5e-4, "%s: the 11th update, %s moments and %s count handed on, is %.3f lr: %.4f",
         k->name, moments ? "the" : "no", count ? "the" : "no", want, -(double)w[0]);
  lm_optimizer_free(first);
  lm_optimizer_free(second);
}

int main(int argc, char **argv)
{
  lm_comm comm;
  lm_buffer text = {0};
  lm_error err;
  char path[4096];
  const lm_kernels *backends[2] = {&lm_kernels_ref};
  tap_begin(&comm, argc, argv);
  lm_param_table_group(&table);
  snprintf(path, sizeof path, "%s/tests/optim/torch_updates.txt", getenv("srcdir") ? getenv("srcdir") : ".");
  LM_ASSERT(lm_buffer_append(&text, "\n", 1, &err) == LM_OK);
  tap_ok(lm_file_read(path, &text, &err) == LM_OK, "%s is there", path);
  tap_ok(lm_kernels_select(&backends[1], LM_BACKEND_CPU, &err) == LM_OK, "there is a CPU backend");
  for (int b = 0; b < 2; b++) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
      test_updates(backends[b], text.data, i, LM_F32, STEPS);
      test_updates(backends[b], text.data, i, LM_F32, 2);
      test_updates(backends[b], text.data, i, LM_BF16, 3);
      test_updates(backends[b], text.data, i, LM_F16, STEPS);
    }
    test_decay(backends[b], LM_OPTIMIZER_ADAMW);
    test_decay(backends[b], LM_OPTIMIZER_SGD);
    test_handed_on(backends[b], true, true, 1);
    test_handed_on(backends[b], true, false, 2.337);
    test_handed_on(backends[b], false, true, 0.428);
  }
  lm_buffer_free(&text);
  return tap_end();
}
