/* src/model/place.c - where everything lies: parameters in the flat space, activations in their block. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "model/parts.h"

#include <stdio.h>

/* ---- parameters: by name ---- */

static size_t offset_of(const lm_model *m, const char *prefix, const char *name)
{
  char full[96];
  snprintf(full, sizeof full, "%s%s", prefix, name);
  const lm_param *p = lm_param_find(&m->table, full);
  return p == NULL ? LM_ABSENT : p->offset;
}

static lm_linear find_linear(const lm_model *m, const char *prefix, const char *name, int out, int in)
{
  char full[64];
  snprintf(full, sizeof full, "%s%s", prefix, name);
  return (lm_linear){
      .weight = offset_of(m, full, "/weight"), .bias = offset_of(m, full, "/bias"), .out = out, .in = in};
}

static lm_norm find_norm(const lm_model *m, const char *prefix, const char *name)
{
  char full[64];
  snprintf(full, sizeof full, "%s%s", prefix, name);
  return (lm_norm){.weight = offset_of(m, full, "/weight"), .bias = offset_of(m, full, "/bias")};
}

void lm_model_connect(lm_model *m)
{
  bool gated = m->cfg.mlp == LM_MLP_SWIGLU;
  int C = m->C, F = m->F;
  m->token_embedding = offset_of(m, "", "token_embedding/weight");
  m->position_embedding = offset_of(m, "", "position_embedding/weight");
  for (int i = 0; i < m->L; i++) {
    char prefix[32];
    snprintf(prefix, sizeof prefix, "layers/%d/", i);
    lm_layer *l = &m->layers[i];
    l->attention_norm = find_norm(m, prefix, "attention_norm");
    l->qkv = find_linear(m, prefix, "attention/qkv", (m->H + 2 * m->H_kv) * m->D, C);
    l->q_norm = offset_of(m, prefix, "attention/q_norm/weight");
    l->k_norm = offset_of(m, prefix, "attention/k_norm/weight");
    l->out = find_linear(m, prefix, "attention/out", C, C);
    l->mlp_norm = find_norm(m, prefix, "mlp_norm");
    l->up = find_linear(m, prefix, gated ? "mlp/gate_up" : "mlp/up", gated ? 2 * F : F, C);
    l->down = find_linear(m, prefix, "mlp/down", C, F);
  }
  m->final_norm = find_norm(m, "", "final_norm");
  m->head = find_linear(m, "", m->cfg.tied ? "token_embedding" : "head", m->Vp, C);
}

/* ---- activations: one block, handed out from its start ---- */

typedef struct arena {
  char *base; /* NULL: only measure */
  size_t used;
} arena;

static void *take(arena *a, size_t count, size_t size)
{
  size_t at = a->used;
  a->used += (count * size + 63) / 64 * 64;
  return a->base == NULL ? NULL : a->base + at;
}

/* What a norm gives. */
static void place_norm(const lm_model *m, lm_norm *n, arena *a, size_t rows)
{
  n->out = take(a, rows * (size_t)m->C, lm_dtype_size(m->t));
  n->mean = m->cfg.norm == LM_NORM_LAYERNORM ? take(a, rows, sizeof *n->mean) : NULL;
  n->rstd = take(a, rows, sizeof *n->rstd);
}

/* A layer's activations, in parts that are kept for backward or made again by it. */
typedef void place_part(const lm_model *m, lm_layer *l, arena *a, size_t rows);

static void place_input(const lm_model *m, lm_layer *l, arena *a, size_t rows)
{
  l->attention_norm.in = take(a, rows * (size_t)m->C, lm_dtype_size(m->t));
}

static void place_attention(const lm_model *m, lm_layer *l, arena *a, size_t rows)
{
  size_t size = lm_dtype_size(m->t), qkv = rows * (size_t)l->qkv.out, heads = (size_t)m->H + (size_t)m->H_kv;
  l->qkv_out = take(a, qkv, size);
  l->heads = m->cfg.qk_norm ? take(a, qkv, size) : l->qkv_out;
  l->heads_rstd = m->cfg.qk_norm ? take(a, rows * heads, sizeof *l->heads_rstd) : NULL;
  l->mixed = take(a, rows * (size_t)m->C, size);
  l->lse = take(a, rows * (size_t)m->H, sizeof *l->lse);
}

static void place_rest(const lm_model *m, lm_layer *l, arena *a, size_t rows)
{
  size_t size = lm_dtype_size(m->t);
  place_norm(m, &l->attention_norm, a, rows);
  l->mlp_norm.in = take(a, rows * (size_t)m->C, size);
  place_norm(m, &l->mlp_norm, a, rows);
  l->up_out = take(a, rows * (size_t)l->up.out, size);
  l->activated = take(a, rows * (size_t)m->F, size);
}

/* What is not kept lies at the same place for all layers. */
static void place_layers(lm_model *m, arena *a, size_t rows, place_part *place, bool kept)
{
  for (int i = 0; i < m->L; i++) {
    arena layer = *a;
    place(m, &m->layers[i], &layer, rows);
    if (kept || i == m->L - 1) *a = layer;
  }
}

static void place_workspace(lm_model *m, arena *a, size_t rows)
{
  lm_workspace *w = &m->work;
  size_t C = (size_t)m->C, Vp = (size_t)m->Vp, size = lm_dtype_size(m->t);
  int qkv = m->layers[0].qkv.out, up = m->cfg.mlp == LM_MLP_SWIGLU ? m->layers[0].up.out : 0;
  w->tokens = take(a, rows, sizeof *w->tokens);
  w->targets = take(a, rows, sizeof *w->targets);
  w->start = take(a, rows, sizeof *w->start);
  w->angles =
      m->cfg.position == LM_POSITION_ROPE ? take(a, (size_t)m->cfg.n_ctx * (size_t)m->D, sizeof *w->angles) : NULL;
  w->loss = take(a, rows, sizeof *w->loss);
  w->sums = take(a, LM_MODEL_BEGUN + 1, sizeof *w->sums);
  w->narrow = take(a, rows * C, size);
  w->logits = take(a, m->head_rows * Vp, size);
  w->next = take(a, Vp, sizeof *w->next);
  w->dresidual = m->training ? take(a, rows * C, size) : NULL;
  w->wide = m->training ? take(a, rows * (size_t)(qkv > up ? qkv : up), size) : NULL;
}

size_t lm_model_place(lm_model *m)
{
  size_t rows = (size_t)m->max_B * (size_t)m->cfg.n_ctx;
  arena a = {.base = m->activations};
  place_layers(m, &a, rows, place_input, m->training);
  place_layers(m, &a, rows, place_attention, m->training && m->cfg.recompute == LM_RECOMPUTE_NONE);
  place_layers(m, &a, rows, place_rest, m->training && m->cfg.recompute != LM_RECOMPUTE_BLOCK);
  m->final_norm.in = take(&a, rows * (size_t)m->C, lm_dtype_size(m->t));
  place_norm(m, &m->final_norm, &a, rows);
  place_workspace(m, &a, rows);
  return a.used;
}
