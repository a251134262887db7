/* tests/kernels/test_compare.c - every operation of a backend against the reference, on shapes that fit nothing. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/slices.h"
#include "tests/kernels/backends.h"
#include "tests/kernels/random.h"
#include "tests/tap.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a call of an operation: its tensors, its sizes, and who makes the call ---- */

typedef enum role { IN, OUT, INOUT } role;
enum { MAX_TENSORS = 10, GUARD = 64 /* bytes behind each tensor, which nobody may touch */ };

typedef struct tensor {
  const char *name;
  role role;
  bool ids;   /* int32 in [low, high); else of type t in (low, high) */
  lm_dtype t; /* of the elements */
  size_t n;   /* elements; 0: the argument is NULL */
  double low, high;
} tensor;

typedef struct sizes {
  int B, T, C, V, Vp, H, H_kv, N, K;
  size_t rows, n;
  bool documents; /* attention stays within documents */
  lm_dropout dropout;
  lm_objective objective;
} sizes;

typedef struct call call;
struct call {
  const char *name;
  char shape[80];
  lm_dtype t;
  sizes s;
  int count;
  tensor tensors[MAX_TENSORS];
  void (*run)(const lm_kernels *k, const call *c, void *const *p);
  /* Let "near" be: |got - want| <= tolerance (|want| + rms of want), plus a rounding where the element has 16 bits. */
  double tolerance;
};

static void add(call *c, const char *name, role r, lm_dtype t, size_t n, double low, double high)
{
  c->tensors[c->count++] = (tensor){.name = name, .role = r, .t = t, .n = n, .low = low, .high = high};
}

static void add_ids(call *c, const char *name, size_t n, int low, int high)
{
  c->tensors[c->count++] = (tensor){.name = name, .ids = true, .t = LM_F32, .n = n, .low = low, .high = high};
}

/* The starts of documents: written by the call itself. */
static void add_starts(call *c, size_t n)
{
  c->tensors[c->count++] = (tensor){.name = "start", .role = INOUT, .ids = true, .t = LM_F32, .n = n};
}

/* ---- its execution ---- */

static size_t bytes_of(const tensor *x)
{
  return x->n * (x->ids ? sizeof(int32_t) : lm_dtype_size(x->t));
}

static float element(const tensor *x, const void *p, size_t i)
{
  return x->t == LM_F32 ? ((const float *)p)[i] : lm_half_to_f32(x->t, ((const uint16_t *)p)[i]);
}

/* The initial content, guard included. An output begins as NaN: what is not written fails the comparison. */
static void *initial(const tensor *x, uint64_t seed)
{
  size_t bytes = bytes_of(x);
  unsigned char *p = malloc(bytes + GUARD);
  LM_ASSERT(p != NULL);
  memset(p, 0xff, bytes + GUARD); /* NaN in every float type */
  for (size_t i = 0; x->role != OUT && i < x->n; i++) {
    double value = random_in(seed, i, x->low, x->high);
    if (x->ids)
      ((int32_t *)p)[i] = (int32_t)floor(value);
    else if (x->t == LM_F32)
      ((float *)p)[i] = (float)value;
    else
      ((uint16_t *)p)[i] = lm_half_from_f32(x->t, (float)value);
  }
  return p;
}

typedef struct results {
  void *p[MAX_TENSORS]; /* host copies, guards included */
} results;

static void release(results *r)
{
  for (int i = 0; i < MAX_TENSORS; i++) free(r->p[i]);
  *r = (results){0};
}

static void execute(results *out, const lm_kernels *k, const call *c)
{
  void *device[MAX_TENSORS] = {0};
  lm_error err;
  for (int i = 0; i < c->count; i++) {
    const tensor *x = &c->tensors[i];
    out->p[i] = initial(x, (uint64_t)i);
    if (x->n == 0) continue;
    LM_ASSERT(k->alloc(&device[i], bytes_of(x) + GUARD, x->name, &err) == LM_OK);
    k->to_device(device[i], out->p[i], bytes_of(x) + GUARD);
  }
  c->run(k, c, device);
  for (int i = 0; i < c->count; i++) {
    const tensor *x = &c->tensors[i];
    if (x->n > 0) k->to_host(out->p[i], device[i], bytes_of(x) + GUARD);
    k->release(device[i]);
  }
}

/* ---- what must hold ---- */

static bool guards_and_inputs_stay(const results *r, const call *c)
{
  static const unsigned char untouched[GUARD] = {[0 ... GUARD - 1] = 0xff};
  for (int i = 0; i < c->count; i++) {
    const tensor *x = &c->tensors[i];
    if (memcmp((char *)r->p[i] + bytes_of(x), untouched, GUARD) != 0) return false;
    void *before = initial(x, (uint64_t)i);
    bool same = x->role != IN || memcmp(r->p[i], before, bytes_of(x)) == 0;
    free(before);
    if (!same) return false;
  }
  return true;
}

static bool same_bits(const results *a, const results *b, const call *c)
{
  for (int i = 0; i < c->count; i++)
    if (memcmp(a->p[i], b->p[i], bytes_of(&c->tensors[i]) + GUARD) != 0) return false;
  return true;
}

/* The largest |got - want| over what is allowed; infinity where one of them is NaN. */
static double worst_of(const tensor *x, const void *got, const void *want, double tolerance)
{
  double squares = 0, worst = 0;
  for (size_t i = 0; i < x->n; i++) squares += pow((double)element(x, want, i), 2);
  double rms = sqrt(squares / (double)x->n), rounding = x->t == LM_BF16  ? 0x1p-7
                                                        : x->t == LM_F16 ? 0x1p-10
                                                                         : 0; /* 1 ulp */
  for (size_t i = 0; i < x->n; i++) {
    double g = (double)element(x, got, i), w = (double)element(x, want, i);
    double allowed = tolerance * (fabs(w) + rms) + (tolerance > 0 ? rounding * fmax(fabs(w), 0x1p-14) : 0),
           error = fabs(g - w);
    if (!(error <= 1e300)) return INFINITY; /* also where it is NaN */
    if (error > 0) worst = fmax(worst, allowed > 0 ? error / allowed : INFINITY);
  }
  return worst;
}

static void compare(const lm_kernels *k, const call *c)
{
  results want = {0}, one = {0};
  double worst = 0;
  const char *where = "nothing", *only = getenv("MPILM_TEST_ONLY"); /* operations whose names begin so */

  if (only != NULL && strncmp(c->name, only, strlen(only)) != 0) return;
  omp_set_num_threads(1);
  execute(&want, &lm_kernels_ref, c);
  execute(&one, k, c);
  for (int i = 0; i < c->count; i++) {
    const tensor *x = &c->tensors[i];
    double w = x->ids || x->n == 0 ? 0 : worst_of(x, one.p[i], want.p[i], c->tolerance);
    if (w > worst) worst = w, where = x->name;
  }
  bool intact = guards_and_inputs_stay(&one, c) && guards_and_inputs_stay(&want, c), same = true;
  for (int threads = 2; threads <= (only_cuda() ? 2 : 3); threads++) { /* a GPU: once more */
    results many = {0};
    omp_set_num_threads(threads);
    execute(&many, k, c);
    same = same && same_bits(&one, &many, c);
    release(&many);
  }
  tap_ok(worst <= 1 && intact && same, "%s %s %s %s %s: error %.2g of what is allowed (%s)%s%s", k->name, k->isa,
         c->name, lm_dtype_name(c->t), c->shape, worst, where, intact ? "" : ", wrote where it must not",
         same ? "" : ", threads change the bits");
  release(&want);
  release(&one);
}

/* ---- the operations ---- */

static const lm_kernels *backend;
static const lm_dtype types[] = {LM_F32, LM_BF16, LM_F16};
enum { TYPES = 3 };

static call new_call(const char *name, lm_dtype t, void (*run)(const lm_kernels *, const call *, void *const *),
                     double tolerance)
{
  return (call){.name = name, .t = t, .run = run, .tolerance = tolerance};
}

static void run_cast(const lm_kernels *k, const call *c, void *const *p)
{
  k->cast(p[0], c->tensors[0].t, p[1], c->tensors[1].t, c->s.n);
}
static void run_gelu_fwd(const lm_kernels *k, const call *c, void *const *p)
{
  k->gelu_fwd(c->t, p[0], p[1], c->s.n);
}
static void run_gelu_bwd(const lm_kernels *k, const call *c, void *const *p)
{
  k->gelu_bwd(c->t, p[0], p[1], p[2], c->s.n);
}
static void run_scale(const lm_kernels *k, const call *c, void *const *p)
{
  k->scale(p[0], 0.37f, c->s.n);
}
static void run_add(const lm_kernels *k, const call *c, void *const *p)
{
  k->add(p[0], p[1], c->s.n);
}
static void run_sum_squares(const lm_kernels *k, const call *c, void *const *p)
{
  float result = (float)backend_sum(k, k->sum_squares, p[1], c->s.n);
  k->to_device(p[0], &result, sizeof result);
}

static void run_sum(const lm_kernels *k, const call *c, void *const *p)
{
  float result = (float)backend_sum(k, k->sum, p[1], c->s.n);
  k->to_device(p[0], &result, sizeof result);
}

static void pointwise(size_t n)
{
  call c = new_call("sum", LM_F32, run_sum, 1e-7);
  c.s.n = n;
  snprintf(c.shape, sizeof c.shape, "n=%zu", n);
  add(&c, "y", OUT, LM_F32, 1, 0, 0), add(&c, "x", IN, LM_F32, n, 1, 3);
  compare(backend, &c);
  c.count = 0, c.name = "sum_squares", c.run = run_sum_squares;
  add(&c, "y", OUT, LM_F32, 1, 0, 0), add(&c, "x", IN, LM_F32, n, -3, 3);
  compare(backend, &c);
  for (int i = 0; i < TYPES; i++) {
    lm_dtype t = types[i];
    for (int from = 0; from < TYPES; from++) {
      char name[32];
      snprintf(name, sizeof name, "cast from %s to", lm_dtype_name(types[from]));
      c.t = t, c.count = 0, c.name = name, c.run = run_cast, c.tolerance = 0;
      add(&c, "y", OUT, t, n, 0, 0), add(&c, "x", IN, types[from], n, -3, 3);
      compare(backend, &c);
    }
    c.count = 0, c.name = "gelu_fwd", c.run = run_gelu_fwd, c.tolerance = 1e-6;
    add(&c, "y", OUT, t, n, 0, 0), add(&c, "x", IN, t, n, -6, 6);
    compare(backend, &c);
    c.count = 0, c.name = "gelu_bwd", c.run = run_gelu_bwd;
    add(&c, "dx", OUT, t, n, 0, 0), add(&c, "dy", IN, t, n, -1, 1), add(&c, "x", IN, t, n, -6, 6);
    compare(backend, &c);
  }
  c.t = LM_F32, c.count = 0, c.name = "scale", c.run = run_scale, c.tolerance = 0;
  add(&c, "x", INOUT, LM_F32, n, -3, 3);
  compare(backend, &c);
  c.name = "add", c.run = run_add;
  add(&c, "y", IN, LM_F32, n, -3, 3);
  compare(backend, &c);
}

static void run_adamw(const lm_kernels *k, const call *c, void *const *p)
{
  const lm_adamw_config cfg = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .decay = 0.1f};
  k->adamw(c->t, p[0], p[1], p[2], p[3], p[4], c->s.n, &cfg, 3e-3f, 0.7f, 7);
}

static void run_sgd(const lm_kernels *k, const call *c, void *const *p)
{
  const lm_sgd_config cfg = {.momentum = 0.9f, .nesterov = c->s.B != 0, .decay = 0.1f};
  k->sgd(c->t, p[0], p[1], p[2], p[3], c->s.n, &cfg, 3e-2f, 0.7f);
}

static void sgd(lm_dtype t, size_t n, bool momentum, bool nesterov)
{
  call c = new_call("sgd", t, run_sgd, 1e-6);
  c.s = (sizes){.n = n, .B = nesterov};
  snprintf(c.shape, sizeof c.shape, "n=%zu%s%s", n, momentum ? " momentum" : "", nesterov ? " nesterov" : "");
  add(&c, "w", INOUT, LM_F32, n, -1, 1), add(&c, "m", INOUT, LM_F32, momentum ? n : 0, -1, 1);
  add(&c, "g", IN, LM_F32, n, -2, 2), add(&c, "w16", OUT, t, t == LM_F32 ? 0 : n, 0, 0);
  compare(backend, &c);
}

static void adamw(lm_dtype t, size_t n)
{
  call c = new_call("adamw", t, run_adamw, 1e-6);
  c.s.n = n;
  snprintf(c.shape, sizeof c.shape, "n=%zu", n);
  add(&c, "w", INOUT, LM_F32, n, -1, 1), add(&c, "m", INOUT, LM_F32, n, -1, 1);
  add(&c, "v", INOUT, LM_F32, n, 0, 1), add(&c, "g", IN, LM_F32, n, -2, 2);
  add(&c, "w16", OUT, t, t == LM_F32 ? 0 : n, 0, 0);
  compare(backend, &c);
}

/* ---- all of several tensors at once: three that lie behind one another, the second not decayed, the third empty ----
 */

enum { PARTS = 4 };
static lm_slice part_of(const call *c, void *const *p, int part)
{
  size_t n = c->s.n, cuts[PARTS + 1] = {0, n / 3, n - n / 5, n - n / 5, n}, at = cuts[part];
  bool has_m = p[1] != NULL, has_v = c->count > 4;
  char *w16 = p[c->count - 1];
  return (lm_slice){.w = (float *)p[0] + at,
                    .m = has_m ? (float *)p[1] + at : NULL,
                    .v = has_v ? (float *)p[2] + at : NULL,
                    .w16 = w16 != NULL ? w16 + at * lm_dtype_size(c->t) : NULL,
                    .g_at = at,
                    .n = cuts[part + 1] - at,
                    .decayed = part != 1};
}

static lm_slices slices_of(const lm_kernels *k, const call *c, void *const *p)
{
  lm_slice list[PARTS];
  lm_slices s;
  lm_error err;
  for (int i = 0; i < PARTS; i++) list[i] = part_of(c, p, i);
  LM_ASSERT(lm_slices_new(&s, k, list, PARTS, c->t, &err) == LM_OK);
  return s;
}

static lm_adamw_config adamw_config(bool decayed)
{
  return (lm_adamw_config){.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .decay = decayed ? 0.1f : 0};
}

static void run_adamw_all(const lm_kernels *k, const call *c, void *const *p)
{
  lm_slices s = slices_of(k, c, p);
  const lm_adamw_config cfg = adamw_config(true);
  lm_slices_adamw(k, c->t, &s, p[3], &cfg, 3e-3f, 0.7f, 7);
  lm_slices_free(&s, k);
}

static void run_adamw_parts(const lm_kernels *k, const call *c, void *const *p)
{
  for (int i = 0; i < PARTS; i++) {
    lm_slice x = part_of(c, p, i);
    const lm_adamw_config cfg = adamw_config(x.decayed);
    k->adamw(c->t, x.w, x.m, x.v, (const float *)p[3] + x.g_at, x.w16, x.n, &cfg, 3e-3f, 0.7f, 7);
  }
}

static lm_sgd_config sgd_config(bool decayed)
{
  return (lm_sgd_config){.momentum = 0.9f, .nesterov = true, .decay = decayed ? 0.1f : 0};
}

static void run_sgd_all(const lm_kernels *k, const call *c, void *const *p)
{
  lm_slices s = slices_of(k, c, p);
  const lm_sgd_config cfg = sgd_config(true);
  lm_slices_sgd(k, c->t, &s, p[2], &cfg, 3e-2f, 0.7f);
  lm_slices_free(&s, k);
}

static void run_sgd_parts(const lm_kernels *k, const call *c, void *const *p)
{
  for (int i = 0; i < PARTS; i++) {
    lm_slice x = part_of(c, p, i);
    const lm_sgd_config cfg = sgd_config(x.decayed);
    k->sgd(c->t, x.w, x.m, (const float *)p[2] + x.g_at, x.w16, x.n, &cfg, 3e-2f, 0.7f);
  }
}

/* The first tensor has 0 elements of a gradient before it, as slices of a sum have no others. */
static void run_squares_all(const lm_kernels *k, const call *c, void *const *p)
{
  lm_slices s = slices_of(k, c, (void *[]){p[1], NULL, NULL});
  lm_slices_sum_squares(k, p[0], &s, p[1]);
  lm_slices_free(&s, k);
}

static void run_squares_parts(const lm_kernels *k, const call *c, void *const *p)
{
  for (int i = 0; i < PARTS; i++) {
    lm_slice x = part_of(c, (void *[]){p[1], NULL, NULL}, i);
    k->sum_squares((double *)p[0] + i, (const float *)p[1] + x.g_at, x.n);
  }
}

/* The same bits one after another. */
static void same_one_by_one(const call *c, void (*one_by_one)(const lm_kernels *, const call *, void *const *))
{
  results all = {0}, parts = {0};
  call other = *c;
  const char *only = getenv("MPILM_TEST_ONLY");
  if (only != NULL && strncmp(c->name, only, strlen(only)) != 0) return;
  other.run = one_by_one;
  execute(&all, backend, c);
  execute(&parts, backend, &other);
  tap_ok(same_bits(&all, &parts, c), "%s %s %s %s %s: the same bits one by one", backend->name, backend->isa, c->name,
         lm_dtype_name(c->t), c->shape);
  release(&all);
  release(&parts);
}

static void all_at_once(lm_dtype t, size_t n)
{
  call c = new_call("adamw_all", t, run_adamw_all, 1e-6);
  c.s.n = n;
  snprintf(c.shape, sizeof c.shape, "n=%zu", n);
  add(&c, "w", INOUT, LM_F32, n, -1, 1), add(&c, "m", INOUT, LM_F32, n, -1, 1);
  add(&c, "v", INOUT, LM_F32, n, 0, 1), add(&c, "g", IN, LM_F32, n, -2, 2);
  add(&c, "w16", OUT, t, t == LM_F32 ? 0 : n, 0, 0);
  compare(backend, &c);
  same_one_by_one(&c, run_adamw_parts);
  c.count = 0, c.name = "sgd_all", c.run = run_sgd_all;
  add(&c, "w", INOUT, LM_F32, n, -1, 1), add(&c, "m", INOUT, LM_F32, n, -1, 1);
  add(&c, "g", IN, LM_F32, n, -2, 2), add(&c, "w16", OUT, t, t == LM_F32 ? 0 : n, 0, 0);
  compare(backend, &c);
  same_one_by_one(&c, run_sgd_parts);
  if (t != LM_F32) return;
  c.count = 0, c.name = "sum_squares_all", c.run = run_squares_all;
  add(&c, "sums", OUT, LM_F32, 2 * PARTS, 0, 0), add(&c, "x", IN, LM_F32, n, -3, 3);
  same_one_by_one(&c, run_squares_parts);
}

static void run_embedding_fwd(const lm_kernels *k, const call *c, void *const *p)
{
  k->embedding_fwd(c->t, p[0], p[1], p[2], p[3], c->s.B, c->s.T, c->s.C);
}
static void run_embedding_bwd(const lm_kernels *k, const call *c, void *const *p)
{
  k->embedding_bwd(c->t, p[0], p[1], p[2], p[3], c->s.B, c->s.T, c->s.C);
}

static void embedding(lm_dtype t, int B, int T, int C, bool positions)
{
  enum { V = 11 };
  size_t n = (size_t)B * (size_t)T, C_ = (size_t)C, wpe = positions ? ((size_t)T + 1) * C_ : 0;
  call c = new_call("embedding_fwd", t, run_embedding_fwd, 0);
  c.s = (sizes){.B = B, .T = T, .C = C};
  snprintf(c.shape, sizeof c.shape, "B=%d T=%d C=%d%s", B, T, C, positions ? "" : " no positions");
  add(&c, "y", OUT, t, n * C_, 0, 0), add_ids(&c, "token", n, 0, V);
  add(&c, "wte", IN, t, V * C_, -1, 1), add(&c, "wpe", IN, t, wpe, -1, 1);
  compare(backend, &c);
  c.name = "embedding_bwd", c.run = run_embedding_bwd, c.count = 0, c.tolerance = 1e-6;
  add(&c, "dwte", INOUT, LM_F32, V * C_, -1, 1), add(&c, "dwpe", INOUT, LM_F32, wpe, -1, 1);
  add(&c, "dy", IN, t, n * C_, -1, 1), add_ids(&c, "token", n, 0, V);
  compare(backend, &c);
}

static void run_layernorm_fwd(const lm_kernels *k, const call *c, void *const *p)
{
  k->layernorm_fwd(c->t, p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], c->s.rows, c->s.C, 1e-5f);
}
static void run_layernorm_bwd(const lm_kernels *k, const call *c, void *const *p)
{
  k->layernorm_bwd(c->t, p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], c->s.rows, c->s.C);
}

static void layernorm(lm_dtype t, size_t rows, int C, bool bias, bool branch)
{
  size_t C_ = (size_t)C, n = rows * C_;
  call c = new_call("layernorm_fwd", t, run_layernorm_fwd, 2e-6);
  c.s = (sizes){.rows = rows, .C = C};
  snprintf(c.shape, sizeof c.shape, "rows=%zu C=%d%s%s", rows, C, bias ? "" : " no bias", branch ? " residual" : "");
  add(&c, "y", OUT, t, n, 0, 0), add(&c, "mean", OUT, LM_F32, rows, 0, 0), add(&c, "rstd", OUT, LM_F32, rows, 0, 0);
  add(&c, "sum", OUT, t, branch ? n : 0, 0, 0), add(&c, "x", IN, t, n, -1, 2);
  add(&c, "branch", IN, t, branch ? n : 0, -1, 1);
  add(&c, "gain", IN, t, C_, -1, 1), add(&c, "bias", IN, t, bias ? C_ : 0, -1, 1);
  compare(backend, &c);
  c.name = "layernorm_bwd", c.run = run_layernorm_bwd, c.count = 0, c.tolerance = 5e-6;
  add(&c, "dx", INOUT, t, n, -1, 1), add(&c, "dgain", INOUT, LM_F32, C_, -1, 1);
  add(&c, "dbias", INOUT, LM_F32, bias ? C_ : 0, -1, 1), add(&c, "dy", IN, t, n, -1, 1), add(&c, "x", IN, t, n, -1, 2);
  add(&c, "mean", IN, LM_F32, rows, 0.4, 0.6), add(&c, "rstd", IN, LM_F32, rows, 1, 1.3);
  add(&c, "gain", IN, t, C_, -1, 1);
  compare(backend, &c);
}

static void run_linear_fwd(const lm_kernels *k, const call *c, void *const *p)
{
  k->linear_fwd(c->t, p[0], p[1], p[2], p[3], c->s.rows, c->s.N, c->s.K);
}
static void run_linear_bwd_input(const lm_kernels *k, const call *c, void *const *p)
{
  k->linear_bwd_input(c->t, p[0], p[1], p[2], c->s.rows, c->s.N, c->s.K);
}
static void run_linear_bwd_weight(const lm_kernels *k, const call *c, void *const *p)
{
  k->linear_bwd_weight(c->t, true, p[0], p[1], p[2], p[3], c->s.rows, c->s.N, c->s.K);
}
static void run_linear_store_weight(const lm_kernels *k, const call *c, void *const *p)
{
  k->linear_bwd_weight(c->t, false, p[0], p[1], p[2], p[3], c->s.rows, c->s.N, c->s.K);
}

static void linear(lm_dtype t, size_t M, int N, int K, bool bias)
{
  size_t N_ = (size_t)N, K_ = (size_t)K;
  call c = new_call("linear_fwd", t, run_linear_fwd, 5e-6);
  c.s = (sizes){.rows = M, .N = N, .K = K};
  snprintf(c.shape, sizeof c.shape, "M=%zu N=%d K=%d%s", M, N, K, bias ? "" : " no bias");
  add(&c, "y", OUT, t, M * N_, 0, 0), add(&c, "x", IN, t, M * K_, -1, 1);
  add(&c, "w", IN, t, N_ * K_, -1, 1), add(&c, "bias", IN, t, bias ? N_ : 0, -1, 1);
  compare(backend, &c);
  c.name = "linear_bwd_input", c.run = run_linear_bwd_input, c.count = 0;
  add(&c, "dx", OUT, t, M * K_, 0, 0), add(&c, "dy", IN, t, M * N_, -1, 1), add(&c, "w", IN, t, N_ * K_, -1, 1);
  compare(backend, &c);
  c.name = "linear_bwd_weight", c.run = run_linear_bwd_weight, c.count = 0;
  add(&c, "dw", INOUT, LM_F32, N_ * K_, -1, 1), add(&c, "dbias", INOUT, LM_F32, bias ? N_ : 0, -1, 1);
  add(&c, "dy", IN, t, M * N_, -1, 1), add(&c, "x", IN, t, M * K_, -1, 1);
  compare(backend, &c);
  c.name = "linear_bwd_weight, stored", c.run = run_linear_store_weight, c.count = 0;
  add(&c, "dw", OUT, LM_F32, N_ * K_, 0, 0), add(&c, "dbias", OUT, LM_F32, bias ? N_ : 0, 0, 0);
  add(&c, "dy", IN, t, M * N_, -1, 1), add(&c, "x", IN, t, M * K_, -1, 1);
  compare(backend, &c);
}

/* One product of LM_FEW_ROWS rows, or one a row: nothing may differ. */
static void run_rows_together(const lm_kernels *k, const call *c, void *const *p)
{
  k->linear_fwd(c->t, p[0], p[1], p[2], p[3], c->s.rows, c->s.N, c->s.K);
}
static void run_rows_alone(const lm_kernels *k, const call *c, void *const *p)
{
  size_t size = lm_dtype_size(c->t), y = (size_t)c->s.N * size, x = (size_t)c->s.K * size;
  for (size_t r = 0; r < c->s.rows; r++)
    k->linear_fwd(c->t, (char *)p[0] + r * y, (char *)p[1] + r * x, p[2], p[3], 1, c->s.N, c->s.K);
}

static void few_rows(lm_dtype t, int N, int K)
{
  results together = {0}, alone = {0};
  call c = new_call("few rows", t, run_rows_together, 0);
  c.s = (sizes){.rows = LM_FEW_ROWS, .N = N, .K = K};
  add(&c, "y", OUT, t, LM_FEW_ROWS * (size_t)N, 0, 0), add(&c, "x", IN, t, LM_FEW_ROWS * (size_t)K, -1, 1);
  add(&c, "w", IN, t, (size_t)N * (size_t)K, -1, 1), add(&c, "bias", IN, t, (size_t)N, -1, 1);
  execute(&together, backend, &c);
  c.run = run_rows_alone;
  execute(&alone, backend, &c);
  tap_ok(same_bits(&together, &alone, &c), "%s %s %s: a row's bits do not depend on the others, N=%d K=%d",
         backend->name, backend->isa, lm_dtype_name(t), N, K);
  release(&together);
  release(&alone);
}

static void run_rmsnorm_fwd(const lm_kernels *k, const call *c, void *const *p)
{
  k->rmsnorm_fwd(c->t, p[0], p[1], p[2], p[3], p[4], p[5], c->s.rows, c->s.C, 1e-5f);
}
static void run_rmsnorm_bwd(const lm_kernels *k, const call *c, void *const *p)
{
  k->rmsnorm_bwd(c->t, p[0], p[1], p[2], p[3], p[4], p[5], c->s.rows, c->s.C);
}

static void rmsnorm(lm_dtype t, size_t rows, int C, bool branch)
{
  size_t C_ = (size_t)C, n = rows * C_;
  call c = new_call("rmsnorm_fwd", t, run_rmsnorm_fwd, 2e-6);
  c.s = (sizes){.rows = rows, .C = C};
  snprintf(c.shape, sizeof c.shape, "rows=%zu C=%d%s", rows, C, branch ? " residual" : "");
  add(&c, "y", OUT, t, n, 0, 0), add(&c, "rstd", OUT, LM_F32, rows, 0, 0), add(&c, "sum", OUT, t, branch ? n : 0, 0, 0);
  add(&c, "x", IN, t, n, -1, 2), add(&c, "branch", IN, t, branch ? n : 0, -1, 1), add(&c, "gain", IN, t, C_, -1, 1);
  compare(backend, &c);
  c.name = "rmsnorm_bwd", c.run = run_rmsnorm_bwd, c.count = 0, c.tolerance = 5e-6;
  add(&c, "dx", INOUT, t, n, -1, 1), add(&c, "dgain", INOUT, LM_F32, C_, -1, 1), add(&c, "dy", IN, t, n, -1, 1);
  add(&c, "x", IN, t, n, -1, 2), add(&c, "rstd", IN, LM_F32, rows, 0.9, 1.1), add(&c, "gain", IN, t, C_, -1, 1);
  compare(backend, &c);
}

static void run_qk_norm_fwd(const lm_kernels *k, const call *c, void *const *p)
{
  k->qk_norm_fwd(c->t, p[0], p[1], p[2], p[3], p[4], c->s.rows, c->s.H, c->s.H_kv, c->s.K, 1e-6f);
}
static void run_qk_norm_bwd(const lm_kernels *k, const call *c, void *const *p)
{
  k->qk_norm_bwd(c->t, p[0], p[1], p[2], p[3], p[4], p[5], p[6], c->s.rows, c->s.H, c->s.H_kv, c->s.K);
}

static void qk_norm(lm_dtype t, size_t rows, int H, int H_kv, int D)
{
  size_t D_ = (size_t)D, n = rows * (size_t)(H + 2 * H_kv) * D_, heads = rows * (size_t)(H + H_kv);
  call c = new_call("qk_norm_fwd", t, run_qk_norm_fwd, 2e-6);
  c.s = (sizes){.rows = rows, .H = H, .H_kv = H_kv, .K = D};
  snprintf(c.shape, sizeof c.shape, "rows=%zu H=%d H_kv=%d D=%d", rows, H, H_kv, D);
  add(&c, "y", OUT, t, n, 0, 0), add(&c, "rstd", OUT, LM_F32, heads, 0, 0), add(&c, "x", IN, t, n, -1, 2);
  add(&c, "q_gain", IN, t, D_, -1, 1), add(&c, "k_gain", IN, t, D_, -1, 1);
  compare(backend, &c);
  c.name = "qk_norm_bwd", c.run = run_qk_norm_bwd, c.count = 0, c.tolerance = 5e-6;
  add(&c, "dqkv", INOUT, t, n, -1, 1), add(&c, "dq_gain", INOUT, LM_F32, D_, -1, 1);
  add(&c, "dk_gain", INOUT, LM_F32, D_, -1, 1), add(&c, "x", IN, t, n, -1, 2);
  add(&c, "rstd", IN, LM_F32, heads, 0.9, 1.1);
  add(&c, "q_gain", IN, t, D_, -1, 1), add(&c, "k_gain", IN, t, D_, -1, 1);
  compare(backend, &c);
}

static void run_rope(const lm_kernels *k, const call *c, void *const *p)
{
  k->rope(c->t, p[0], p[1], 3, false, c->s.B, c->s.T, c->s.H, c->s.H_kv, c->s.K);
}
static void run_rope_back(const lm_kernels *k, const call *c, void *const *p)
{
  k->rope(c->t, p[0], p[1], 0, true, c->s.B, c->s.T, c->s.H, c->s.H_kv, c->s.K);
}

static void rope(lm_dtype t, int B, int T, int H, int H_kv, int D)
{
  call c = new_call("rope", t, run_rope, 1e-6);
  c.s = (sizes){.B = B, .T = T, .H = H, .H_kv = H_kv, .K = D};
  snprintf(c.shape, sizeof c.shape, "B=%d T=%d H=%d H_kv=%d D=%d", B, T, H, H_kv, D);
  add(&c, "qkv", INOUT, t, (size_t)B * (size_t)T * (size_t)((H + 2 * H_kv) * D), -2, 2);
  add(&c, "angles", IN, LM_F32, (size_t)((T + 3) * D), -1, 1);
  compare(backend, &c);
  c.name = "rope, inverse", c.run = run_rope_back;
  compare(backend, &c);
}

static void run_swiglu_fwd(const lm_kernels *k, const call *c, void *const *p)
{
  k->swiglu_fwd(c->t, p[0], p[1], c->s.rows, c->s.C);
}
static void run_swiglu_bwd(const lm_kernels *k, const call *c, void *const *p)
{
  k->swiglu_bwd(c->t, p[0], p[1], p[2], c->s.rows, c->s.C);
}

static void swiglu(lm_dtype t, size_t rows, int F)
{
  size_t n = rows * (size_t)F;
  call c = new_call("swiglu_fwd", t, run_swiglu_fwd, 1e-6);
  c.s = (sizes){.rows = rows, .C = F};
  snprintf(c.shape, sizeof c.shape, "rows=%zu F=%d", rows, F);
  add(&c, "y", OUT, t, n, 0, 0), add(&c, "x", IN, t, 2 * n, -100, 100);
  compare(backend, &c);
  c.name = "swiglu_bwd", c.run = run_swiglu_bwd, c.count = 0;
  add(&c, "dx", OUT, t, 2 * n, 0, 0), add(&c, "dy", IN, t, n, -1, 1), add(&c, "x", IN, t, 2 * n, -9, 9);
  compare(backend, &c);
}

static void run_dropout(const lm_kernels *k, const call *c, void *const *p)
{
  k->dropout(c->t, p[0], p[1], &c->s.dropout, c->s.B, c->s.T, c->s.C);
}

static lm_dropout some_dropout(float rate)
{
  return (lm_dropout){.rate = rate, .seed = 42, .sample = ((uint64_t)1 << 33) + 7, .place = 12};
}

static void dropout(lm_dtype t, int B, int T, int C, float rate)
{
  size_t n = (size_t)B * (size_t)T * (size_t)C;
  call c = new_call("dropout", t, run_dropout, 1e-6);
  c.s = (sizes){.B = B, .T = T, .C = C, .dropout = some_dropout(rate)};
  snprintf(c.shape, sizeof c.shape, "B=%d T=%d C=%d rate=%g", B, T, C, (double)rate);
  add(&c, "y", OUT, t, n, 0, 0), add(&c, "x", IN, t, n, -1, 1);
  compare(backend, &c);
}

/* Some three documents a sequence, wherever they begin. */
static void make_starts(int32_t *start, int B, int T)
{
  for (int i = 0; i < B * T; i++) start[i] = i % T == 0 ? 0 : random_in(99, (size_t)i, 0, T) < 3 ? i % T : start[i - 1];
}

/* p[at]: memory for the starts. */
static lm_attention attention_of(const lm_kernels *k, const call *c, void *const *p, int at)
{
  const sizes *s = &c->s;
  if (s->documents) {
    int32_t *start = malloc(bytes_of(&c->tensors[at]));
    LM_ASSERT(start != NULL);
    make_starts(start, s->B, s->T);
    k->to_device(p[at], start, bytes_of(&c->tensors[at]));
    free(start);
  }
  return (lm_attention){.B = s->B,
                        .T = s->T,
                        .H = s->H,
                        .H_kv = s->H_kv,
                        .D = s->K,
                        .start = s->documents ? p[at] : NULL,
                        .dropout = s->dropout.rate > 0 ? &s->dropout : NULL};
}

static void run_attention_fwd(const lm_kernels *k, const call *c, void *const *p)
{
  lm_attention a = attention_of(k, c, p, 3);
  k->attention_fwd(c->t, p[0], p[1], p[2], &a);
}
/* The forward of the reference gives y and lse, so that both backwards begin with the same. */
static void run_attention_bwd(const lm_kernels *k, const call *c, void *const *p)
{
  const sizes *s = &c->s;
  size_t size = lm_dtype_size(c->t), y_bytes = c->tensors[2].n * size, qkv_bytes = c->tensors[4].n * size;
  size_t lse_bytes = c->tensors[3].n * sizeof(float);
  void *y = malloc(y_bytes), *qkv = malloc(qkv_bytes);
  float *lse = malloc(lse_bytes);
  int32_t *start = malloc((size_t)s->B * (size_t)s->T * sizeof *start);
  LM_ASSERT(y != NULL && qkv != NULL && lse != NULL && start != NULL);
  k->to_host(qkv, p[4], qkv_bytes);
  lm_attention a = attention_of(k, c, p, 5), host = a;
  make_starts(start, s->B, s->T);
  if (a.start != NULL) host.start = start;
  lm_kernels_ref.attention_fwd(c->t, y, lse, qkv, &host);
  k->to_device(p[2], y, y_bytes);
  k->to_device(p[3], lse, lse_bytes);
  k->attention_bwd(c->t, p[0], p[1], p[2], p[3], p[4], &a);
  free(y), free(qkv), free(lse), free(start);
}

/* On tensor cores probabilities are factors of type t, which has 8 bits where it is bf16. */
static double attention_tolerance(lm_dtype t, double f32, double half)
{
  return t == LM_F32 ? f32 : t == LM_BF16 && only_cuda() ? 2 * half : half;
}

static void attention_with(lm_dtype t, int B, int T, int H, int H_kv, int D, bool documents, float rate)
{
  size_t BT = (size_t)B * (size_t)T, y = BT * (size_t)(H * D), qkv = BT * (size_t)((H + 2 * H_kv) * D);
  call c = new_call("attention_fwd", t, run_attention_fwd, attention_tolerance(t, 5e-6, 4e-3));
  c.s = (sizes){.B = B, .T = T, .H = H, .H_kv = H_kv, .K = D, .documents = documents, .dropout = some_dropout(rate)};
  snprintf(c.shape, sizeof c.shape, "B=%d T=%d H=%d H_kv=%d D=%d%s%s", B, T, H, H_kv, D, documents ? " documents" : "",
           rate > 0 ? " dropout" : "");
  add(&c, "y", OUT, t, y, 0, 0), add(&c, "lse", OUT, LM_F32, BT * (size_t)H, 0, 0), add(&c, "qkv", IN, t, qkv, -2, 2);
  add_starts(&c, documents ? BT : 0);
  compare(backend, &c);
  c.name = "attention_bwd", c.run = run_attention_bwd, c.count = 0, c.tolerance = attention_tolerance(t, 1e-5, 1e-2);
  add(&c, "dqkv", OUT, t, qkv, 0, 0), add(&c, "dy", IN, t, y, -1, 1), add(&c, "y", OUT, t, y, 0, 0);
  add(&c, "lse", OUT, LM_F32, BT * (size_t)H, 0, 0), add(&c, "qkv", IN, t, qkv, -2, 2);
  add_starts(&c, documents ? BT : 0);
  compare(backend, &c);
}

static void attention(lm_dtype t, int B, int T, int H, int H_kv, int D)
{
  attention_with(t, B, T, H, H_kv, D, false, 0);
}

/* Sequences in slots that are not in order, each at a place of its own; with documents, some see only the last of what
 * is kept. p[at] has room for slot, start and position. */
static lm_cache cache_of(const lm_kernels *k, const call *c, void *const *p, int at, int last)
{
  enum { MOST = 8 };
  int32_t lists[3][MOST];
  const sizes *s = &c->s;
  LM_ASSERT(s->B <= MOST);
  for (int b = 0; b < s->B; b++) {
    lists[0][b] = s->B - b; /* of B + 1 slots; 0 stays free */
    lists[2][b] = (int32_t)random_in(7, (size_t)b, 0, last + 1);
    lists[1][b] = s->documents ? lists[2][b] / 3 : 0;
  }
  for (int i = 0; i < 3; i++) k->to_device((int32_t *)p[at] + i * s->B, lists[i], (size_t)s->B * sizeof(int32_t));
  const int32_t *device = p[at];
  return (lm_cache){.keys = p[1],
                    .values = p[2],
                    .capacity = s->V,
                    .H = s->H,
                    .H_kv = s->H_kv,
                    .D = s->K,
                    .B = s->B,
                    .slot = device,
                    .start = device + s->B,
                    .position = device + 2 * s->B};
}

static void run_cache_store(const lm_kernels *k, const call *c, void *const *p)
{
  lm_cache cache = cache_of(k, c, p, 3, c->s.V - c->s.T);
  k->cache_store(c->t, &cache, p[0], c->s.T);
}
static void run_attention_next(const lm_kernels *k, const call *c, void *const *p)
{
  lm_cache cache = cache_of(k, c, p, 3, c->s.V - 1);
  k->attention_next(c->t, p[4], p[0], &cache);
}

static void cache(lm_dtype t, int B, int T, int capacity, int H, int H_kv, int D, bool documents)
{
  size_t qkv = (size_t)B * (size_t)((H + 2 * H_kv) * D), kept = (size_t)(B + 1) * (size_t)(H_kv * capacity * D);
  call c = new_call("cache_store", t, run_cache_store, 0);
  c.s = (sizes){.B = B, .T = T, .V = capacity, .H = H, .H_kv = H_kv, .K = D, .documents = documents};
  snprintf(c.shape, sizeof c.shape, "B=%d T=%d capacity=%d H=%d H_kv=%d D=%d%s", B, T, capacity, H, H_kv, D,
           documents ? " documents" : "");
  add(&c, "qkv", IN, t, qkv * (size_t)T, -2, 2);
  add(&c, "keys", INOUT, t, kept, -2, 2), add(&c, "values", INOUT, t, kept, -2, 2);
  add_starts(&c, 3 * (size_t)B);
  compare(backend, &c);
  c.name = "attention_next", c.run = run_attention_next, c.count = 0, c.tolerance = 5e-6;
  add(&c, "qkv", IN, t, qkv, -2, 2), add(&c, "keys", IN, t, kept, -2, 2), add(&c, "values", IN, t, kept, -2, 2);
  add_starts(&c, 3 * (size_t)B), add(&c, "y", OUT, t, (size_t)(B * H * D), 0, 0);
  compare(backend, &c);
}

static void run_loss(const lm_kernels *k, const call *c, void *const *p)
{
  k->cross_entropy(c->t, p[0], p[1], p[2], &c->s.objective, c->s.rows, c->s.V, c->s.Vp, 0);
}
static void run_loss_and_gradient(const lm_kernels *k, const call *c, void *const *p)
{
  k->cross_entropy(c->t, p[0], p[1], p[2], &c->s.objective, c->s.rows, c->s.V, c->s.Vp, 0.37f);
}

static void cross_entropy(lm_dtype t, size_t rows, int V, int Vp, lm_objective objective)
{
  call c = new_call("cross_entropy", t, run_loss, 2e-6);
  c.s = (sizes){.rows = rows, .V = V, .Vp = Vp, .objective = objective};
  snprintf(c.shape, sizeof c.shape, "rows=%zu V=%d Vp=%d z_loss=%g smoothing=%g", rows, V, Vp, (double)objective.z_loss,
           (double)objective.label_smoothing);
  add(&c, "loss", OUT, LM_F32, rows, 0, 0), add(&c, "z", IN, t, rows * (size_t)Vp, -20, 20);
  add_ids(&c, "target", rows, -1, V);
  compare(backend, &c);
  c.name = "cross_entropy with gradient", c.run = run_loss_and_gradient, c.tensors[1].role = INOUT;
  compare(backend, &c);
}

/* A product and GELU, in one pass where the backend has it. */
static bool in_one_pass;

static void run_linear_gelu_fwd(const lm_kernels *k, const call *c, void *const *p)
{
  const sizes *s = &c->s;
  in_one_pass =
      k->linear_gelu_fwd != NULL && k->linear_gelu_fwd(c->t, p[0], p[1], p[2], p[3], p[4], s->rows, s->N, s->K);
  if (in_one_pass) return;
  k->linear_fwd(c->t, p[1], p[2], p[3], p[4], s->rows, s->N, s->K);
  k->gelu_fwd(c->t, p[0], p[1], s->rows * (size_t)s->N);
}
static void run_linear_gelu_bwd(const lm_kernels *k, const call *c, void *const *p)
{
  const sizes *s = &c->s;
  in_one_pass = k->linear_gelu_bwd != NULL && k->linear_gelu_bwd(c->t, p[0], p[1], p[2], p[3], s->rows, s->N, s->K);
  if (in_one_pass) return;
  k->linear_bwd_input(c->t, p[0], p[1], p[2], s->rows, s->N, s->K);
  k->gelu_bwd(c->t, p[0], p[0], p[3], s->rows * (size_t)s->K);
}

/* And it says in how many passes: one may be only where it is meant to be. */
static void compare_passes(const call *c, int row)
{
  const char *only = getenv("MPILM_TEST_ONLY");
  if (only != NULL && strncmp(c->name, only, strlen(only)) != 0) return;
  compare(backend, c);
  bool fits = only_cuda() && atoi(backend->isa + strlen("sm_")) >= 90 && c->t != LM_F32 && c->s.rows > LM_FEW_ROWS &&
              row % 8 == 0;
  tap_ok(fits || !in_one_pass, "%s %s %s %s %s: in %s", backend->name, backend->isa, c->name, lm_dtype_name(c->t),
         c->shape, in_one_pass ? "one pass" : "two passes");
}

/* In one pass GELU may see what is not rounded yet, by a tanh of the device's that is good to 2^-11: at z = 3 that
 * moves the derivative by 0.003. */
static void linear_gelu(lm_dtype t, size_t M, int N, int K, bool bias)
{
  size_t n = (size_t)N, k = (size_t)K;
  call c = new_call("linear_gelu_fwd", t, run_linear_gelu_fwd, t == LM_F32 ? 5e-6 : 1e-2);
  c.s = (sizes){.rows = M, .N = N, .K = K};
  snprintf(c.shape, sizeof c.shape, "M=%zu N=%d K=%d%s", M, N, K, bias ? "" : " no bias");
  add(&c, "y", OUT, t, M * n, 0, 0), add(&c, "z", OUT, t, M * n, 0, 0), add(&c, "x", IN, t, M * k, -1, 1);
  add(&c, "w", IN, t, n * k, -0.3, 0.3), add(&c, "bias", IN, t, bias ? n : 0, -1, 1);
  compare_passes(&c, N);
  c.name = "linear_gelu_bwd", c.run = run_linear_gelu_bwd, c.count = 0;
  add(&c, "dz", OUT, t, M * k, 0, 0), add(&c, "dy", IN, t, M * n, -1, 1), add(&c, "w", IN, t, n * k, -0.3, 0.3);
  add(&c, "z", IN, t, M * k, -3, 3);
  compare_passes(&c, K);
}

/* Copies hold what was there when they were begun: they come after the operations before them, and the operations that
 * follow await() after them. Both are queued alone, where a device (or CUDAEMU_LAZY) may take its time. */
static void test_copies(const lm_kernels *k)
{
  enum { N = 5000 };
  float *x, *copied, *host = calloc(N, sizeof *host);
  lm_error err;
  const char *only = getenv("MPILM_TEST_ONLY");
  bool good = true;
  if (only != NULL && strncmp("copies", only, strlen(only)) != 0) {
    free(host);
    return;
  }
  LM_ASSERT(host != NULL && k->alloc((void **)&x, N * sizeof *x, "x", &err) == LM_OK);
  LM_ASSERT(k->copies->alloc((void **)&copied, N * sizeof *x, "a copy", &err) == LM_OK);
  for (int i = 0; i < N; i++) host[i] = (float)i;
  for (int round = 0; round < 2; round++) {
    k->to_device(x, host, N * sizeof *x);
    k->to_host(NULL, NULL, 0);
    k->scale(x, 2, N);
    k->copies->begin();
    k->copies->copy(copied, x, N / 2 * sizeof *x);
    k->copies->copy(copied + N / 2, x + N / 2, (N - N / 2) * sizeof *x);
    k->copies->end();
    k->copies->await();
    k->scale(x, 3, N);
    if (round == 1) k->to_host(NULL, NULL, 0); /* so that the operations are done first, if they may be */
    k->copies->wait();
    for (int i = 0; i < N; i++) good = good && copied[i] == 2 * host[i];
  }
  tap_ok(good, "%s %s copies: what was there between the operations before and those behind", k->name, k->isa);
  k->copies->release(copied);
  k->release(x);
  free(host);
}

static void test_operations_of(lm_dtype t)
{
  embedding(t, 1, 1, 1, true);
  embedding(t, 3, 5, 19, true);
  embedding(t, 2, 33, 784, true);
  embedding(t, 2, 7, 40, false);
  layernorm(t, 1, 2, true, false);
  layernorm(t, 7, 19, false, true);
  layernorm(t, 301, 100, true, true);
  layernorm(t, 37, 784, true, false);
  layernorm(t, 3, 4100, true, true);
  rmsnorm(t, 1, 2, false);
  rmsnorm(t, 7, 19, true);
  rmsnorm(t, 301, 100, true);
  rmsnorm(t, 37, 784, false);
  qk_norm(t, 1, 1, 1, 2);
  qk_norm(t, 7, 3, 1, 5);
  qk_norm(t, 301, 4, 2, 20);
  rope(t, 1, 1, 1, 1, 2);
  rope(t, 2, 7, 3, 1, 6);
  rope(t, 2, 130, 2, 2, 80);
  swiglu(t, 1, 1);
  swiglu(t, 7, 19);
  swiglu(t, 300, 77);
  dropout(t, 1, 1, 1, 0.5f);
  dropout(t, 2, 3, 19, 0.1f);
  dropout(t, 3, 33, 785, 0.25f);
  linear(t, 1, 1, 1, true);
  linear(t, 7, 5, 3, false);
  linear(t, 33, 65, 47, true);
  linear(t, 130, 70, 257, true);
  linear(t, 16, 131, 100, true);
  linear(t, 4, 40, 64, false);
  linear_gelu(t, 40, 24, 48, true);
  linear_gelu(t, 33, 64, 40, false);
  linear_gelu(t, 19, 24, 13, true);
  linear_gelu(t, 8, 16, 16, true);
  few_rows(t, 37, 200);
  few_rows(t, 64, 328);
  attention(t, 1, 1, 1, 1, 1);
  attention(t, 2, 7, 3, 3, 5);
  attention(t, 1, 67, 4, 2, 16);
  attention(t, 2, 130, 2, 1, 64);
  attention(t, 3, 64, 2, 2, 64);
  attention(t, 1, 200, 4, 2, 80);
  attention(t, 1, 150, 2, 1, 128);
  if (t != LM_F32) { /* tiles are longer there */
    attention(t, 1, 420, 1, 1, 64);
    attention_with(t, 1, 290, 1, 1, 128, true, 0.1f);
  }
  attention_with(t, 2, 7, 3, 1, 5, true, 0);
  attention_with(t, 3, 200, 2, 1, 16, true, 0);
  attention_with(t, 2, 67, 4, 2, 5, false, 0.1f);
  attention_with(t, 1, 130, 2, 2, 8, true, 0.3f);
  attention_with(t, 1, 90, 2, 1, 128, true, 0.2f);
  attention_with(t, 2, 140, 1, 1, 64, true, 0.2f);
  cache(t, 1, 1, 1, 1, 1, 1, false);
  cache(t, 3, 5, 37, 4, 2, 5, true);
  cache(t, 2, 64, 200, 4, 4, 64, false);
  cache(t, 7, 3, 130, 6, 1, 40, true);
  cross_entropy(t, 1, 1, 1, (lm_objective){0});
  cross_entropy(t, 5, 17, 32, (lm_objective){0});
  cross_entropy(t, 9, 2050, 2176, (lm_objective){0});
  cross_entropy(t, 5, 17, 32, (lm_objective){.z_loss = 1e-3f, .label_smoothing = 0.1f});
  cross_entropy(t, 9, 2050, 2176, (lm_objective){.label_smoothing = 0.2f});
  cross_entropy(t, 9, 2050, 2176, (lm_objective){.z_loss = 1e-2f});
}

static void test_backend(void)
{
  static const size_t lengths[] = {1, 15, 33, 40000};
  for (int t = 0; t < TYPES; t++) {
    all_at_once(types[t], 7);
    all_at_once(types[t], 40001);
  }
  for (int i = 0; i < 4; i++) {
    pointwise(lengths[i]);
    for (int t = 0; t < TYPES; t++) {
      adamw(types[t], lengths[i]);
      sgd(types[t], lengths[i], false, false);
      sgd(types[t], lengths[i], true, false);
      sgd(types[t], lengths[i], true, true);
    }
  }
  for (int i = 0; i < TYPES; i++) test_operations_of(types[i]);
}

int main(int argc, char **argv)
{
  lm_comm comm;
  int tested = 0;
  bool done = false;
  tap_begin(&comm, argc, argv);
  omp_set_dynamic(0);
  for (int i = 0; !done; i++) {
    backend = only_cuda() ? cuda_backend() : backend_at(i, &done);
    done = done || only_cuda();
    if (backend == NULL) continue;
    test_backend();
    if (backend->copies != NULL) test_copies(backend);
    tested++;
  }
  tap_ok(tested > 0, "there is a backend");
  return tap_end();
}
