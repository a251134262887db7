/* tests/kernels/test_gradients.c - every backward of the reference backend against finite differences. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/kernels.h"
#include "tests/kernels/random.h"
#include "tests/tap.h"

#include <math.h>
#include <string.h>

/* Inputs are multiples of 2^-10 and the step is 2^-5, so that x + h is exact in f32. The stencil's error is
 * h^4/30 f^(5), 3e-8 f^(5); the rounding of the outputs to f32 gives some 1e-6. A wrong formula is off by far more. */
static const float STEP = 0x1p-5f;
static const double TOLERANCE = 1e-5;
enum { MAX_ELEMENTS = 256 };

static float input(uint64_t seed, size_t i)
{
  return (float)(rint(random_in(seed, i, -1, 1) * 1024) / 1024);
}

static void fill(float *x, size_t n, uint64_t seed)
{
  for (size_t i = 0; i < n; i++) x[i] = input(seed, i);
}

/* The scalar of which gradients are taken: sum_i weight_i y_i. */
static double weighted_sum(const float *y, const float *weight, size_t n)
{
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += (double)weight[i] * (double)y[i];
  return sum;
}

static double derivative(double (*f)(void), float *x)
{
  static const struct {
    float at;
    double weight;
  } stencil[] = {{-2, 1}, {-1, -8}, {1, 8}, {2, -1}}; /* / 12 h */
  const float x0 = *x;
  double sum = 0;
  for (int i = 0; i < 4; i++) {
    *x = x0 + stencil[i].at * STEP;
    sum += stencil[i].weight * f();
  }
  *x = x0;
  return sum / (12 * (double)STEP);
}

/* ok if gradient[i] - before is df/dx[i] for all i: `before` is what the backward found there and had to add to. */
static void check(const char *name, double (*f)(void), float *x, const float *gradient, float before, size_t n)
{
  double worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < n; i++) {
    double want = derivative(f, x + i), error = fabs((double)gradient[i] - (double)before - want) / fmax(1, fabs(want));
    if (!(error <= worst)) worst = error, at = i; /* also where it is NaN */
    if (isnan(worst)) break;
  }
  tap_ok(n > 0 && n <= MAX_ELEMENTS && worst <= TOLERANCE, "%s: %zu elements, largest error %.1e at %zu", name, n,
         worst, at);
}

static const lm_kernels *const k = &lm_kernels_ref;
static float y[MAX_ELEMENTS], dy[MAX_ELEMENTS]; /* dy is the weight of each output in the scalar */

static void set(float *x, size_t n, float value)
{
  for (size_t i = 0; i < n; i++) x[i] = value;
}

/* ---- embedding ---- */
enum { E_B = 2, E_T = 3, E_C = 4, E_V = 5, E_N = E_B * E_T * E_C };
static float wte[E_V * E_C], wpe[(E_T + 1) * E_C];
static const int32_t token[E_B * E_T] = {4, 0, 4, 2, 4, 2};

static double embedding(void)
{
  k->embedding_fwd(LM_F32, y, token, wte, wpe, E_B, E_T, E_C);
  return weighted_sum(y, dy, E_N);
}

static void test_embedding(void)
{
  float dwte[E_V * E_C], dwpe[(E_T + 1) * E_C];
  fill(wte, E_V * E_C, 1), fill(wpe, (E_T + 1) * E_C, 2), fill(dy, E_N, 3);
  set(dwte, E_V * E_C, 0.25f), set(dwpe, (E_T + 1) * E_C, 0.25f);
  k->embedding_bwd(LM_F32, dwte, dwpe, dy, token, E_B, E_T, E_C);
  check("embedding: dwte", embedding, wte, dwte, 0.25f, E_V * E_C);
  check("embedding: dwpe", embedding, wpe, dwpe, 0.25f, (E_T + 1) * E_C);
}

/* ---- layernorm: of x + branch, so the gradient of both is dx ---- */
enum { N_ROWS = 3, N_C = 7, N_N = N_ROWS * N_C };
static float nx[N_N], branch[N_N], nsum[N_N], gain[N_C], nbias[N_C], mean[N_ROWS], rstd[N_ROWS];

static double layernorm(void)
{
  k->layernorm_fwd(LM_F32, y, mean, rstd, nsum, nx, branch, gain, nbias, N_ROWS, N_C, 1e-5f);
  return weighted_sum(y, dy, N_N);
}

static void test_layernorm(void)
{
  float dx[N_N], dgain[N_C], dbias[N_C];
  for (size_t i = 0; i < N_N; i++) nx[i] = 4 * input(4, i); /* a variance well above h^2 */
  fill(branch, N_N, 5), fill(gain, N_C, 6), fill(nbias, N_C, 7), fill(dy, N_N, 8);
  set(dx, N_N, 0.25f), set(dgain, N_C, 0.25f), set(dbias, N_C, 0.25f);
  layernorm();
  k->layernorm_bwd(LM_F32, dx, dgain, dbias, dy, nsum, mean, rstd, gain, N_ROWS, N_C);
  check("layernorm: dx", layernorm, nx, dx, 0.25f, N_N);
  check("layernorm: dx is also the branch's", layernorm, branch, dx, 0.25f, N_N);
  check("layernorm: dgain", layernorm, gain, dgain, 0.25f, N_C);
  check("layernorm: dbias", layernorm, nbias, dbias, 0.25f, N_C);
}

/* ---- linear ---- */
enum { L_M = 3, L_N = 4, L_K = 5 };
static float lx[L_M * L_K], lw[L_N * L_K], lbias[L_N];

static double linear(void)
{
  k->linear_fwd(LM_F32, y, lx, lw, lbias, L_M, L_N, L_K);
  return weighted_sum(y, dy, L_M * L_N);
}

static void test_linear(void)
{
  float dx[L_M * L_K], dw[L_N * L_K], dbias[L_N];
  fill(lx, L_M * L_K, 9), fill(lw, L_N * L_K, 10), fill(lbias, L_N, 11), fill(dy, L_M * L_N, 12);
  set(dw, L_N * L_K, 0.25f), set(dbias, L_N, 0.25f), set(dx, L_M * L_K, NAN); /* dx is written, not added to */
  k->linear_bwd_input(LM_F32, dx, dy, lw, L_M, L_N, L_K);
  k->linear_bwd_weight(LM_F32, true, dw, dbias, dy, lx, L_M, L_N, L_K);
  check("linear: dx", linear, lx, dx, 0, L_M * L_K);
  check("linear: dw", linear, lw, dw, 0.25f, L_N * L_K);
  check("linear: dbias", linear, lbias, dbias, 0.25f, L_N);
}

/* ---- gelu ---- */
enum { G_N = 65 };
static float gx[G_N];

static double gelu(void)
{
  k->gelu_fwd(LM_F32, y, gx, G_N);
  return weighted_sum(y, dy, G_N);
}

static void test_gelu(void)
{
  float dx[G_N];
  for (size_t i = 0; i < G_N; i++) gx[i] = (float)(0.25 * (double)i - 8), dy[i] = input(13, i);
  set(dx, G_N, NAN);
  k->gelu_bwd(LM_F32, dx, dy, gx, G_N);
  check("gelu: dx", gelu, gx, dx, 0, G_N);
}

/* ---- attention: four query heads on two key/value heads ---- */
enum { A_B = 2, A_T = 4, A_H = 4, A_HKV = 2, A_D = 3, A_N = A_B * A_T * (A_H + 2 * A_HKV) * A_D };
static float qkv[A_N], lse[A_B * A_H * A_T];

static lm_attention shape = {.B = A_B, .T = A_T, .H = A_H, .H_kv = A_HKV, .D = A_D};

static double attention(void)
{
  k->attention_fwd(LM_F32, y, lse, qkv, &shape);
  return weighted_sum(y, dy, A_B * A_T * A_H * A_D);
}

static void check_attention(const char *name)
{
  float dqkv[A_N];
  for (size_t i = 0; i < A_N; i++) qkv[i] = 2 * input(14, i);
  fill(dy, A_B * A_T * A_H * A_D, 15), set(dqkv, A_N, NAN);
  attention();
  k->attention_bwd(LM_F32, dqkv, dy, y, lse, qkv, &shape);
  check(name, attention, qkv, dqkv, 0, A_N);
}

static void test_attention(void)
{
  static const int32_t start[A_B * A_T] = {0, 0, 2, 2, 0, 1, 1, 3};
  static const lm_dropout dropout = {.rate = 0.25f, .seed = 1, .sample = 2, .place = 3};
  check_attention("attention: dqkv");
  shape.start = start;
  check_attention("attention within documents: dqkv");
  shape.dropout = &dropout;
  check_attention("attention within documents, with dropout: dqkv");
}

/* ---- rmsnorm: of x + branch ---- */

static double rmsnorm(void)
{
  k->rmsnorm_fwd(LM_F32, y, rstd, nsum, nx, branch, gain, N_ROWS, N_C, 1e-5f);
  return weighted_sum(y, dy, N_N);
}

static void test_rmsnorm(void)
{
  float dx[N_N], dgain[N_C];
  for (size_t i = 0; i < N_N; i++) nx[i] = 4 * input(4, i);
  fill(branch, N_N, 5), fill(gain, N_C, 6), fill(dy, N_N, 8);
  set(dx, N_N, 0.25f), set(dgain, N_C, 0.25f);
  rmsnorm();
  k->rmsnorm_bwd(LM_F32, dx, dgain, dy, nsum, rstd, gain, N_ROWS, N_C);
  check("rmsnorm: dx", rmsnorm, nx, dx, 0.25f, N_N);
  check("rmsnorm: dx is also the branch's", rmsnorm, branch, dx, 0.25f, N_N);
  check("rmsnorm: dgain", rmsnorm, gain, dgain, 0.25f, N_C);
}

/* ---- norms of heads, rotary positions: the shapes of attention ---- */
enum { Q_D = 4, Q_ROWS = A_B * A_T, Q_N = Q_ROWS * (A_H + 2 * A_HKV) * Q_D };
static float heads[Q_N], q_gain[Q_D], k_gain[Q_D], head_rstd[Q_ROWS * (A_H + A_HKV)], angles[(A_T + 2) * Q_D];

static double qk_norm(void)
{
  k->qk_norm_fwd(LM_F32, y, head_rstd, heads, q_gain, k_gain, Q_ROWS, A_H, A_HKV, Q_D, 1e-5f);
  return weighted_sum(y, dy, Q_N);
}

static void test_qk_norm(void)
{
  float dx[Q_N], dq[Q_D], dk[Q_D];
  for (size_t i = 0; i < Q_N; i++) heads[i] = 4 * input(17, i) + 2;
  fill(q_gain, Q_D, 18), fill(k_gain, Q_D, 19), fill(dy, Q_N, 20);
  set(dq, Q_D, 0.25f), set(dk, Q_D, 0.25f);
  qk_norm();
  memcpy(dx, dy, sizeof dx);
  k->qk_norm_bwd(LM_F32, dx, dq, dk, heads, head_rstd, q_gain, k_gain, Q_ROWS, A_H, A_HKV, Q_D);
  check("qk_norm: dx", qk_norm, heads, dx, 0, Q_N);
  check("qk_norm: dq_gain", qk_norm, q_gain, dq, 0.25f, Q_D);
  check("qk_norm: dk_gain", qk_norm, k_gain, dk, 0.25f, Q_D);
}

static double rope(void)
{
  memcpy(y, heads, sizeof heads);
  k->rope(LM_F32, y, angles, 2, false, A_B, A_T, A_H, A_HKV, Q_D);
  return weighted_sum(y, dy, Q_N);
}

static void test_rope(void)
{
  float dx[Q_N];
  fill(heads, Q_N, 21), fill(angles, (A_T + 2) * Q_D, 22), fill(dy, Q_N, 23);
  memcpy(dx, dy, sizeof dx);
  k->rope(LM_F32, dx, angles, 2, true, A_B, A_T, A_H, A_HKV, Q_D);
  check("rope: dqkv", rope, heads, dx, 0, Q_N);
}

/* ---- swiglu ---- */
enum { S_ROWS = 5, S_F = 13 };
static float sx[2 * S_ROWS * S_F];

static double swiglu(void)
{
  k->swiglu_fwd(LM_F32, y, sx, S_ROWS, S_F);
  return weighted_sum(y, dy, S_ROWS * S_F);
}

static void test_swiglu(void)
{
  float dx[2 * S_ROWS * S_F];
  for (size_t i = 0; i < 2 * S_ROWS * S_F; i++) sx[i] = 4 * input(24, i);
  fill(dy, S_ROWS * S_F, 25), set(dx, 2 * S_ROWS * S_F, NAN);
  k->swiglu_bwd(LM_F32, dx, dy, sx, S_ROWS, S_F);
  check("swiglu: dx", swiglu, sx, dx, 0, 2 * S_ROWS * S_F);
}

/* ---- dropout ---- */
static const lm_dropout quarter = {.rate = 0.25f, .seed = 7, .sample = 3, .place = 1};

static double dropout(void)
{
  k->dropout(LM_F32, y, nx, &quarter, 1, N_ROWS, N_C);
  return weighted_sum(y, dy, N_N);
}

static void test_dropout(void)
{
  float dx[N_N];
  fill(nx, N_N, 26), fill(dy, N_N, 27);
  k->dropout(LM_F32, dx, dy, &quarter, 1, N_ROWS, N_C);
  check("dropout: dx", dropout, nx, dx, 0, N_N);
}

/* ---- cross-entropy: its gradient is of the sum of the losses ---- */
enum { X_ROWS = 4, X_V = 6, X_VP = 8, X_N = X_ROWS * X_VP };
static float logits[X_N];
static const int32_t target[X_ROWS] = {0, 5, -1, 3};

static lm_objective objective;

static double cross_entropy(void)
{
  float losses[X_ROWS];
  k->cross_entropy(LM_F32, losses, logits, target, &objective, X_ROWS, X_V, X_VP, 0);
  return weighted_sum(losses, (float[]){1, 1, 1, 1}, X_ROWS);
}

static void check_cross_entropy(const char *name, float z_loss, float label_smoothing)
{
  float dz[X_N], losses[X_ROWS];
  objective = (lm_objective){.z_loss = z_loss, .label_smoothing = label_smoothing};
  for (size_t i = 0; i < X_N; i++) dz[i] = logits[i] = 2 * input(16, i);
  k->cross_entropy(LM_F32, losses, dz, target, &objective, X_ROWS, X_V, X_VP, 1);
  check(name, cross_entropy, logits, dz, 0, X_N);
}

static void test_cross_entropy(void)
{
  check_cross_entropy("cross_entropy: dz", 0, 0);
  check_cross_entropy("cross_entropy with label smoothing: dz", 0, 0.25f);
  check_cross_entropy("cross_entropy with z-loss and label smoothing: dz", 0.125f, 0.25f);
}

int main(int argc, char **argv)
{
  lm_comm comm;
  tap_begin(&comm, argc, argv);
  test_embedding();
  test_layernorm();
  test_linear();
  test_gelu();
  test_rmsnorm();
  test_qk_norm();
  test_rope();
  test_swiglu();
  test_dropout();
  test_attention();
  test_cross_entropy();
  return tap_end();
}
