/* tests/cpu/test_linear.c - the products of the CPU backend: right, and the same bits on any number of threads. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/kernels.h"
#include "tests/tap.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

/* Rows, outputs, inputs: less than a tile, whole tiles, tiles and a rest, long sums, one row as in generation. */
static const struct {
  size_t M;
  int N, K;
} shapes[] = {{1, 1, 1}, {3, 5, 7}, {256, 384, 64}, {300, 400, 96}, {17, 33, 2500}, {1, 770, 768}, {1500, 130, 50}};

static size_t elements(size_t a, size_t b)
{
  return a * b;
}

static void *random_tensor(lm_dtype t, size_t n, uint64_t seed)
{
  void *p = malloc(n * lm_dtype_size(t));
  LM_ASSERT(p != NULL);
  for (size_t i = 0; i < n; i++) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    float x = (float)(int32_t)(seed >> 32) / 2147483648.0F;
    if (t == LM_F32)
      ((float *)p)[i] = x;
    else
      ((uint16_t *)p)[i] = lm_half_from_f32(t, x);
  }
  return p;
}

typedef struct problem {
  lm_dtype t;
  size_t M;
  int N, K;
  void *x, *w, *bias, *dy;
} problem;

/* What the three operations give: y and dx in t, dw and dbias in f32, which start at 0.25. */
typedef struct answers {
  void *y, *dx;
  float *dw, *dbias;
} answers;

static answers compute(const lm_kernels *k, const problem *p)
{
  size_t N = (size_t)p->N, K = (size_t)p->K;
  answers a = {random_tensor(p->t, elements(p->M, N), 1), random_tensor(p->t, elements(p->M, K), 2),
               random_tensor(LM_F32, elements(N, K), 3), random_tensor(LM_F32, N, 4)};
  for (size_t i = 0; i < N * K; i++) a.dw[i] = 0.25F;
  for (size_t i = 0; i < N; i++) a.dbias[i] = 0.25F;
  k->linear_fwd(p->t, a.y, p->x, p->w, p->bias, p->M, p->N, p->K);
  k->linear_bwd_input(p->t, a.dx, p->dy, p->w, p->M, p->N, p->K);
  k->linear_bwd_weight(p->t, true, a.dw, a.dbias, p->dy, p->x, p->M, p->N, p->K);
  return a;
}

static void answers_free(answers *a)
{
  free(a->y);
  free(a->dx);
  free(a->dw);
  free(a->dbias);
}

/* The largest |a - b| over the root of the mean square of b. */
static double distance(lm_dtype t, const void *a, const void *b, size_t n)
{
  double worst = 0, squares = 0;
  for (size_t i = 0; i < n; i++) {
    double x = t == LM_F32 ? ((const float *)a)[i] : lm_half_to_f32(t, ((const uint16_t *)a)[i]);
    double y = t == LM_F32 ? ((const float *)b)[i] : lm_half_to_f32(t, ((const uint16_t *)b)[i]);
    if (isnan(x) || fabs(x - y) > worst) worst = isnan(x) ? INFINITY : fabs(x - y);
    squares += y * y;
  }
  return worst / (sqrt(squares / (double)n) + 1e-30);
}

static bool same_bits(const answers *a, const answers *b, const problem *p)
{
  size_t N = (size_t)p->N, K = (size_t)p->K, size = lm_dtype_size(p->t);
  return memcmp(a->y, b->y, elements(p->M, N) * size) == 0 && memcmp(a->dx, b->dx, elements(p->M, K) * size) == 0 &&
         memcmp(a->dw, b->dw, N * K * sizeof(float)) == 0 && memcmp(a->dbias, b->dbias, N * sizeof(float)) == 0;
}

static void check(const lm_kernels *cpu, const lm_kernels *ref, problem *p)
{
  size_t N = (size_t)p->N, K = (size_t)p->K;
  p->x = random_tensor(p->t, elements(p->M, K), 5);
  p->w = random_tensor(p->t, elements(N, K), 6);
  p->bias = p->N == 400 ? NULL : random_tensor(p->t, N, 7);
  p->dy = random_tensor(p->t, elements(p->M, N), 8);

  answers want = compute(ref, p), got[3];
  for (int i = 0; i < 3; i++) {
    omp_set_num_threads(i + 1);
    got[i] = compute(cpu, p);
  }
  /* f32 sums of up to 2500 products; a result in bf16 is rounded to 8 bits, in f16 to 11. */
  double f32 = 2e-5, rounded = p->t == LM_F32 ? f32 : p->t == LM_F16 ? 0.004 : 0.03;
  const char *name = lm_dtype_name(p->t);
  tap_ok(distance(p->t, got[0].y, want.y, elements(p->M, N)) < rounded, "%s %zux%dx%d forward", name, p->M, p->N, p->K);
  tap_ok(distance(p->t, got[0].dx, want.dx, elements(p->M, K)) < rounded, "%s %zux%dx%d gradient of the input", name,
         p->M, p->N, p->K);
  tap_ok(distance(LM_F32, got[0].dw, want.dw, N * K) < f32 && distance(LM_F32, got[0].dbias, want.dbias, N) < f32,
         "%s %zux%dx%d gradients of weight and bias, added", name, p->M, p->N, p->K);
  tap_ok(same_bits(&got[0], &got[1], p) && same_bits(&got[0], &got[2], p), "%s %zux%dx%d same bits on 1, 2, 3 threads",
         name, p->M, p->N, p->K);

  for (int i = 0; i < 3; i++) answers_free(&got[i]);
  answers_free(&want);
  free(p->x);
  free(p->w);
  free(p->bias);
  free(p->dy);
}

/* A prompt's text must not depend on the prompts beside it. */
static void check_few_rows(const lm_kernels *cpu, lm_dtype t)
{
  enum { N = 70, K = 133 };
  size_t size = lm_dtype_size(t);
  char *x = random_tensor(t, LM_FEW_ROWS * K, 5), *w = random_tensor(t, N * K, 6), *bias = random_tensor(t, N, 7);
  char *all = random_tensor(t, LM_FEW_ROWS * N, 1), *some = random_tensor(t, LM_FEW_ROWS * N, 2);
  bool same = true;
  cpu->linear_fwd(t, all, x, w, bias, LM_FEW_ROWS, N, K);
  for (size_t rows = 1; rows < LM_FEW_ROWS; rows++)
    for (size_t first = 0; first + rows <= LM_FEW_ROWS; first += rows) {
      cpu->linear_fwd(t, some, x + first * K * size, w, bias, rows, N, K);
      same = same && memcmp(some, all + first * N * size, rows * N * size) == 0;
    }
  tap_ok(same, "%s %s: up to %d rows, each has the bits it has alone", cpu->isa, lm_dtype_name(t), LM_FEW_ROWS);
  free(x), free(w), free(bias), free(all), free(some);
}

/* Every level that this CPU has: below the highest, bf16 is computed in f32, as f16 is on all. */
static void check_level(const char *isa, const lm_kernels *ref)
{
  static const lm_dtype types[] = {LM_F32, LM_BF16, LM_F16};
  const lm_kernels *cpu;
  lm_error err;
  setenv("MPILM_ISA", isa, 1);
  if (lm_kernels_select(&cpu, LM_BACKEND_CPU, &err) != LM_OK) {
    tap_ok(cpu == NULL && err.status == LM_EINVAL, "%s is not of this CPU or build: %s", isa, err.text);
    return;
  }
  tap_ok(strcmp(cpu->isa, isa) == 0 && cpu->linear_fwd != ref->linear_fwd, "products of the CPU, loops for %s", isa);
  for (int t = 0; t < 3; t++) check_few_rows(cpu, types[t]);
  for (int t = 0; t < 3; t++)
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
      check(cpu, ref, &(problem){.t = types[t], .M = shapes[i].M, .N = shapes[i].N, .K = shapes[i].K});
}

int main(int argc, char **argv)
{
  static const char *const levels[] = {"portable", "x86-64", "x86-64-v4"};
  lm_comm comm;
  lm_error err;
  const lm_kernels *ref, *cpu;
  tap_begin(&comm, argc, argv);
  LM_ASSERT(lm_kernels_select(&ref, LM_BACKEND_REF, &err) == LM_OK);
  for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) check_level(levels[i], ref);
  setenv("MPILM_ISA", "pentium", 1);
  tap_ok(lm_kernels_select(&cpu, LM_BACKEND_CPU, &err) == LM_EINVAL && strstr(err.text, "pentium") != NULL,
         "an unknown level is refused: %s", err.text);
  return tap_end();
}
