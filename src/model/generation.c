/* src/model/generation.c - sequences that grow a token at a time: what they have read is kept, not read again. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "model/generation.h"

#include "base/memory.h"
#include "model/parts.h"

#include <stdlib.h>
#include <string.h>

/* A sequence as the host knows it. */
typedef struct sequence {
  int32_t *tokens; /* [capacity] */
  int32_t n;       /* tokens read */
  int32_t start;   /* where the document of the last one began */
} sequence;

struct lm_generation {
  lm_model *m;
  lm_growth growth;
  int slots, group; /* sequences there is room for; how many a pass takes */
  void *memory;     /* keys and values, then slot, start and position: [3,group], on the device */
  int32_t *lists;   /* [3,group] */
  int32_t *first;   /* of lists, on the device */
  sequence *sequences;
  int32_t *tokens; /* [slots,capacity], of the sequences */
  size_t weights;  /* bytes that a pass reads */
  lm_generation_work done;
};

/* All weights but tables that are only looked up. */
static size_t weights_read(const lm_model *m)
{
  const lm_param *position = lm_param_find(&m->table, "position_embedding/weight"),
                 *token = lm_param_find(&m->table, "token_embedding/weight");
  size_t n = m->table.elements;
  if (position != NULL) n -= position->count;
  if (!m->cfg.tied) n -= token->count;
  return n * lm_dtype_size(m->t);
}

static lm_status make(lm_generation *g, int64_t longest, lm_error *err)
{
  const lm_model *m = g->m;
  int64_t most = (int64_t)m->max_B * m->cfg.n_ctx;
  g->group = (int)(most < LM_FEW_ROWS ? most : LM_FEW_ROWS);
  lm_cache *c = &g->growth.cache;
  *c = (lm_cache){.H = m->H, .H_kv = m->H_kv, .D = m->D};
  c->capacity = (int)(longest < m->cfg.n_ctx ? longest : m->cfg.n_ctx);
  size_t slots = (size_t)g->slots, capacity = (size_t)c->capacity, group = (size_t)g->group;
  g->growth.layer_bytes = slots * capacity * (size_t)(m->H_kv * m->D) * lm_dtype_size(m->t);
  size_t kept = (2 * (size_t)m->L * g->growth.layer_bytes + 63) / 64 * 64;
  LM_TRY(m->k->alloc(&g->memory, kept + 3 * group * sizeof *g->lists, "the keys and values of what is generated", err));
  c->keys = g->memory;
  c->values = (char *)g->memory + (size_t)m->L * g->growth.layer_bytes;
  g->first = (int32_t *)(void *)((char *)g->memory + kept);
  LM_TRY(lm_alloc(&g->lists, 3 * group, sizeof *g->lists, "a step of generation", err));
  LM_TRY(lm_alloc(&g->sequences, slots, sizeof *g->sequences, "the sequences", err));
  LM_TRY(lm_alloc(&g->tokens, slots * capacity, sizeof *g->tokens, "the sequences", err));
  for (size_t i = 0; i < slots; i++) g->sequences[i].tokens = g->tokens + i * capacity;
  g->weights = weights_read(m);
  return LM_OK;
}

lm_status lm_generation_new(lm_generation **out, lm_model *m, int slots, int64_t longest, lm_error *err)
{
  LM_ASSERT(slots >= 1 && longest >= 1);
  LM_TRY(lm_alloc(out, 1, sizeof **out, "a generation", err));
  **out = (lm_generation){.m = m, .slots = slots};
  lm_status s = make(*out, longest, err);
  if (s != LM_OK) {
    lm_generation_free(*out);
    *out = NULL;
  }
  return s;
}

void lm_generation_free(lm_generation *g)
{
  if (g == NULL) return;
  g->m->k->release(g->memory);
  free(g->lists);
  free(g->sequences);
  free(g->tokens);
  free(g);
}

/* Where sequences [0, B) of a pass lie: -> the device. Row b of the pass has position growth.position[b]. */
static void put_lists(lm_generation *g, int B)
{
  const lm_model *m = g->m;
  lm_growth *growth = &g->growth;
  m->k->to_device(g->first, g->lists, 3 * (size_t)g->group * sizeof *g->lists);
  growth->cache.B = B;
  growth->cache.slot = g->first;
  growth->cache.start = g->first + g->group;
  growth->cache.position = g->first + 2 * g->group;
  growth->position = g->lists + 2 * g->group;
}

/* Where the document of the token behind these begins, if these are tokens from `at` on and their own begins at start.
 */
static int32_t start_behind(const lm_model *m, int32_t start, int32_t at, const int32_t *tokens, int32_t n)
{
  for (int32_t i = 0; i < n; i++)
    if (m->end_of_text >= 0 && tokens[i] == m->end_of_text) start = at + i + 1;
  return start;
}

void lm_generation_begin(lm_generation *g, int slot, const int32_t *tokens, size_t n, float *logits)
{
  LM_ASSERT(slot >= 0 && slot < g->slots && n >= 1);
  lm_model *m = g->m;
  sequence *s = &g->sequences[slot];
  size_t capacity = (size_t)g->growth.cache.capacity;
  if (n > capacity) {
    tokens += n - capacity;
    n = capacity;
  }
  memmove(s->tokens, tokens, n * sizeof *tokens);
  s->n = (int32_t)n;
  s->start = start_behind(m, 0, 0, s->tokens, s->n);
  g->lists[0] = slot;
  g->lists[g->group] = g->lists[2 * g->group] = 0;
  put_lists(g, 1);
  g->growth.one_each = false;
  m->growth = &g->growth;
  lm_model_next(m, s->tokens, (int)n, logits);
  m->growth = NULL;
}

/* Where the context is full, its last half, with the new token, becomes a beginning. */
static void slide(lm_generation *g, int slot, int32_t token, float *logits)
{
  sequence *s = &g->sequences[slot];
  int32_t keep = (g->growth.cache.capacity - 1) / 2;
  memmove(s->tokens, s->tokens + s->n - keep, (size_t)keep * sizeof *s->tokens);
  s->tokens[keep] = token;
  lm_generation_begin(g, slot, s->tokens, (size_t)keep + 1, logits);
  g->done.slides++;
}

/* The sequences of rows [0, B), which have room for one token more: one pass. */
static void pass(lm_generation *g, const int *rows, const int *slots, const int32_t *tokens, int B, float *logits)
{
  lm_model *m = g->m;
  int32_t *step = g->lists; /* the tokens, until the lists are made */
  for (int i = 0; i < B; i++) {
    step[i] = tokens[rows[i]];
    LM_ASSERT(step[i] >= 0 && step[i] < m->V);
  }
  m->k->to_device(m->work.tokens, step, (size_t)B * sizeof *step);
  size_t position_bytes = 2 * (size_t)(m->L * m->H_kv * m->D) * lm_dtype_size(m->t);
  for (int i = 0; i < B; i++) {
    sequence *s = &g->sequences[slots[rows[i]]];
    g->lists[i] = slots[rows[i]];
    g->lists[g->group + i] = s->start;
    g->lists[2 * g->group + i] = s->n;
    s->tokens[s->n++] = tokens[rows[i]];
    g->done.bytes += (double)((size_t)(s->n - s->start) * position_bytes);
    s->start = start_behind(m, s->start, s->n - 1, &tokens[rows[i]], 1);
  }
  put_lists(g, B);
  g->growth.one_each = true;
  m->growth = &g->growth;
  lm_model_forward(m, B, 1);
  m->growth = NULL;
  lm_linear_fwd(m, &m->head, m->work.logits, m->final_norm.out, (size_t)B);
  for (int i = 0; i < B; i++)
    lm_model_logits(m, lm_model_at(m, m->work.logits, (size_t)i * (size_t)m->Vp),
                    logits + (size_t)rows[i] * (size_t)m->V);
  g->done.passes++;
  g->done.bytes += (double)g->weights;
}

void lm_generation_next(lm_generation *g, const int *slots, const int32_t *tokens, int B, float *logits)
{
  int rows[LM_FEW_ROWS], n = 0;
  for (int b = 0; b < B; b++) {
    LM_ASSERT(slots[b] >= 0 && slots[b] < g->slots && g->sequences[slots[b]].n > 0);
    if (g->sequences[slots[b]].n == g->growth.cache.capacity)
      slide(g, slots[b], tokens[b], logits + (size_t)b * (size_t)g->m->V);
    else
      rows[n++] = b;
    if (n == g->group || (b == B - 1 && n > 0)) {
      pass(g, rows, slots, tokens, n, logits);
      n = 0;
    }
  }
  g->done.tokens += (uint64_t)B;
}

lm_generation_work lm_generation_done(const lm_generation *g)
{
  return g->done;
}
