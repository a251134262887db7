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
  int C = m->C;
  m->token_embedding = offset_of(m, "", "token_embedding/weight");
  m->position_embedding = offset_of(m, "", "position_embedding/weight");
  for (int i = 0; i < m->L; i++) {
    char prefix[32];
    snprintf(prefix, sizeof prefix, "layers/%d/", i);
    lm_layer *l = &m->layers[i];
    l->attention_norm = find_norm(m, prefix, "attention_norm");
    l->qkv = find_linear(m, prefix, "attention/qkv", 3 * C, C);
    l->out = find_linear(m, prefix, "attention/out", C, C);
    l->mlp_norm = find_norm(m, prefix, "mlp_norm");
    l->up = find_linear(m, prefix, "mlp/up", 4 * C, C);
    l->down = find_linear(m, prefix, "mlp/down", C, 4 * C);
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

static void place_norm(lm_norm *n, arena *a, size_t rows, size_t C, size_t size)
{
  n->in = take(a, rows * C, size);
  n->out = take(a, rows * C, size);
  n->mean = take(a, rows, sizeof *n->mean);
  n->rstd = take(a, rows, sizeof *n->rstd);
}

static void place_layer(lm_layer *l, arena *a, size_t rows, size_t C, size_t H, size_t size)
{
  place_norm(&l->attention_norm, a, rows, C, size);
  l->qkv_out = take(a, rows * 3 * C, size);
  l->mixed = take(a, rows * C, size);
  l->lse = take(a, rows * H, sizeof *l->lse);
  place_norm(&l->mlp_norm, a, rows, C, size);
  l->up_out = take(a, rows * 4 * C, size);
  l->activated = take(a, rows * 4 * C, size);
}

static void place_workspace(lm_model *m, arena *a, size_t rows, size_t size)
{
  lm_workspace *w = &m->work;
  size_t C = (size_t)m->C, Vp = (size_t)m->Vp;
  w->tokens = take(a, rows, sizeof *w->tokens);
  w->targets = take(a, rows, sizeof *w->targets);
  w->loss = take(a, rows, sizeof *w->loss);
  w->narrow = take(a, rows * C, size);
  w->logits = take(a, m->head_rows * Vp, size);
  w->next = take(a, Vp, sizeof *w->next);
  w->dresidual = m->training ? take(a, rows * C, size) : NULL;
  w->wide = m->training ? take(a, rows * 4 * C, size) : NULL;
}

size_t lm_model_place(lm_model *m)
{
  size_t rows = (size_t)m->max_B * (size_t)m->cfg.n_ctx, C = (size_t)m->C, size = lm_dtype_size(m->t);
  arena a = {.base = m->activations};
  for (int i = 0; i < m->L; i++) {
    arena layer = a;
    place_layer(&m->layers[i], &layer, rows, C, (size_t)m->H, size);
    /* Backward needs every layer's activations; without it a layer may overwrite those of the one before. */
    if (m->training || i == m->L - 1) a = layer;
  }
  place_norm(&m->final_norm, &a, rows, C, size);
  place_workspace(m, &a, rows, size);
  return a.used;
}
