/* tests/kernels/test_values.c - operations whose results a person can work out, on each backend of the host. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/kernels.h"
#include "tests/kernels/backends.h"
#include "tests/tap.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const lm_kernels *k;
static char name[64]; /* of k, for the messages */

static bool near_all(const float *got, const double *want, size_t n, double tolerance)
{
  for (size_t i = 0; i < n; i++)
    if (!(fabs((double)got[i] - want[i]) <= tolerance * fmax(1, fabs(want[i])))) return false; /* NaN is not near */
  return true;
}

static float float_of(uint32_t bits)
{
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static void test_cast(void)
{
  static const struct {
    uint32_t f32;
    uint16_t bf16;
  } facts[] = {
      {0x3f800000, 0x3f80}, {0x3f807fff, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81},
      {0x3f818000, 0x3f82}, {0xbf808000, 0xbf80}, {0x7f7f7fff, 0x7f7f}, {0x7f7f8000, 0x7f80},
      {0x7f7fffff, 0x7f80}, {0xff800000, 0xff80}, {0x80000000, 0x8000}, {0x00000001, 0x0000},
      {0x00008000, 0x0000}, {0x00018000, 0x0002}, {0x7f800001, 0x7fc0}, {0x7fc00001, 0x7fc0},
  };
  enum { N = sizeof facts / sizeof facts[0], REPEATS = 5 }; /* long enough for a vector loop and its rest */
  float f[N * REPEATS], back[1 << 16];
  lm_bf16 h[N * REPEATS], every[1 << 16], again[1 << 16];
  for (size_t i = 0; i < N * REPEATS; i++) f[i] = float_of(facts[i % N].f32);
  k->cast(h, LM_BF16, f, LM_F32, N * REPEATS);
  for (size_t i = 0; i < N; i++) {
    bool same = true;
    for (size_t j = i; j < N * REPEATS; j += N) same = same && h[j] == facts[i].bf16;
    tap_ok(same, "%s: f32 %08x becomes bf16 %04x", name, facts[i].f32, facts[i].bf16);
  }
  for (size_t i = 0; i < 1 << 16; i++) every[i] = (lm_bf16)i;
  k->cast(back, LM_F32, every, LM_BF16, 1 << 16);
  k->cast(again, LM_BF16, back, LM_F32, 1 << 16);
  size_t wrong = 0;
  for (size_t i = 0; i < 1 << 16; i++) {
    bool nan = (i & 0x7fff) > 0x7f80;
    wrong += nan ? again[i] != (i | 0x40) : again[i] != i || float_of((uint32_t)i << 16) != back[i];
  }
  tap_ok(wrong == 0, "%s: every bf16 but the signalling NaNs survives f32 and back", name);
}

/* The number that a finite, positive binary16 stands for, from the definition: IEEE 754, 3.4. */
static float value_of_f16(unsigned h)
{
  int exponent = (int)(h >> 10), fraction = (int)(h & 0x3ff);
  return exponent == 0 ? ldexpf((float)fraction, -24) : ldexpf((float)(1024 + fraction), exponent - 25);
}

/* Between two neighbours: the middle goes to the even one, and the next float on either side to the nearer. 65536 takes
 * the place of the number after the largest. */
static void test_cast_f16(void)
{
  enum { FINITE = 0x7c00, N = 1 << 16 };
  static float f[N], f3[3 * FINITE];
  static lm_f16 h[N], h3[3 * FINITE];
  size_t wrong = 0, unequal = 0;
  for (size_t i = 0; i < N; i++) h[i] = (lm_f16)i;
  k->cast(f, LM_F32, h, LM_F16, N);
  for (unsigned i = 0; i < N; i++) {
    unsigned magnitude = i & 0x7fff;
    float want = magnitude < FINITE ? value_of_f16(magnitude) : magnitude == FINITE ? INFINITY : NAN;
    wrong += isnan(want) ? !isnan(f[i]) : f[i] != (i >> 15 ? -want : want) || (signbit(f[i]) != 0) != (i >> 15 != 0);
  }
  tap_ok(wrong == 0, "%s: every f16 is what IEEE 754 says", name);
  k->cast(h, LM_F16, f, LM_F32, N);
  for (unsigned i = 0; i < N; i++) unequal += (i & 0x7fff) > FINITE ? (h[i] & 0x7e00) != 0x7e00 : h[i] != i;
  tap_ok(unequal == 0, "%s: every f16 survives f32 and back, a NaN as a quiet one", name);
  for (unsigned i = 0; i < FINITE; i++) {
    float middle = (value_of_f16(i) + (i + 1 == FINITE ? 65536 : value_of_f16(i + 1))) / 2;
    f3[3 * i] = middle;
    f3[3 * i + 1] = nextafterf(middle, 0);
    f3[3 * i + 2] = nextafterf(middle, INFINITY);
  }
  k->cast(h3, LM_F16, f3, LM_F32, 3 * FINITE);
  wrong = 0;
  for (unsigned i = 0; i < FINITE; i++)
    wrong += h3[3 * i] != i + (i & 1) || h3[3 * i + 1] != i || h3[3 * i + 2] != i + 1;
  tap_ok(wrong == 0, "%s: rounds to nearest, ties to even, in every gap of f16", name);
  const float edges[] = {65519.996f, 65520, -1e30f, FLT_MAX, INFINITY, 1e-30f, -0.0f};
  static const lm_f16 want[] = {0x7bff, 0x7c00, 0xfc00, 0x7c00, 0x7c00, 0x0000, 0x8000};
  k->cast(h, LM_F16, edges, LM_F32, 7);
  tap_ok(memcmp(h, want, sizeof want) == 0, "%s: f16 ends at 65504 and at 6e-8", name);
}

/* Two steps by hand: g' = 2 each, momentum 0.5, lr 0.25, w 8, decay 0.125. */
static void test_sgd(void)
{
  static const struct {
    const char *kind;
    bool momentum, nesterov;
    float w; /* after the second step */
  } known[] = {
      /* u = 2, 2: w = 8 - (2 + 1)/4 = 7.25; 7.25 - (2 + 0.90625)/4 */
      {"without momentum", false, false, 6.5234375f},
      /* m = 2, 3: 7.25; 7.25 - (3 + 0.90625)/4 */
      {"with momentum", true, false, 6.2734375f},
      /* u = 2 + 1, 2 + 1.5: 8 - (3 + 1)/4 = 7; 7 - (3.5 + 0.875)/4 */
      {"with Nesterov's momentum", true, true, 5.90625f},
  };
  for (size_t i = 0; i < 3; i++) {
    const lm_sgd_config cfg = {.momentum = 0.5f, .nesterov = known[i].nesterov, .decay = 0.125f};
    float w = 8, m = 0, g = 8;
    lm_f16 w16;
    for (int step = 0; step < 2; step++)
      k->sgd(LM_F16, &w, known[i].momentum ? &m : NULL, &g, &w16, 1, &cfg, 0.25f, 0.25f);
    tap_ok(w == known[i].w && w16 == lm_f16_from_f32(w), "%s: SGD %s", name, known[i].kind);
  }
}

static void test_embedding(void)
{
  const float wte[] = {1, 2, 3, 4, 5, 6}, wpe[] = {10, 20, 30, 40}, dy[] = {1, 2, 3, 4, 5, 6, 7, 8};
  const int32_t token[] = {2, 0, 2, 2};
  float y[8], dwte[6] = {100}, dwpe[4] = {0, 0, 0, 1000};
  k->embedding_fwd(LM_F32, y, token, wte, wpe, 2, 2, 2);
  tap_ok(near_all(y, (double[]){15, 26, 31, 42, 15, 26, 35, 46}, 8, 0), "%s: embedding adds token and position", name);
  k->embedding_fwd(LM_F32, y, token, wte, NULL, 2, 2, 2);
  tap_ok(near_all(y, (double[]){5, 6, 1, 2, 5, 6, 5, 6}, 8, 0), "%s: embedding without positions", name);
  k->embedding_bwd(LM_F32, dwte, dwpe, dy, token, 2, 2, 2);
  tap_ok(near_all(dwte, (double[]){103, 4, 0, 0, 13, 16}, 6, 0), "%s: a token that repeats adds up", name);
  tap_ok(near_all(dwpe, (double[]){6, 8, 10, 1012}, 4, 0), "%s: positions add up over sequences", name);
}

static void test_layernorm(void)
{
  const float x[] = {1, 2, 3, 4}, half[] = {0.5f, 1, 1.5f, 2}, gain[] = {1, 1, 2, 1}, bias[] = {0, 1, 0, 0};
  const double r = sqrt(0.5); /* variance 1.25, eps 0.75 */
  float y[4], sum[4], mean, rstd;
  k->layernorm_fwd(LM_F32, y, &mean, &rstd, NULL, x, NULL, gain, bias, 1, 4, 0.75f);
  tap_ok(near_all(y, (double[]){-1.5 * r, 1 - 0.5 * r, r, 1.5 * r}, 4, 1e-6), "%s: layernorm of 1 2 3 4", name);
  tap_near(mean, 2.5, 1e-7, "%s: its mean", name);
  tap_near(rstd, r, 1e-6, "%s: its rstd", name);
  float z[4];
  k->layernorm_fwd(LM_F32, z, &mean, &rstd, sum, half, half, gain, bias, 1, 4, 0.75f);
  tap_ok(near_all(sum, (double[]){1, 2, 3, 4}, 4, 0) && memcmp(y, z, sizeof y) == 0, "%s: the residual is added first",
         name);
  float dx[4] = {7, 7, 7, 7}, dgain[4] = {0}, zero[4] = {0};
  k->layernorm_bwd(LM_F32, dx, dgain, NULL, zero, x, &mean, &rstd, gain, 1, 4);
  tap_ok(near_all(dx, (double[]){7, 7, 7, 7}, 4, 0), "%s: no gradient adds nothing to the residual's", name);
}

static void test_rmsnorm(void)
{
  const float x[] = {3, 4}, gain[] = {1, 2}, half[] = {1, 0};
  float y[2], sum[2], rstd;
  k->rmsnorm_fwd(LM_F32, y, &rstd, NULL, x, NULL, gain, 1, 2, 3.5f); /* the mean square is 12.5 */
  tap_ok(near_all(y, (double[]){0.75, 2}, 2, 1e-7), "%s: rmsnorm of 3 4", name);
  tap_near(rstd, 0.25, 1e-7, "%s: its scale", name);
  k->rmsnorm_fwd(LM_F32, y, &rstd, sum, half, x, gain, 1, 2, 0); /* 4 4 */
  tap_ok(near_all(sum, (double[]){4, 4}, 2, 0) && near_all(y, (double[]){1, 2}, 2, 1e-7), "%s: with a residual", name);
}

/* Two query heads on one key head, D = 2: each head is normed by itself, the value stays. */
static void test_heads(void)
{
  const float x[] = {3, 4, -30, 40, 6, 8, 7, 9}, q_gain[] = {1, 2}, k_gain[] = {10, 10};
  const double r = sqrt(12.5);
  float y[8], rstd[3];
  k->qk_norm_fwd(LM_F32, y, rstd, x, q_gain, k_gain, 1, 2, 1, 2, 0);
  tap_ok(near_all(y, (double[]){3 / r, 8 / r, -3 / r, 8 / r, 30 / r, 40 / r, 7, 9}, 8, 1e-6), "%s: norms of heads",
         name);
  /* A quarter turn of the first pair, (1,2) -> (-2,1); D = 4, so the partner of d is d + 2. The other pair stays. */
  float heads[] = {1, 5, 2, 6, 1, 5, 2, 6, 1, 5, 2, 6};
  const float angles[] = {9, 9, 9, 9, 0, 1, 1, 0};
  k->rope(LM_F32, heads, angles, 1, false, 1, 1, 1, 1, 4);
  tap_ok(near_all(heads, (double[]){-2, 5, 1, 6, -2, 5, 1, 6, 1, 5, 2, 6}, 12, 0), "%s: queries and keys turn", name);
  k->rope(LM_F32, heads, angles, 1, true, 1, 1, 1, 1, 4);
  tap_ok(near_all(heads, (double[]){1, 5, 2, 6, 1, 5, 2, 6, 1, 5, 2, 6}, 12, 0), "%s: and back", name);
}

static void test_swiglu(void)
{
  const float l3 = 1.0986123f, x[] = {l3, -l3, 0, -1000, 4, 8, 5, 3}; /* 1 / (1 + exp(-ln 3)) = 3/4 */
  float y[4];
  k->swiglu_fwd(LM_F32, y, x, 1, 4);
  tap_ok(near_all(y, (double[]){3 * log(3), -2 * log(3), 0, 0}, 4, 1e-6), "%s: swiglu", name);
}

static void test_dropout(void)
{
  enum { N = 1 << 16 };
  static float x[N], y[N], z[N];
  const lm_dropout how = {.rate = 0.25f, .seed = 5, .sample = 3, .place = 2}, none = {.rate = 0, .seed = 5};
  size_t dropped = 0, wrong = 0, both = 0;
  for (size_t i = 0; i < N; i++) x[i] = 3;
  k->dropout(LM_F32, y, x, &how, 1, 64, N / 64);
  for (size_t i = 0; i < N; i++) dropped += y[i] == 0, wrong += y[i] != 0 && y[i] != 4;
  double deviation = sqrt(N * 0.25 * 0.75);
  tap_ok(wrong == 0, "%s: what stays is divided by 1 - rate", name);
  tap_ok(fabs((double)dropped - N * 0.25) < 5 * deviation, "%s: %zu of %d are taken out", name, dropped, N);
  for (int i = 0; i < 3; i++) { /* another sample, place, seed */
    lm_dropout other = how;
    other.sample += i == 0, other.place += i == 1, other.seed += i == 2;
    k->dropout(LM_F32, z, x, &other, 1, 64, N / 64);
    for (size_t j = both = 0; j < N; j++) both += y[j] == 0 && z[j] == 0;
    tap_ok(fabs((double)both - N * 0.0625) < 5 * sqrt(N * 0.0625), "%s: and others elsewhere: %zu in both", name, both);
  }
  k->dropout(LM_F32, y, x, &none, 1, 64, N / 64);
  tap_ok(memcmp(x, y, sizeof x) == 0, "%s: a rate of 0 takes out nothing", name);
  /* The second of two sequences is the first of a call that begins there. */
  k->dropout(LM_F32, y, x, &(lm_dropout){.rate = 0.5f, .sample = 8}, 2, 32, N / 64);
  k->dropout(LM_F32, z, x, &(lm_dropout){.rate = 0.5f, .sample = 9}, 1, 32, N / 64);
  tap_ok(memcmp(y + N / 2, z, sizeof z / 2) == 0, "%s: a mask belongs to its sample", name);
}

static void test_gelu(void)
{
  /* From the formula, with the tanh of a maths library in double. */
  const float x[] = {0, 1, -1, 0.5f, 2, -3, 100, -100, 1e30f, -1e30f};
  const double want[] = {0, 0.84119199, -0.15880801, 0.34571401, 1.95459769, -0.00363739, 100, 0, 1e30, 0};
  float y[10], dy[10], dx[10];
  k->gelu_fwd(LM_F32, y, x, 10);
  tap_ok(near_all(y, want, 10, 1e-6), "%s: values of gelu", name);
  for (int i = 0; i < 10; i++) dy[i] = 2;
  k->gelu_bwd(LM_F32, dx, dy, x, 10);
  tap_ok(near_all(dx, (double[]){1}, 1, 1e-6), "%s: gelu'(0) is 1/2", name);
  tap_ok(near_all(dx + 6, (double[]){2, 0, 2, 0}, 4, 1e-6), "%s: gelu' far out is 1 and 0", name);
  k->gelu_bwd(LM_F32, dy, dy, x, 10);
  tap_ok(memcmp(dx, dy, sizeof dx) == 0, "%s: gelu_bwd in place", name);
  const float bad[] = {NAN, INFINITY};
  k->gelu_fwd(LM_F32, y, bad, 2);
  k->gelu_bwd(LM_F32, dx, x + 1, bad, 2);
  tap_ok(isnan(y[0]) && isinf(y[1]) && isnan(dx[0]), "%s: gelu of NaN and infinity is not finite", name);
}

static void test_linear(void)
{
  const float x[] = {1, 2, 3, 4, 5, 6}, w[] = {1, 0, -1, 2, 1, 0}, bias[] = {10, 20}, dy[] = {1, 2, 3, 4};
  float y[4], dx[6], dw[6] = {100}, dbias[2] = {0, 100};
  k->linear_fwd(LM_F32, y, x, w, bias, 2, 2, 3);
  tap_ok(near_all(y, (double[]){8, 24, 8, 33}, 4, 1e-6), "%s: x w^T + bias", name);
  k->linear_bwd_input(LM_F32, dx, dy, w, 2, 2, 3);
  tap_ok(near_all(dx, (double[]){5, 2, -1, 11, 4, -3}, 6, 1e-6), "%s: dx = dy w", name);
  k->linear_bwd_weight(LM_F32, true, dw, dbias, dy, x, 2, 2, 3);
  tap_ok(near_all(dw, (double[]){113, 17, 21, 18, 24, 30}, 6, 1e-6), "%s: dw += dy^T x", name);
  tap_ok(near_all(dbias, (double[]){4, 106}, 2, 1e-6), "%s: dbias += sum of dy", name);
  dw[0] = dbias[0] = NAN;
  k->linear_bwd_weight(LM_F32, false, dw, dbias, dy, x, 2, 2, 3);
  tap_ok(near_all(dw, (double[]){13, 17, 21, 18, 24, 30}, 6, 1e-6), "%s: dw = dy^T x, whatever was there", name);
  tap_ok(near_all(dbias, (double[]){4, 6}, 2, 1e-6), "%s: dbias = sum of dy", name);
}

static void test_attention(void)
{
  /* One head of one channel, q = 1: keys 0 and ln 3 have the probabilities 1/4 and 3/4. [T, q k v] */
  float one[] = {1, 0, 1, 1, logf(3), 5}, y[4], lse[4];
  k->attention_fwd(LM_F32, y, lse, one, &(lm_attention){.B = 1, .T = 2, .H = 1, .H_kv = 1, .D = 1});
  tap_ok(near_all(y, (double[]){1, 4}, 2, 1e-6), "%s: attention weighs values by probabilities", name);
  tap_ok(near_all(lse, (double[]){0, log(4)}, 2, 1e-6), "%s: and keeps log sum exp", name);
  one[4] = 50, one[5] = -7;
  k->attention_fwd(LM_F32, y, lse, one, &(lm_attention){.B = 1, .T = 2, .H = 1, .H_kv = 1, .D = 1});
  tap_ok(y[0] == 1 && y[1] == -7, "%s: a position does not see the next one", name);
  /* Four channels: scores are halved, 1/sqrt(4). */
  const float four[] = {2, 0, 0, 0, 3, 0, 0, 0, 1, 2, 3, 4};
  k->attention_fwd(LM_F32, y, lse, four, &(lm_attention){.B = 1, .T = 1, .H = 1, .H_kv = 1, .D = 4});
  tap_ok(near_all(y, (double[]){1, 2, 3, 4}, 4, 0), "%s: a single position copies its value", name);
  tap_near(lse[0], 3, 1e-6, "%s: scores are divided by sqrt(D)", name);
  /* Four query heads on two key/value heads: 0 and 1 read the first, 2 and 3 the second. */
  const float grouped[] = {1, 1, 1, 1, 0, 0, 8, 9};
  k->attention_fwd(LM_F32, y, lse, grouped, &(lm_attention){.B = 1, .T = 1, .H = 4, .H_kv = 2, .D = 1});
  tap_ok(near_all(y, (double[]){8, 8, 9, 9}, 4, 0), "%s: query heads share key/value heads", name);
}

/* Three equal keys, values 1 2 6: a mean over what is seen, whatever the scores. */
static void test_documents(void)
{
  enum { T = 130 }; /* more than two tiles of any backend */
  static const int32_t start[] = {0, 0, 2};
  const float qkv[] = {1, 1, 1, 1, 1, 2, 1, 1, 6};
  float y[3], lse[3];
  k->attention_fwd(LM_F32, y, lse, qkv, &(lm_attention){.B = 1, .T = 3, .H = 1, .H_kv = 1, .D = 1, .start = start});
  tap_ok(near_all(y, (double[]){1, 1.5, 6}, 3, 1e-6), "%s: a document does not see the one before", name);
  tap_ok(near_all(lse, (double[]){1, 1 + log(2), 1}, 3, 1e-6), "%s: nor do its sums", name);
  static float all[3 * T], out[2][T], sums[T];
  static int32_t starts[T];
  for (int i = 0; i < T; i++) all[3 * i] = all[3 * i + 1] = 0.1f * (float)i, all[3 * i + 2] = (float)(i % 7);
  for (int i = 0; i < T; i++) starts[i] = i < 70 ? 0 : 70;
  const lm_attention a = {.B = 1, .T = T, .H = 1, .H_kv = 1, .D = 1, .start = starts};
  for (int pass = 0; pass < 2; pass++) {
    k->attention_fwd(LM_F32, out[pass], sums, all, &a);
    for (int i = 0; i < 70; i++) all[3 * i + 1] = 50, all[3 * i + 2] = -1;
  }
  tap_ok(memcmp(out[0] + 70, out[1] + 70, 60 * sizeof(float)) == 0, "%s: the first changes no bit of the second", name);
}

static void test_cross_entropy(void)
{
  const float l2 = logf(2), l3 = logf(3);
  const int32_t target[] = {2, -1, 0};
  float z[] = {0, l2, l3, 100, NAN, NAN, 1, 2, 100, 100, 1000, 1000, -1000, 100, INFINITY}, loss[3], before[15];
  memcpy(before, z, sizeof z);
  k->cross_entropy(LM_F32, loss, z, target, NULL, 3, 3, 5, 0);
  tap_ok(near_all(loss, (double[]){log(2), 0, log(2)}, 3, 1e-6), "%s: losses; an ignored row has none", name);
  tap_ok(memcmp(before, z, sizeof z) == 0, "%s: without gradient the logits stay", name);
  k->cross_entropy(LM_F32, loss, z, target, NULL, 3, 3, 5, 1);
  tap_ok(near_all(loss, (double[]){log(2), 0, log(2)}, 3, 1e-6), "%s: the same losses with gradient", name);
  tap_ok(near_all(z, (double[]){1. / 6, 1. / 3, -1. / 2, 0, 0}, 5, 1e-6), "%s: softmax 1/6 1/3 1/2 - target", name);
  tap_ok(near_all(z + 5, (double[]){0, 0, 0, 0, 0}, 5, 0), "%s: an ignored row gives no gradient, even of NaN", name);
  tap_ok(near_all(z + 10, (double[]){-0.5, 0.5, 0, 0, 0}, 5, 1e-6), "%s: logits of 1000 do not overflow", name);
}

static void test_rare_logits(void)
{
  float loss[1];
  enum { V = 70 }; /* in a vector, and in the rest behind the vectors */
  static const int at[] = {0, 20, 69};
  for (size_t i = 0; i < 3; i++)
    for (int sign = -1; sign <= 1; sign++) {
      float row[V] = {0};
      row[at[i]] = sign == 0 ? NAN : (float)sign * INFINITY;
      k->cross_entropy(LM_F32, loss, row, &(int32_t){1}, NULL, 1, V, V, 1);
      if (sign < 0) /* a probability of 0 is no error */
        tap_near(loss[0], log(V - 1), 1e-6, "%s: logit %d of %d is -inf", name, at[i], V);
      else
        tap_ok(!isfinite(loss[0]) && !isfinite(row[1]), "%s: logit %d of %d is %s: so is the loss", name, at[i], V,
               sign == 0 ? "NaN" : "inf");
    }
  enum { HALF = 1500 }; /* longer than what a backend may take at a time */
  static float z[2 * HALF];
  for (int i = 0; i < HALF; i++) z[i] = -INFINITY, z[HALF + i] = 0;
  k->cross_entropy(LM_F32, loss, z, &(int32_t){HALF}, NULL, 1, 2 * HALF, 2 * HALF, 1);
  tap_near(loss[0], log(HALF), 1e-6, "%s: a masked first half of the vocabulary costs nothing", name);
  tap_near(z[HALF + 1], 1. / HALF, 1e-6, "%s: and the rest shares the probability", name);
}

static void test_sum_squares(void)
{
  enum { N = 10007 };
  static float x[N];
  for (size_t i = 0; i < N; i++) x[i] = 3;
  tap_ok(backend_sum(k, k->sum_squares, x, N) == 9.0 * N, "%s: sum of squares", name);
  tap_ok(backend_sum(k, k->sum, x, N) == 3.0 * N && backend_sum(k, k->sum, x, 0) == 0, "%s: sum", name);
  tap_ok(backend_sum(k, k->sum_squares, x, 0) == 0, "%s: of nothing is 0", name);
  x[N - 1] = FLT_MAX;
  tap_near(backend_sum(k, k->sum_squares, x, N) / ((double)FLT_MAX * (double)FLT_MAX), 1, 1e-6,
           "%s: f32's largest does not overflow", name);
  static const size_t at[] = {0, 17, 5000, N - 1};
  static const float bad[] = {NAN, INFINITY, -INFINITY};
  bool found = true;
  for (size_t i = 0; i < 4; i++)
    for (size_t j = 0; j < 3; j++) {
      float keep = x[at[i]];
      x[at[i]] = bad[j];
      found = found && !isfinite(backend_sum(k, k->sum_squares, x, N));
      x[at[i]] = keep;
    }
  tap_ok(found, "%s: one value that is not finite shows, wherever it is", name);
  k->scale(x, 0.5f, N);
  tap_ok(x[0] == 1.5f && x[N - 2] == 1.5f && x[N - 1] == FLT_MAX / 2, "%s: scale", name);
}

/* The update of one more AdamW step, over lr, after 10 steps with the gradient 1. */
static double eleventh_update(bool keep_moments, int64_t step)
{
  const lm_adamw_config cfg = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .decay = 0};
  const float lr = 1e-3f, g = 1;
  float w = 0, m = 0, v = 0;
  for (int64_t s = 1; s <= 10; s++) k->adamw(LM_F32, &w, &m, &v, &g, NULL, 1, &cfg, lr, 1, s);
  if (!keep_moments) m = v = 0;
  w = 0; /* so that the update is not lost in the rounding of w */
  k->adamw(LM_F32, &w, &m, &v, &g, NULL, 1, &cfg, lr, 1, step);
  return -(double)w / (double)lr;
}

static void test_adamw(void)
{
  enum { N = 37 };
  const lm_adamw_config decay = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .decay = 0.5f};
  float w[N], m[N] = {0}, v[N] = {0}, g[N] = {0};
  lm_bf16 w16[N];
  for (int i = 0; i < N; i++) w[i] = (float)(i - 18) * 0.37f;
  k->adamw(LM_BF16, w, m, v, g, w16, N, &decay, 0.1f, 1, 1);
  bool scaled = true, rounded = true;
  for (int i = 0; i < N; i++) {
    double want = (double)((float)(i - 18) * 0.37f) * 0.95;
    scaled = scaled && fabs((double)w[i] - want) <= fabs(want) * FLT_EPSILON;
    rounded = rounded && w16[i] == lm_bf16_from_f32(w[i]);
  }
  tap_ok(scaled, "%s: no gradient, lr 0.1, decay 0.5: every weight x 0.95 to an ulp", name);
  tap_ok(rounded, "%s: the bf16 copy is the rounded weight", name);
  tap_near(eleventh_update(true, 11), 1.000, 1e-5, "%s: a constant gradient moves by lr", name);
  tap_near(eleventh_update(true, 1), 2.337, 1e-3, "%s: the step counts: restarted at 1, 2.337 lr", name);
  tap_near(eleventh_update(false, 11), 0.428, 1e-3, "%s: the moments count: lost, 0.428 lr", name);
  float one = 1, m1 = 0, v1 = 0, g1 = 4;
  const lm_adamw_config plain = {.beta1 = 0.5f, .beta2 = 0.75f, .eps = 1, .decay = 0};
  k->adamw(LM_F32, &one, &m1, &v1, &g1, NULL, 1, &plain, 0.25f, 0.75f, 1); /* g' = 3: m 1.5, v 2.25, mhat 3, vhat 9 */
  tap_ok(m1 == 1.5f && v1 == 2.25f, "%s: moments of the scaled gradient", name);
  tap_near(one, 1 - 0.25 * 3 / (3 + 1), 1e-6, "%s: eps is outside of the root", name);
}

static void test_backend(const lm_kernels *backend)
{
  k = backend;
  snprintf(name, sizeof name, "%s %s", k->name, k->isa);
  test_cast();
  test_cast_f16();
  test_embedding();
  test_layernorm();
  test_rmsnorm();
  test_heads();
  test_swiglu();
  test_dropout();
  test_documents();
  test_gelu();
  test_linear();
  test_attention();
  test_cross_entropy();
  test_rare_logits();
  test_sum_squares();
  test_adamw();
  test_sgd();
}

int main(int argc, char **argv)
{
  lm_comm comm;
  int tested = 0;
  bool done = false;
  tap_begin(&comm, argc, argv);
  test_backend(&lm_kernels_ref);
  for (int i = 0; !done; i++) {
    const lm_kernels *backend = backend_at(i, &done);
    if (backend == NULL) continue;
    test_backend(backend);
    tested++;
  }
  tap_ok(tested > 0, "there is a backend besides the reference");
  return tap_end();
}
