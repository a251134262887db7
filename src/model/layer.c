/* src/model/layer.c - the layers, forward and backward: from tokens to the final norm, and back. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "model/parts.h"

void lm_linear_fwd(lm_model *m, const lm_linear *l, void *y, const void *x, size_t rows)
{
  m->k->linear_fwd(m->t, y, x, lm_model_weight(m, l->weight), lm_model_weight(m, l->bias), rows, l->out, l->in);
}

static void linear_bwd_weight(lm_model *m, const lm_linear *l, bool add, const void *dy, const void *x, size_t rows)
{
  float *dw = lm_model_gradient(m, l->weight), *dbias = lm_model_gradient(m, l->bias);
  m->k->linear_bwd_weight(m->t, add, dw, dbias, dy, x, rows, l->out, l->in);
}

static void linear_bwd_input(lm_model *m, const lm_linear *l, void *dx, const void *dy, size_t rows)
{
  m->k->linear_bwd_input(m->t, dx, dy, lm_model_weight(m, l->weight), rows, l->out, l->in);
}

void lm_linear_bwd(lm_model *m, const lm_linear *l, bool add, void *dx, const void *dy, const void *x, size_t rows)
{
  linear_bwd_weight(m, l, add, dy, x, rows);
  linear_bwd_input(m, l, dx, dy, rows);
}

/* in = x + branch, out = norm(in); where branch is NULL, in is there already. */
static void norm_fwd(lm_model *m, const lm_norm *n, const void *x, const void *branch, size_t rows)
{
  const void *gain = lm_model_weight(m, n->weight), *bias = lm_model_weight(m, n->bias);
  void *sum = branch == NULL ? NULL : n->in;
  float eps = (float)m->cfg.norm_eps;
  if (branch == NULL) x = n->in;
  if (m->cfg.norm == LM_NORM_RMSNORM)
    m->k->rmsnorm_fwd(m->t, n->out, n->rstd, sum, x, branch, gain, rows, m->C, eps);
  else
    m->k->layernorm_fwd(m->t, n->out, n->mean, n->rstd, sum, x, branch, gain, bias, rows, m->C, eps);
}

/* dresidual += the gradient of in, from dy, that of out. */
static void norm_bwd(lm_model *m, const lm_norm *n, const void *dy, size_t rows)
{
  const void *gain = lm_model_weight(m, n->weight);
  float *dgain = lm_model_gradient(m, n->weight), *dbias = lm_model_gradient(m, n->bias);
  if (m->cfg.norm == LM_NORM_RMSNORM)
    m->k->rmsnorm_bwd(m->t, m->work.dresidual, dgain, dy, n->in, n->rstd, gain, rows, m->C);
  else
    m->k->layernorm_bwd(m->t, m->work.dresidual, dgain, dbias, dy, n->in, n->mean, n->rstd, gain, rows, m->C);
}

/* ---- dropout: of the embedding, and three a layer ---- */

enum { OF_EMBEDDING, OF_ATTENTION, OF_MIXED, OF_MLP, OF_LAYER = 3 };

static lm_dropout dropout_at(const lm_model *m, int layer, int what)
{
  lm_dropout d = m->dropout;
  d.place = (uint32_t)(layer * OF_LAYER + what);
  return d;
}

static void drop(lm_model *m, void *y, const void *x, int layer, int what, int B, int T)
{
  const lm_dropout d = dropout_at(m, layer, what);
  if (d.rate > 0) m->k->dropout(m->t, y, x, &d, B, T, m->C);
}

/* The gradient of a branch, from that of the residual stream which it was added to. */
static const void *branch_gradient(lm_model *m, int layer, int what, int B, int T)
{
  if (m->dropout.rate == 0) return m->work.dresidual;
  drop(m, m->work.wide, m->work.dresidual, layer, what, B, T);
  return m->work.wide;
}

/* ---- attention ---- */

/* Are the rows one token each of sequences that grow? */
static bool one_each(const lm_model *m)
{
  return m->growth != NULL && m->growth->one_each;
}

static lm_attention attention_of(const lm_model *m, const lm_dropout *dropout, int B, int T)
{
  return (lm_attention){.B = B,
                        .T = T,
                        .H = m->H,
                        .H_kv = m->H_kv,
                        .D = m->D,
                        .start = m->end_of_text < 0 ? NULL : m->work.start,
                        .dropout = dropout->rate > 0 ? dropout : NULL};
}

/* Rotary positions: a row's own where each is of another sequence. */
static void turn(lm_model *m, const lm_layer *l, int B, int T)
{
  size_t row = (size_t)l->qkv.out;
  if (m->work.angles == NULL) return;
  if (!one_each(m)) m->k->rope(m->t, l->heads, m->work.angles, 0, false, B, T, m->H, m->H_kv, m->D);
  for (int b = 0; one_each(m) && b < B; b++)
    m->k->rope(m->t, lm_model_at(m, l->heads, (size_t)b * row), m->work.angles, m->growth->position[b], false, 1, 1,
               m->H, m->H_kv, m->D);
}

static lm_cache cache_of(const lm_model *m, int layer)
{
  lm_cache c = m->growth->cache;
  size_t at = (size_t)layer * m->growth->layer_bytes;
  c.keys = (char *)c.keys + at;
  c.values = (char *)c.values + at;
  return c;
}

/* Keys and values of the T rows of each sequence, for the tokens that follow. */
static void keep(lm_model *m, int layer, int T)
{
  const lm_cache c = cache_of(m, layer);
  m->k->cache_store(m->t, &c, m->layers[layer].heads, T);
}

/* Attention of one token a sequence, to what is kept. */
static void look_back(lm_model *m, int layer)
{
  const lm_cache c = cache_of(m, layer);
  m->k->attention_next(m->t, m->layers[layer].mixed, m->layers[layer].heads, &c);
}

/* attention_norm.out -> mixed. */
static void mix(lm_model *m, int layer, int B, int T)
{
  const lm_layer *l = &m->layers[layer];
  const lm_dropout dropout = dropout_at(m, layer, OF_ATTENTION);
  const lm_attention a = attention_of(m, &dropout, B, T);
  size_t rows = (size_t)B * (size_t)T;
  lm_linear_fwd(m, &l->qkv, l->qkv_out, l->attention_norm.out, rows);
  if (m->cfg.qk_norm)
    m->k->qk_norm_fwd(m->t, l->heads, l->heads_rstd, l->qkv_out, lm_model_weight(m, l->q_norm),
                      lm_model_weight(m, l->k_norm), rows, m->H, m->H_kv, m->D, (float)m->cfg.norm_eps);
  turn(m, l, B, T);
  if (m->growth != NULL) keep(m, layer, T);
  if (one_each(m))
    look_back(m, layer);
  else
    m->k->attention_fwd(m->t, l->mixed, l->lse, l->heads, &a);
}

static void attention_fwd(lm_model *m, int layer, void *branch, int B, int T)
{
  const lm_layer *l = &m->layers[layer];
  mix(m, layer, B, T);
  lm_linear_fwd(m, &l->out, branch, l->mixed, (size_t)B * (size_t)T);
  drop(m, branch, branch, layer, OF_MIXED, B, T);
}

/* dx = the gradient of attention_norm.out. Every product ends before dx or the branch's gradient is used again. */
static void attention_bwd(lm_model *m, int layer, void *dx, int B, int T)
{
  const lm_layer *l = &m->layers[layer];
  const lm_dropout dropout = dropout_at(m, layer, OF_ATTENTION);
  const lm_attention a = attention_of(m, &dropout, B, T);
  size_t rows = (size_t)B * (size_t)T;
  void *dmixed = dx, *dqkv = m->work.wide;
  lm_linear_bwd(m, &l->out, lm_model_adds(m), dmixed, branch_gradient(m, layer, OF_MIXED, B, T), l->mixed, rows);
  m->k->attention_bwd(m->t, dqkv, dmixed, l->mixed, l->lse, l->heads, &a);
  if (m->work.angles != NULL) m->k->rope(m->t, dqkv, m->work.angles, 0, true, B, T, m->H, m->H_kv, m->D);
  if (m->cfg.qk_norm)
    m->k->qk_norm_bwd(m->t, dqkv, lm_model_gradient(m, l->q_norm), lm_model_gradient(m, l->k_norm), l->qkv_out,
                      l->heads_rstd, lm_model_weight(m, l->q_norm), lm_model_weight(m, l->k_norm), rows, m->H, m->H_kv,
                      m->D);
  lm_linear_bwd(m, &l->qkv, lm_model_adds(m), dx, dqkv, l->attention_norm.out, rows);
}

/* ---- MLP ---- */

/* Products with GELU in them, where the backend has such; false: it has not. */
static bool up_and_gelu(lm_model *m, const lm_layer *l, size_t rows)
{
  const lm_linear *up = &l->up;
  return m->cfg.mlp == LM_MLP_GELU && m->k->linear_gelu_fwd != NULL &&
         m->k->linear_gelu_fwd(m->t, l->activated, l->up_out, l->mlp_norm.out, lm_model_weight(m, up->weight),
                               lm_model_weight(m, up->bias), rows, up->out, up->in);
}

static bool down_and_gelu_bwd(lm_model *m, const lm_layer *l, void *dup, const void *dy, size_t rows)
{
  const lm_linear *down = &l->down;
  return m->cfg.mlp == LM_MLP_GELU && m->k->linear_gelu_bwd != NULL &&
         m->k->linear_gelu_bwd(m->t, dup, dy, lm_model_weight(m, down->weight), l->up_out, rows, down->out, down->in);
}

/* mlp_norm.out -> activated. */
static void activate(lm_model *m, const lm_layer *l, size_t rows)
{
  if (up_and_gelu(m, l, rows)) return;
  lm_linear_fwd(m, &l->up, l->up_out, l->mlp_norm.out, rows);
  if (m->cfg.mlp == LM_MLP_SWIGLU)
    m->k->swiglu_fwd(m->t, l->activated, l->up_out, rows, m->F);
  else
    m->k->gelu_fwd(m->t, l->activated, l->up_out, rows * (size_t)m->F);
}

static void mlp_fwd(lm_model *m, int layer, void *branch, int B, int T)
{
  const lm_layer *l = &m->layers[layer];
  size_t rows = (size_t)B * (size_t)T;
  activate(m, l, rows);
  lm_linear_fwd(m, &l->down, branch, l->activated, rows);
  drop(m, branch, branch, layer, OF_MLP, B, T);
}

/* dx = the gradient of mlp_norm.out. That of activated takes its place: nothing else needs it any more. */
static void mlp_bwd(lm_model *m, int layer, void *dx, int B, int T)
{
  const lm_layer *l = &m->layers[layer];
  size_t rows = (size_t)B * (size_t)T;
  void *dactivated = l->activated, *dup = m->cfg.mlp == LM_MLP_SWIGLU ? m->work.wide : dactivated;
  const void *dy = branch_gradient(m, layer, OF_MLP, B, T);
  linear_bwd_weight(m, &l->down, lm_model_adds(m), dy, l->activated, rows);
  if (!down_and_gelu_bwd(m, l, dup, dy, rows)) {
    linear_bwd_input(m, &l->down, dactivated, dy, rows);
    if (m->cfg.mlp == LM_MLP_SWIGLU)
      m->k->swiglu_bwd(m->t, dup, dactivated, l->up_out, rows, m->F);
    else
      m->k->gelu_bwd(m->t, dup, dactivated, l->up_out, rows * (size_t)m->F);
  }
  lm_linear_bwd(m, &l->up, lm_model_adds(m), dx, dup, l->mlp_norm.out, rows);
}

/* ---- all layers ---- */

static void embed(lm_model *m, void *y, int B, int T)
{
  size_t C = (size_t)m->C, bytes = C * lm_dtype_size(m->t);
  const char *wte = lm_model_weight(m, m->token_embedding), *wpe = lm_model_weight(m, m->position_embedding);
  if (!one_each(m)) m->k->embedding_fwd(m->t, y, m->work.tokens, wte, wpe, B, T, m->C);
  for (int b = 0; one_each(m) && b < B; b++)
    m->k->embedding_fwd(m->t, lm_model_at(m, y, (size_t)b * C), m->work.tokens + b, wte,
                        wpe == NULL ? NULL : wpe + (size_t)m->growth->position[b] * bytes, 1, 1, m->C);
}

/* A branch is added to the residual stream by the norm that follows it, in this layer or in the next. */
void lm_model_forward(lm_model *m, int B, int T)
{
  size_t rows = (size_t)B * (size_t)T;
  void *branch = NULL, *embedded = m->layers[0].attention_norm.in;
  const void *x = NULL;
  embed(m, embedded, B, T);
  drop(m, embedded, embedded, 0, OF_EMBEDDING, B, T);
  for (int i = 0; i < m->L; i++) {
    const lm_layer *l = &m->layers[i];
    norm_fwd(m, &l->attention_norm, x, branch, rows);
    branch = m->work.narrow;
    attention_fwd(m, i, branch, B, T);
    norm_fwd(m, &l->mlp_norm, l->attention_norm.in, branch, rows);
    mlp_fwd(m, i, branch, B, T);
    x = l->mlp_norm.in;
  }
  norm_fwd(m, &m->final_norm, x, branch, rows);
}

/* What backward needs of a layer that kept only its input; by the same calls, so to the same bits. */
static void remake_block(lm_model *m, int layer, int B, int T)
{
  const lm_layer *l = &m->layers[layer];
  size_t rows = (size_t)B * (size_t)T;
  norm_fwd(m, &l->attention_norm, NULL, NULL, rows);
  attention_fwd(m, layer, m->work.narrow, B, T);
  norm_fwd(m, &l->mlp_norm, l->attention_norm.in, m->work.narrow, rows);
  activate(m, l, rows);
}

/* The gradient of a sum is that of both its terms: dresidual is also each branch's gradient. The last layer's
 * activations are still there. */
void lm_model_backward(lm_model *m, int B, int T)
{
  size_t rows = (size_t)B * (size_t)T;
  void *dresidual = m->work.dresidual, *dnorm = m->work.narrow;
  m->k->zero(dresidual, rows * (size_t)m->C * lm_dtype_size(m->t));
  norm_bwd(m, &m->final_norm, dnorm, rows);
  lm_model_group_done(m, (size_t)m->L + 1);
  for (int i = m->L - 1; i >= 0; i--) {
    const lm_layer *l = &m->layers[i];
    if (m->cfg.recompute == LM_RECOMPUTE_BLOCK && i < m->L - 1) remake_block(m, i, B, T);
    mlp_bwd(m, i, dnorm, B, T);
    norm_bwd(m, &l->mlp_norm, dnorm, rows);
    if (m->cfg.recompute == LM_RECOMPUTE_ATTENTION && i < m->L - 1) mix(m, i, B, T);
    attention_bwd(m, i, dnorm, B, T);
    norm_bwd(m, &l->attention_norm, dnorm, rows);
    lm_model_group_done(m, (size_t)i + 1);
  }
  drop(m, dresidual, dresidual, 0, OF_EMBEDDING, B, T);
  m->k->embedding_bwd(m->t, lm_model_gradient(m, m->token_embedding), lm_model_gradient(m, m->position_embedding),
                      dresidual, m->work.tokens, B, T, m->C);
  lm_model_group_done(m, 0);
}
