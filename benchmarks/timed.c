/* benchmarks/timed.c - a backend's table of operations with a clock around each. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "benchmarks/timed.h"

#include "base/clock.h"
#include <omp.h>
#include <string.h>

static const lm_kernels *inner;
static lm_timed rows[LM_TIMED_MOST];
static int n_rows;
static bool waits = true;

void lm_timed_wait(bool wait)
{
  waits = wait;
}

double lm_timed_clock(void)
{
  struct timespec t;
  if (omp_get_max_threads() > 1 || (inner != NULL && inner->on_device)) return lm_clock();
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void note(const char *name, double began, double flops, double bytes)
{
  if (inner->on_device && waits) inner->to_host(NULL, NULL, 0);
  double seconds = lm_timed_clock() - began;
  int i = 0;
  while (i < n_rows && strcmp(rows[i].name, name) != 0) i++;
  if (i == n_rows) {
    LM_ASSERT(n_rows < LM_TIMED_MOST);
    rows[n_rows++] = (lm_timed){.name = name};
  }
  rows[i].seconds += seconds;
  rows[i].flops += flops;
  rows[i].bytes += bytes;
  rows[i].calls++;
}

void lm_timed_reset(void)
{
  n_rows = 0;
}

int lm_timed_read(lm_timed *out)
{
  memcpy(out, rows, (size_t)n_rows * sizeof *rows);
  return n_rows;
}

/* A function of the table: its parameters, the same as arguments, and what a call is in FLOPs and bytes; s is the size
 * of an element. */
#define TIMED(name, parameters, arguments, flops, bytes)                                                               \
  static void name parameters                                                                                          \
  {                                                                                                                    \
    double began = lm_timed_clock();                                                                                   \
    inner->name arguments;                                                                                             \
    note(#name, began, flops, bytes);                                                                                  \
  }
#define S ((double)lm_dtype_size(t))

static double elements(const lm_attention *a, int heads)
{
  return (double)a->B * a->T * heads * a->D;
}

/* Two products over the causal half of the scores, 2 FLOPs each: 2 B T^2 H D in all; five of them backwards. */
static double score_flops(const lm_attention *a)
{
  return 2.0 * elements(a, a->H) * a->T;
}

TIMED(zero, (void *p, size_t bytes), (p, bytes), 0, (double)bytes)
TIMED(cast, (void *y, lm_dtype to, const void *x, lm_dtype t, size_t n), (y, to, x, t, n), 0,
      (double)n *(S + (double)lm_dtype_size(to)))
TIMED(embedding_fwd, (lm_dtype t, void *y, const int32_t *token, const void *wte, const void *wpe, int B, int T, int C),
      (t, y, token, wte, wpe, B, T, C), 0, S *B *T *C * 3)
TIMED(embedding_bwd, (lm_dtype t, float *dwte, float *dwpe, const void *dy, const int32_t *token, int B, int T, int C),
      (t, dwte, dwpe, dy, token, B, T, C), 0, (S + 16.0) * B * T * C)
TIMED(layernorm_fwd,
      (lm_dtype t, void *y, float *mean, float *rstd, void *sum, const void *x, const void *branch, const void *gain,
       const void *bias, size_t n, int C, float eps),
      (t, y, mean, rstd, sum, x, branch, gain, bias, n, C, eps), 0, S *(double)n *C *(branch != NULL ? 4 : 2))
TIMED(layernorm_bwd,
      (lm_dtype t, void *dx, float *dgain, float *dbias, const void *dy, const void *x, const float *mean,
       const float *rstd, const void *gain, size_t n, int C),
      (t, dx, dgain, dbias, dy, x, mean, rstd, gain, n, C), 0, S *(double)n *C * 4)
TIMED(rmsnorm_fwd,
      (lm_dtype t, void *y, float *rstd, void *sum, const void *x, const void *branch, const void *gain, size_t n,
       int C, float eps),
      (t, y, rstd, sum, x, branch, gain, n, C, eps), 0, S *(double)n *C *(branch != NULL ? 4 : 2))
TIMED(rmsnorm_bwd,
      (lm_dtype t, void *dx, float *dgain, const void *dy, const void *x, const float *rstd, const void *gain, size_t n,
       int C),
      (t, dx, dgain, dy, x, rstd, gain, n, C), 0, S *(double)n *C * 4)
TIMED(qk_norm_fwd,
      (lm_dtype t, void *y, float *rstd, const void *x, const void *q, const void *k, size_t n, int H, int H_kv, int D,
       float eps),
      (t, y, rstd, x, q, k, n, H, H_kv, D, eps), 0, S *(double)n *(H + 2 * H_kv) * D * 2)
TIMED(qk_norm_bwd,
      (lm_dtype t, void *d, float *dq, float *dk, const void *x, const float *rstd, const void *q, const void *k,
       size_t n, int H, int H_kv, int D),
      (t, d, dq, dk, x, rstd, q, k, n, H, H_kv, D), 0, S *(double)n *(H + 2 * H_kv) * D * 3)
TIMED(rope, (lm_dtype t, void *qkv, const float *angles, int first, bool inverse, int B, int T, int H, int H_kv, int D),
      (t, qkv, angles, first, inverse, B, T, H, H_kv, D), 0, S * 2.0 * B * T * (H + H_kv) * D)
TIMED(linear_fwd, (lm_dtype t, void *y, const void *x, const void *w, const void *bias, size_t M, int N, int K),
      (t, y, x, w, bias, M, N, K), 2.0 * (double)M * N * K, S *((double)M *(N + K) + (double)N * K))
TIMED(linear_bwd_input, (lm_dtype t, void *dx, const void *dy, const void *w, size_t M, int N, int K),
      (t, dx, dy, w, M, N, K), 2.0 * (double)M * N * K, S *((double)M *(N + K) + (double)N * K))
TIMED(linear_bwd_weight,
      (lm_dtype t, bool add, float *dw, float *dbias, const void *dy, const void *x, size_t M, int N, int K),
      (t, add, dw, dbias, dy, x, M, N, K), 2.0 * (double)M * N * K, S *(double)M *(N + K) + (add ? 8.0 : 4.0) * N * K)
TIMED(gelu_fwd, (lm_dtype t, void *y, const void *x, size_t n), (t, y, x, n), 0, S *(double)n * 2)
TIMED(gelu_bwd, (lm_dtype t, void *dx, const void *dy, const void *x, size_t n), (t, dx, dy, x, n), 0, S *(double)n * 3)
TIMED(swiglu_fwd, (lm_dtype t, void *y, const void *x, size_t n, int F), (t, y, x, n, F), 0, S *(double)n *F * 3)
TIMED(swiglu_bwd, (lm_dtype t, void *dx, const void *dy, const void *x, size_t n, int F), (t, dx, dy, x, n, F), 0,
      S *(double)n *F * 5)
TIMED(dropout, (lm_dtype t, void *y, const void *x, const lm_dropout *how, int B, int T, int C),
      (t, y, x, how, B, T, C), 0, S * 2.0 * B * T * C)
TIMED(attention_fwd, (lm_dtype t, void *y, float *lse, const void *qkv, const lm_attention *a), (t, y, lse, qkv, a),
      score_flops(a), S *elements(a, 2 * a->H + 2 * a->H_kv))
TIMED(attention_bwd,
      (lm_dtype t, void *dqkv, const void *dy, const void *y, const float *lse, const void *qkv, const lm_attention *a),
      (t, dqkv, dy, y, lse, qkv, a), 2.5 * score_flops(a), S *elements(a, 4 * a->H + 4 * a->H_kv))
TIMED(cross_entropy,
      (lm_dtype t, float *loss, void *z, const int32_t *target, const lm_objective *o, size_t n, int V, int Vp,
       float scale),
      (t, loss, z, target, o, n, V, Vp, scale), 0, S *(double)n *Vp *(scale != 0 ? 2 : 1))
TIMED(adamw,
      (lm_dtype t, float *w, float *m, float *v, const float *g, void *w16, size_t n, const lm_adamw_config *cfg,
       float lr, float scale, int64_t step),
      (t, w, m, v, g, w16, n, cfg, lr, scale, step), 0, (double)n *(28 + (w16 != NULL ? 2 : 0)))
TIMED(sgd,
      (lm_dtype t, float *w, float *m, const float *g, void *w16, size_t n, const lm_sgd_config *cfg, float lr,
       float scale),
      (t, w, m, g, w16, n, cfg, lr, scale), 0, (double)n *(20 + (w16 != NULL ? 2 : 0)))

TIMED(sum, (double *sum, const float *x, size_t n), (sum, x, n), 0, 4.0 * (double)n)
TIMED(sum_squares, (double *sum, const float *x, size_t n), (sum, x, n), 0, 4.0 * (double)n)

static bool linear_gelu_fwd(lm_dtype t, void *y, void *z, const void *x, const void *w, const void *bias, size_t M,
                            int N, int K)
{
  double began = lm_timed_clock();
  bool done = inner->linear_gelu_fwd(t, y, z, x, w, bias, M, N, K);
  if (done) note("linear_gelu_fwd", began, 2.0 * (double)M * N * K, S * ((double)M * (2.0 * N + K) + (double)N * K));
  return done;
}

static bool linear_gelu_bwd(lm_dtype t, void *dz, const void *dy, const void *w, const void *z, size_t M, int N, int K)
{
  double began = lm_timed_clock();
  bool done = inner->linear_gelu_bwd(t, dz, dy, w, z, M, N, K);
  if (done) note("linear_gelu_bwd", began, 2.0 * (double)M * N * K, S * ((double)M * (N + 2.0 * K) + (double)N * K));
  return done;
}

static double elements_of(const lm_slices *s)
{
  double n = 0;
  for (size_t i = 0; i < s->n; i++) n += (double)s->host[i].n;
  return n;
}

TIMED(adamw_all,
      (lm_dtype t, const lm_slices *s, const float *g, const lm_adamw_config *cfg, float lr, float scale, int64_t step),
      (t, s, g, cfg, lr, scale, step), 0, elements_of(s) * (28 + (t != LM_F32 ? 2 : 0)))
TIMED(sgd_all, (lm_dtype t, const lm_slices *s, const float *g, const lm_sgd_config *cfg, float lr, float scale),
      (t, s, g, cfg, lr, scale), 0, elements_of(s) * (20 + (t != LM_F32 ? 2 : 0)))
TIMED(sum_squares_all, (double *sums, const lm_slices *s, const float *g), (sums, s, g), 0, 4 * elements_of(s))

const lm_kernels *lm_timed_table(const lm_kernels *k)
{
  static lm_kernels table;
  inner = k;
  table = *k;
#define SET(name) table.name = name
  SET(zero), SET(cast), SET(embedding_fwd), SET(embedding_bwd), SET(layernorm_fwd), SET(layernorm_bwd);
  SET(rmsnorm_fwd), SET(rmsnorm_bwd), SET(qk_norm_fwd), SET(qk_norm_bwd), SET(rope);
  SET(linear_fwd), SET(linear_bwd_input), SET(linear_bwd_weight), SET(gelu_fwd), SET(gelu_bwd);
  SET(swiglu_fwd), SET(swiglu_bwd), SET(dropout), SET(attention_fwd), SET(attention_bwd), SET(cross_entropy);
  SET(adamw), SET(sgd), SET(sum), SET(sum_squares);
  if (k->linear_gelu_fwd != NULL) SET(linear_gelu_fwd), SET(linear_gelu_bwd);
  if (k->on_device) SET(adamw_all), SET(sgd_all), SET(sum_squares_all);
  return &table;
}
