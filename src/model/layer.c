/* src/model/layer.c - the layers, forward and backward: from tokens to the final norm, and back. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "model/parts.h"

static const float norm_eps = 1e-5f; /* GPT-2's */

void lm_linear_fwd(lm_model *m, const lm_linear *l, void *y, const void *x, size_t rows)
{
  m->k->linear_fwd(m->t, y, x, lm_model_weight(m, l->weight), lm_model_weight(m, l->bias), rows, l->out, l->in);
}

void lm_linear_bwd(lm_model *m, const lm_linear *l, void *dx, const void *dy, const void *x, size_t rows)
{
  float *dw = lm_model_gradient(m, l->weight), *dbias = lm_model_gradient(m, l->bias);
  m->k->linear_bwd_weight(m->t, dw, dbias, dy, x, rows, l->out, l->in);
  m->k->linear_bwd_input(m->t, dx, dy, lm_model_weight(m, l->weight), rows, l->out, l->in);
}

/* in = x + branch, out = norm(in); where branch is NULL, in is there already. */
static void norm_fwd(lm_model *m, const lm_norm *n, const void *x, const void *branch, size_t rows)
{
  bool add = branch != NULL;
  m->k->layernorm_fwd(m->t, n->out, n->mean, n->rstd, add ? n->in : NULL, add ? x : n->in, branch,
                      lm_model_weight(m, n->weight), lm_model_weight(m, n->bias), rows, m->C, norm_eps);
}

/* dresidual += the gradient of in, from dy, that of out. */
static void norm_bwd(lm_model *m, const lm_norm *n, const void *dy, size_t rows)
{
  m->k->layernorm_bwd(m->t, m->work.dresidual, lm_model_gradient(m, n->weight), lm_model_gradient(m, n->bias), dy,
                      n->in, n->mean, n->rstd, lm_model_weight(m, n->weight), rows, m->C);
}

static void attention_fwd(lm_model *m, const lm_layer *l, void *branch, int B, int T)
{
  size_t rows = (size_t)B * (size_t)T;
  lm_linear_fwd(m, &l->qkv, l->qkv_out, l->attention_norm.out, rows);
  const lm_attention a = {.B = B, .T = T, .H = m->H, .H_kv = m->H, .D = m->C / m->H};
  m->k->attention_fwd(m->t, l->mixed, l->lse, l->qkv_out, &a);
  lm_linear_fwd(m, &l->out, branch, l->mixed, rows);
}

/* dx = the gradient of attention_norm.out, from dbranch. Every product ends before dx is used again. */
static void attention_bwd(lm_model *m, const lm_layer *l, void *dx, const void *dbranch, int B, int T)
{
  size_t rows = (size_t)B * (size_t)T;
  void *dmixed = dx, *dqkv = m->work.wide;
  lm_linear_bwd(m, &l->out, dmixed, dbranch, l->mixed, rows);
  const lm_attention a = {.B = B, .T = T, .H = m->H, .H_kv = m->H, .D = m->C / m->H};
  m->k->attention_bwd(m->t, dqkv, dmixed, l->mixed, l->lse, l->qkv_out, &a);
  lm_linear_bwd(m, &l->qkv, dx, dqkv, l->attention_norm.out, rows);
}

static void mlp_fwd(lm_model *m, const lm_layer *l, void *branch, size_t rows)
{
  lm_linear_fwd(m, &l->up, l->up_out, l->mlp_norm.out, rows);
  m->k->gelu_fwd(m->t, l->activated, l->up_out, rows * (size_t)l->up.out);
  lm_linear_fwd(m, &l->down, branch, l->activated, rows);
}

/* dx = the gradient of mlp_norm.out, from dbranch. */
static void mlp_bwd(lm_model *m, const lm_layer *l, void *dx, const void *dbranch, size_t rows)
{
  void *dup = m->work.wide;
  lm_linear_bwd(m, &l->down, dup, dbranch, l->activated, rows);
  m->k->gelu_bwd(m->t, dup, dup, l->up_out, rows * (size_t)l->up.out);
  lm_linear_bwd(m, &l->up, dx, dup, l->mlp_norm.out, rows);
}

/* A branch is added to the residual stream by the norm that follows it, in this layer or in the next. */
void lm_model_forward(lm_model *m, int B, int T)
{
  size_t rows = (size_t)B * (size_t)T;
  void *branch = NULL;
  const void *x = NULL;
  m->k->embedding_fwd(m->t, m->layers[0].attention_norm.in, m->work.tokens, lm_model_weight(m, m->token_embedding),
                      lm_model_weight(m, m->position_embedding), B, T, m->C);
  for (int i = 0; i < m->L; i++) {
    const lm_layer *l = &m->layers[i];
    norm_fwd(m, &l->attention_norm, x, branch, rows);
    branch = m->work.narrow;
    attention_fwd(m, l, branch, B, T);
    norm_fwd(m, &l->mlp_norm, l->attention_norm.in, branch, rows);
    mlp_fwd(m, l, branch, rows);
    x = l->mlp_norm.in;
  }
  norm_fwd(m, &m->final_norm, x, branch, rows);
}

/* The gradient of a sum is that of both its terms: dresidual is also each branch's gradient. */
void lm_model_backward(lm_model *m, int B, int T)
{
  size_t rows = (size_t)B * (size_t)T;
  void *dresidual = m->work.dresidual, *dnorm = m->work.narrow;
  m->k->zero(dresidual, rows * (size_t)m->C * lm_dtype_size(m->t));
  norm_bwd(m, &m->final_norm, dnorm, rows);
  for (int i = m->L - 1; i >= 0; i--) {
    const lm_layer *l = &m->layers[i];
    mlp_bwd(m, l, dnorm, dresidual, rows);
    norm_bwd(m, &l->mlp_norm, dnorm, rows);
    attention_bwd(m, l, dnorm, dresidual, B, T);
    norm_bwd(m, &l->attention_norm, dnorm, rows);
  }
  m->k->embedding_bwd(m->t, lm_model_gradient(m, m->token_embedding), lm_model_gradient(m, m->position_embedding),
                      dresidual, m->work.tokens, B, T, m->C);
}
