/* src/model/params.c - the parameter table in closed form, and the initial values. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/hash.h"
#include "base/memory.h"
#include "base/rng.h"
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  ALIGN = 64,        /* elements: every parameter starts on a cache line, in bf16 too */
  VOCAB_ALIGN = 128, /* rows: products over the vocabulary run in full tiles */
  ROWS_A_LAYER = 14, /* two norms and four linear layers, weight and bias each; norms of queries and of keys */
  ROWS_AROUND = 5,   /* two embeddings, the final norm's two, the head */
};

static size_t round_up(size_t n, size_t to)
{
  return (n + to - 1) / to * to;
}

int64_t lm_model_padded_vocab(const lm_model_config *cfg)
{
  return (int64_t)round_up((size_t)cfg->vocab_size, VOCAB_ALIGN);
}

/* What the rows of one table share while it is built. */
typedef struct builder {
  lm_param_table *t;
  const lm_model_config *cfg;
  char prefix[32]; /* "layers/3/", or "" */
  size_t group;
} builder;

/* A row: a vector [n0] where n1 is 0, else a matrix [n0,n1]. */
static lm_param *add(builder *b, const char *name, int64_t n0, int64_t n1, lm_init init)
{
  lm_param *p = &b->t->params[b->t->n++];
  snprintf(p->name, sizeof p->name, "%s%s", b->prefix, name);
  p->ndim = n1 == 0 ? 1 : 2;
  p->shape[0] = (size_t)n0;
  p->shape[1] = n1 == 0 ? 1 : (size_t)n1;
  p->count = p->shape[0] * p->shape[1];
  p->offset = b->t->elements;
  p->reserved = round_up(p->count, ALIGN);
  p->init = init;
  p->decayed = p->ndim == 2;
  p->group = b->group;
  b->t->elements += p->reserved;
  b->t->parameters += p->count;
  return p;
}

/* A matrix with a row for each token; the rows that pad the vocabulary are reserved, not part of its shape. As the head
 * it is the first in backward. */
static void add_vocab(builder *b, const char *name, bool head)
{
  lm_param *p = add(b, name, b->cfg->vocab_size, b->cfg->n_embd, LM_INIT_NORMAL);
  p->reserved = round_up((size_t)lm_model_padded_vocab(b->cfg) * (size_t)b->cfg->n_embd, ALIGN);
  p->stored = head;
  b->t->elements = p->offset + p->reserved;
}

static void add_norm(builder *b, const char *name)
{
  char full[64];
  snprintf(full, sizeof full, "%s/weight", name);
  add(b, full, b->cfg->n_embd, 0, LM_INIT_ONE);
  snprintf(full, sizeof full, "%s/bias", name);
  if (b->cfg->bias && b->cfg->norm == LM_NORM_LAYERNORM) add(b, full, b->cfg->n_embd, 0, LM_INIT_ZERO);
}

static void add_linear(builder *b, const char *name, int64_t out, int64_t in, lm_init init)
{
  char full[64];
  snprintf(full, sizeof full, "%s/weight", name);
  add(b, full, out, in, init)->stored = true;
  snprintf(full, sizeof full, "%s/bias", name);
  if (b->cfg->bias) add(b, full, out, 0, LM_INIT_ZERO)->stored = true;
}

static void add_layer(builder *b, int64_t layer)
{
  const lm_model_config *c = b->cfg;
  int64_t C = c->n_embd, D = C / c->n_head, F = c->n_ff;
  snprintf(b->prefix, sizeof b->prefix, "layers/%lld/", (long long)layer);
  add_norm(b, "attention_norm");
  add_linear(b, "attention/qkv", C + 2 * c->n_kv_head * D, C, LM_INIT_NORMAL);
  if (c->qk_norm) add(b, "attention/q_norm/weight", D, 0, LM_INIT_ONE);
  if (c->qk_norm) add(b, "attention/k_norm/weight", D, 0, LM_INIT_ONE);
  add_linear(b, "attention/out", C, C, LM_INIT_RESIDUAL);
  add_norm(b, "mlp_norm");
  if (c->mlp == LM_MLP_SWIGLU)
    add_linear(b, "mlp/gate_up", 2 * F, C, LM_INIT_NORMAL); /* F rows of the gate, then F of what it lets through */
  else
    add_linear(b, "mlp/up", F, C, LM_INIT_NORMAL);
  add_linear(b, "mlp/down", C, F, LM_INIT_RESIDUAL);
  b->prefix[0] = '\0';
}

lm_status lm_param_table_new(lm_param_table *out, const lm_model_config *config, lm_error *err)
{
  *out = (lm_param_table){0};
  LM_TRY(lm_model_config_check(config, err));
  const lm_model_config cfg = lm_model_config_resolved(config);
  size_t rows = (size_t)cfg.n_layer * ROWS_A_LAYER + ROWS_AROUND;
  LM_TRY(lm_alloc(&out->params, rows, sizeof *out->params, "the parameter table", err));
  LM_TRY(lm_alloc(&out->groups, (size_t)cfg.n_layer + 2, sizeof *out->groups, "the parameter table", err));
  builder b = {.t = out, .cfg = &cfg};
  add_vocab(&b, "token_embedding/weight", cfg.tied);
  if (cfg.position == LM_POSITION_LEARNED) add(&b, "position_embedding/weight", cfg.n_ctx, cfg.n_embd, LM_INIT_NORMAL);
  for (int64_t layer = 0; layer < cfg.n_layer; layer++) {
    b.group++;
    add_layer(&b, layer);
  }
  b.group++;
  add_norm(&b, "final_norm");
  if (!cfg.tied) add_vocab(&b, "head/weight", true);
  LM_ASSERT(out->n <= rows);
  out->n_groups = b.group + 1;
  lm_param_table_group(out);
  return LM_OK;
}

void lm_param_table_free(lm_param_table *t)
{
  free(t->params);
  free(t->groups);
  *t = (lm_param_table){0};
}

const lm_param *lm_param_find(const lm_param_table *t, const char *name)
{
  for (size_t i = 0; i < t->n; i++)
    if (strcmp(t->params[i].name, name) == 0) return &t->params[i];
  return NULL;
}

/* A block of four random words gives two elements: an element is a pure function of (seed, name, its number). */
static float normal_element(uint64_t seed, uint64_t name, size_t element, double deviation)
{
  uint32_t w[4];
  lm_random_words(seed, LM_STREAM_INIT, name, element / 2, w);
  const uint32_t *pair = w + element % 2 * 2;
  return (float)(deviation * lm_normal(pair[0], pair[1]));
}

/* Elements [begin, begin + n) of one parameter, all below its count. */
static void init_elements(const lm_param *p, const lm_model_config *cfg, uint64_t seed, size_t begin, size_t n,
                          float *out)
{
  if (p->init == LM_INIT_ZERO || p->init == LM_INIT_ONE) {
    for (size_t i = 0; i < n; i++) out[i] = p->init == LM_INIT_ONE;
    return;
  }
  double deviation = p->init == LM_INIT_RESIDUAL ? 0.02 / sqrt(2.0 * (double)cfg->n_layer) : 0.02;
  uint64_t name = lm_hash(p->name, strlen(p->name));
#pragma omp parallel for schedule(static) if (n > 1 << 14)
  for (size_t i = 0; i < n; i++) out[i] = normal_element(seed, name, begin + i, deviation);
}

void lm_param_init(const lm_param_table *t, const lm_model_config *cfg, uint64_t seed, size_t begin, size_t n,
                   float *out)
{
  LM_ASSERT(begin <= t->elements && n <= t->elements - begin);
  if (n > 0) memset(out, 0, n * sizeof *out); /* padding is 0 */
  for (size_t i = 0; i < t->n; i++) {
    const lm_param *p = &t->params[i];
    size_t from = begin > p->offset ? begin : p->offset;
    size_t p_end = p->offset + p->count, to = begin + n < p_end ? begin + n : p_end;
    if (from < to) init_elements(p, cfg, seed, from - p->offset, to - from, out + (from - begin));
  }
}
