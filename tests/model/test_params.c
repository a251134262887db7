/* tests/model/test_params.c - the config check, the parameter table against published counts, the initial values. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "model/model.h"
#include "tests/tap.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

static const lm_model_config tiny = {
    .vocab_size = 257, .n_layer = 2, .n_head = 2, .n_embd = 32, .n_ctx = 16, .tied = true, .bias = true};

static lm_model_config gpt2(int L, int H, int C)
{
  return (lm_model_config){
      .vocab_size = 50257, .n_layer = L, .n_head = H, .n_embd = C, .n_ctx = 1024, .tied = true, .bias = true};
}

static lm_param_table table_of(lm_model_config cfg)
{
  lm_param_table t;
  lm_error err = {0};
  tap_ok(lm_param_table_new(&t, &cfg, &err) == LM_OK, "a table is made %s", err.text);
  return t;
}

static void test_counts(void)
{
  static const struct {
    int L, H, C;
    size_t want; /* Radford et al. 2019's four sizes, as published with their weights */
  } sizes[] = {
      {12, 12, 768, 124439808}, {24, 16, 1024, 354823168}, {36, 20, 1280, 774030080}, {48, 25, 1600, 1557611200}};
  for (size_t i = 0; i < 4; i++) {
    lm_param_table t = table_of(gpt2(sizes[i].L, sizes[i].H, sizes[i].C));
    tap_ok(t.parameters == sizes[i].want, "L=%d C=%d has %zu parameters", sizes[i].L, sizes[i].C, sizes[i].want);
    lm_param_table_free(&t);
  }
  lm_model_config cfg = tiny;
  lm_param_table t = table_of(cfg);
  tap_ok(t.parameters == 34208, "the tiny model has 34208 parameters, the shared matrix counted once");
  lm_param_table_free(&t);
  cfg.tied = false;
  t = table_of(cfg);
  tap_ok(t.parameters == 42432, "untied 42432");
  lm_param_table_free(&t);
}

static lm_model_config llama(int V, int L, int H_kv, int C, int F, bool tied)
{
  return (lm_model_config){.vocab_size = V,
                           .n_layer = L,
                           .n_head = 32,
                           .n_kv_head = H_kv,
                           .n_embd = C,
                           .n_ff = F,
                           .n_ctx = 8192,
                           .tied = tied,
                           .norm = LM_NORM_RMSNORM,
                           .mlp = LM_MLP_SWIGLU,
                           .position = LM_POSITION_ROPE};
}

/* As published with the weights. */
static void test_llama_counts(void)
{
  static const struct {
    const char *name;
    int V, L, H_kv, C, F;
    bool tied;
    size_t want;
  } models[] = {{"Llama-3-8B", 128256, 32, 8, 4096, 14336, false, 8030261248},
                {"Llama-3.2-1B", 128256, 16, 8, 2048, 8192, true, 1235814400},
                {"TinyLlama", 32000, 22, 4, 2048, 5632, false, 1100048384}};
  for (size_t i = 0; i < 3; i++) {
    lm_model_config cfg = llama(models[i].V, models[i].L, models[i].H_kv, models[i].C, models[i].F, models[i].tied);
    lm_param_table t = table_of(cfg);
    tap_ok(t.parameters == models[i].want, "%s has %zu parameters", models[i].name, models[i].want);
    double lookups = cfg.tied ? 0 : (double)cfg.vocab_size * (double)cfg.n_embd;
    tap_ok(lm_model_flops_per_token(&cfg, 1024) ==
               6 * ((double)t.parameters - lookups) + 6.0 * models[i].L * models[i].C * 1024,
           "and 6 N + 6 L C T operations a token");
    lm_param_table_free(&t);
  }
}

/* Decay is for matrices: the two embeddings and four a layer. */
static void test_decayed(void)
{
  lm_param_table t = table_of(gpt2(12, 12, 768));
  size_t tensors[2] = {0, 0}, parameters[2] = {0, 0};
  for (size_t i = 0; i < t.n; i++) {
    tensors[t.params[i].decayed]++;
    parameters[t.params[i].decayed] += t.params[i].count;
  }
  tap_ok(tensors[1] == 50 && parameters[1] == 124318464, "decayed: 124318464 parameters in 50 tensors");
  tap_ok(tensors[0] == 98 && parameters[0] == 121344, "not decayed: 121344 parameters in 98 tensors");
  lm_param_table_free(&t);
}

static bool has(const lm_param_table *t, const char *name, int ndim, size_t n0, size_t n1)
{
  const lm_param *p = lm_param_find(t, name);
  return p != NULL && p->ndim == ndim && p->shape[0] == n0 && p->shape[1] == n1 && p->count == n0 * n1;
}

static void test_layout(bool tied, bool bias)
{
  lm_model_config cfg = tiny;
  cfg.tied = tied;
  cfg.bias = bias;
  lm_param_table t = table_of(cfg);
  size_t end = 0;
  bool aligned = true, tiled = true;
  for (size_t i = 0; i < t.n; i++) {
    const lm_param *p = &t.params[i];
    aligned = aligned && p->offset % 64 == 0 && p->reserved % 64 == 0;
    tiled = tiled && p->offset == end && p->reserved >= p->count;
    end = p->offset + p->reserved;
  }
  tap_ok(aligned, "offsets are multiples of 64 elements (tied %d, bias %d)", tied, bias);
  tap_ok(tiled && end == t.elements, "the parameters tile the flat space");
  tap_ok(has(&t, "token_embedding/weight", 2, 257, 32), "the vocabulary's padding is not in the shape");
  tap_ok(lm_param_find(&t, "token_embedding/weight")->reserved == 384 * 32, "257 rows reserve 384");
  tap_ok(has(&t, "layers/1/attention/qkv/weight", 2, 96, 32) && has(&t, "layers/1/mlp/up/weight", 2, 128, 32) &&
             has(&t, "layers/1/mlp/down/weight", 2, 32, 128) && has(&t, "layers/1/attention/out/weight", 2, 32, 32),
         "matrices are output by input");
  tap_ok(has(&t, "layers/0/attention_norm/bias", 1, 32, 1) == bias && has(&t, "final_norm/bias", 1, 32, 1) == bias &&
             has(&t, "layers/0/mlp/up/bias", 1, 128, 1) == bias,
         "biases are there or not");
  tap_ok(has(&t, "head/weight", 2, 257, 32) == !tied, "an untied head has its own matrix");
  tap_ok(t.n == (bias ? 2u + 2 * 12 + 2 : 2u + 2 * 6 + 1) + !tied, "%zu tensors", t.n);
  tap_ok(lm_param_find(&t, "layers/2/mlp/up/weight") == NULL, "there is no third layer");
  lm_param_table_free(&t);
}

static void test_llama_layout(void)
{
  lm_model_config cfg = llama(1000, 2, 8, 64, 96, false);
  cfg.qk_norm = true;
  lm_param_table t = table_of(cfg);
  tap_ok(has(&t, "layers/1/attention/qkv/weight", 2, 64 + 2 * 16, 64), "fewer key and value heads: a slimmer matrix");
  tap_ok(has(&t, "layers/1/mlp/gate_up/weight", 2, 192, 64) && has(&t, "layers/1/mlp/down/weight", 2, 64, 96),
         "gate and up are one matrix");
  tap_ok(has(&t, "layers/0/attention/q_norm/weight", 1, 2, 1) && has(&t, "layers/0/attention/k_norm/weight", 1, 2, 1),
         "norms of heads");
  tap_ok(lm_param_find(&t, "position_embedding/weight") == NULL && lm_param_find(&t, "final_norm/bias") == NULL,
         "no positions, no biases");
  tap_ok(t.n == 1 + 2 * 8 + 1 + 1, "%zu tensors", t.n);
  lm_param_table_free(&t);
}

static void refused(const char *what, lm_model_config cfg, const char *word0, const char *word1, const char *word2)
{
  lm_error err = {0};
  lm_status s = lm_model_config_check(&cfg, &err);
  tap_ok(s == LM_EINVAL && strstr(err.text, word0) && strstr(err.text, word1) && strstr(err.text, word2), "%s: %s",
         what, err.text);
  lm_param_table t;
  tap_ok(lm_param_table_new(&t, &cfg, &err) == LM_EINVAL && t.params == NULL, "and there is no table");
}

static void test_check(void)
{
  lm_model_config cfg = gpt2(48, 48, 1600);
  refused("48 heads in 1600 channels", cfg, "1600", "48", "40 or 50");
  cfg = tiny;
  cfg.n_head = 33;
  refused("more heads than channels", cfg, "32", "33", "e.g. 32 heads");
  cfg = tiny;
  cfg.n_ctx = 0;
  refused("no context", cfg, "n_ctx", "is 0", "1 to");
  cfg = tiny;
  cfg.vocab_size = -5;
  refused("negative vocabulary", cfg, "vocab_size", "-5", "2 to");
  cfg = tiny;
  cfg.vocab_size = (int64_t)1 << 40;
  refused("huge vocabulary", cfg, "vocab_size", "1099511627776", "2 to");
  cfg = tiny;
  cfg.n_layer = 0;
  refused("no layers", cfg, "n_layer", "is 0", "1 to");
  cfg = tiny;
  cfg.n_head = 0;
  refused("no heads", cfg, "n_head", "is 0", "1 to");
  cfg = tiny;
  cfg.n_embd = 0;
  refused("no channels", cfg, "n_embd", "is 0", "1 to");
  cfg = gpt2(2, 6, 48);
  cfg.n_kv_head = 4;
  refused("4 key heads for 6 query heads", cfg, "n_head is 6", "n_kv_head is 4", "3 or 6");
  cfg.n_kv_head = 12;
  refused("more key heads than query heads", cfg, "n_kv_head", "is 12", "1 to 6");
  cfg = gpt2(2, 16, 48);
  cfg.position = LM_POSITION_ROPE;
  refused("heads of three channels that should turn", cfg, "rope", "3 channels", "even");
  cfg = llama(1000, 2, 8, 64, 96, false);
  cfg.rope.scaling = LM_ROPE_LLAMA3;
  refused("scaling without numbers", cfg, "rope_factor", "is 0", "at least 1");
  cfg.rope = (lm_rope_config){.base = 0.5};
  refused("a base below 1", cfg, "rope_base", "0.5", "above 1");
  cfg = tiny;
  cfg.dropout = 1;
  refused("dropout of all", cfg, "dropout", "is 1", "below 1");
  cfg = tiny;
  cfg.norm_eps = -1e-5;
  refused("a negative epsilon", cfg, "norm_eps", "-1e-05", "above 0");
}

/* Mean and deviation within five standard errors of what N(0, want^2) gives. */
static bool looks_normal(const float *x, size_t n, double want)
{
  double sum = 0, squares = 0;
  for (size_t i = 0; i < n; i++) {
    sum += x[i];
    squares += (double)x[i] * x[i];
  }
  double mean = sum / (double)n, variance = squares / (double)n;
  return fabs(mean) < 5 * want / sqrt((double)n) && fabs(variance / (want * want) - 1) < 5 * sqrt(2.0 / (double)n);
}

static bool all_are(const float *x, size_t n, float want)
{
  for (size_t i = 0; i < n; i++)
    if (x[i] != want) return false;
  return true;
}

static void test_init_values(const lm_param_table *t, const float *w)
{
  bool good[4] = {true, true, true, true}, padding = true;
  for (size_t i = 0; i < t->n; i++) {
    const lm_param *p = &t->params[i];
    const float *x = w + p->offset;
    bool residual = strstr(p->name, "/out/weight") != NULL || strstr(p->name, "/down/weight") != NULL;
    if (p->ndim == 2)
      good[residual] = good[residual] && looks_normal(x, p->count, residual ? 0.02 / sqrt(4) : 0.02);
    else
      good[2 + (strstr(p->name, "norm/weight") != NULL)] &=
          all_are(x, p->count, strstr(p->name, "norm/weight") != NULL);
    padding = padding && all_are(x + p->count, p->reserved - p->count, 0);
  }
  tap_ok(good[0], "matrices are N(0, 0.02^2)");
  tap_ok(good[1], "projections into the residual stream N(0, 0.02^2 / (2 L))");
  tap_ok(good[2] && good[3], "biases are 0, gains are 1");
  tap_ok(padding, "padding is 0");
}

/* The k-th of `parts` pieces of n elements; pieces are uneven, some are empty. */
static size_t cut(size_t n, int k, int parts)
{
  return n * (size_t)k / (size_t)parts * (size_t)k / (size_t)parts;
}

static void test_init(void)
{
  lm_param_table t = table_of(tiny);
  float *w = calloc(t.elements, sizeof *w), *pieces = calloc(t.elements, sizeof *pieces);
  lm_param_init(&t, &tiny, 42, 0, t.elements, w);
  test_init_values(&t, w);
  for (int parts = 1; parts <= 600; parts = 3 * parts + 1) {
    memset(pieces, 0xff, t.elements * sizeof *pieces);
    for (int k = 0; k < parts; k++) {
      size_t begin = cut(t.elements, k, parts), end = cut(t.elements, k + 1, parts);
      lm_param_init(&t, &tiny, 42, begin, end - begin, pieces + begin);
    }
    tap_ok(memcmp(w, pieces, t.elements * sizeof *w) == 0, "in %d pieces the same bits", parts);
  }
  lm_param_init(&t, &tiny, 43, 0, t.elements, pieces);
  const lm_param *q0 = lm_param_find(&t, "layers/0/attention/qkv/weight");
  const lm_param *q1 = lm_param_find(&t, "layers/1/attention/qkv/weight");
  tap_ok(memcmp(w + q0->offset, pieces + q0->offset, q0->count * sizeof *w) != 0, "another seed, other values");
  tap_ok(memcmp(w + q0->offset, w + q1->offset, q0->count * sizeof *w) != 0, "another name, other values");

  /* The same model without biases and with another context is another layout, but the same values by name. */
  lm_model_config other = tiny;
  other.bias = false;
  other.n_ctx = 5;
  lm_param_table u = table_of(other);
  lm_param_init(&u, &other, 42, 0, u.elements, pieces);
  const lm_param *r1 = lm_param_find(&u, "layers/1/attention/qkv/weight");
  tap_ok(r1->offset != q1->offset && memcmp(w + q1->offset, pieces + r1->offset, q1->count * sizeof *w) == 0,
         "another layout, the same values");
  lm_param_table_free(&u);
  lm_param_table_free(&t);
  free(w);
  free(pieces);
}

static void test_init_threads(void)
{
  lm_model_config cfg = tiny;
  cfg.n_embd = 96; /* large enough to be shared out */
  lm_param_table t = table_of(cfg);
  float *one = calloc(t.elements, sizeof *one), *three = calloc(t.elements, sizeof *three);
  int before = omp_get_max_threads();
  omp_set_num_threads(1);
  lm_param_init(&t, &cfg, 42, 0, t.elements, one);
  omp_set_num_threads(3);
  lm_param_init(&t, &cfg, 42, 0, t.elements, three);
  omp_set_num_threads(before);
  tap_ok(memcmp(one, three, t.elements * sizeof *one) == 0, "on three threads the same bits");
  free(one);
  free(three);
  lm_param_table_free(&t);
}

static void test_flops(void)
{
  lm_model_config cfg = gpt2(12, 12, 768);
  double ours = lm_model_flops_per_token(&cfg, 1024);
  /* llm.c prints 803478528: it also counts the position table and the 47 rows that pad its vocabulary to 50304. */
  tap_ok(ours + 6.0 * (1024 * 768 + 47 * 768) == 803478528, "GPT-2 124M: llm.c's count less what is only looked up");
  lm_param_table t = table_of(tiny);
  tap_ok(lm_model_flops_per_token(&tiny, 16) == 6.0 * (34208 - 16 * 32) + 6.0 * 2 * 32 * 16, "the tiny model");
  lm_param_table_free(&t);
  cfg = tiny;
  cfg.tied = false;
  tap_ok(lm_model_flops_per_token(&cfg, 16) == lm_model_flops_per_token(&tiny, 16), "an untied head costs the same");
  cfg.bias = false;
  t = table_of(cfg);
  tap_ok(lm_model_flops_per_token(&cfg, 16) == 6.0 * (double)(t.parameters - (16 + 257) * 32) + 6.0 * 2 * 32 * 16,
         "without biases");
  lm_param_table_free(&t);
}

int main(int argc, char **argv)
{
  lm_comm comm;
  tap_begin(&comm, argc, argv);
  test_counts();
  test_llama_counts();
  test_llama_layout();
  test_decayed();
  for (int i = 0; i < 4; i++) test_layout((i & 1) != 0, (i & 2) != 0);
  test_check();
  test_init();
  test_init_threads();
  test_flops();
  return tap_end();
}
