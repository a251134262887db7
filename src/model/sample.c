/* src/model/sample.c - logits -> the next token. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "model/sample.h"

#include "base/rng.h"

#include <math.h>
#include <stdbool.h>

static uint32_t likeliest(const float *logits, uint32_t V)
{
  uint32_t best = 0;
  for (uint32_t v = 1; v < V; v++)
    if (logits[v] > logits[best]) best = v;
  return best;
}

/* Tokens, likeliest first, equals by id, one at a time: seldom is more than the first few of a vocabulary wanted. */
typedef struct ranking {
  const float *p;
  uint32_t *heap; /* no token goes before the one at half its index */
  uint32_t n;
} ranking;

static bool before(const ranking *r, uint32_t a, uint32_t b)
{
  return r->p[a] != r->p[b] ? r->p[a] > r->p[b] : a < b;
}

static void sift(ranking *r, uint32_t i)
{
  uint32_t moving = r->heap[i];
  for (uint32_t child = 2 * i + 1; child < r->n; child = 2 * i + 1) {
    if (child + 1 < r->n && before(r, r->heap[child + 1], r->heap[child])) child++;
    if (!before(r, r->heap[child], moving)) break;
    r->heap[i] = r->heap[child];
    i = child;
  }
  r->heap[i] = moving;
}

static ranking rank(const float *p, uint32_t *order, uint32_t V)
{
  ranking r = {.p = p, .heap = order, .n = V};
  for (uint32_t v = 0; v < V; v++) order[v] = v;
  for (uint32_t i = V / 2; i-- > 0;) sift(&r, i);
  return r;
}

/* The next one. It moves to the place behind the heap, which shrinks: the i-th lies at order[V - 1 - i]. */
static uint32_t next_ranked(ranking *r)
{
  uint32_t first = r->heap[0];
  r->heap[0] = r->heap[--r->n];
  if (r->n > 0) sift(r, 0);
  r->heap[r->n] = first;
  return first;
}

/* Tokens that are to be chosen from: the first of the ranking. */
typedef struct choice {
  uint32_t n;
  double total; /* of their probabilities, not normalised */
} choice;

static choice cut(ranking *r, const lm_sampling *how, uint32_t V, double total)
{
  choice c = {.n = V, .total = total};
  if (how->top_k > 0 && how->top_k < V) {
    c = (choice){.n = (uint32_t)how->top_k};
    for (uint32_t i = 0; i < c.n; i++) c.total += r->p[next_ranked(r)];
  }
  if (how->top_p == 1) return c;
  choice nucleus = {0};
  while (nucleus.n < c.n && (nucleus.n == 0 || nucleus.total < how->top_p * c.total)) {
    uint32_t id = nucleus.n < V - r->n ? r->heap[V - 1 - nucleus.n] : next_ranked(r);
    nucleus.total += r->p[id];
    nucleus.n++;
  }
  return nucleus;
}

uint32_t lm_sample(const lm_sampling *how, float *logits, uint32_t *order, uint32_t V, uint64_t position)
{
  uint32_t best = likeliest(logits, V), words[4];
  if (how->temperature == 0) return best;
  double total = 0;
  float highest = logits[best];
  for (uint32_t v = 0; v < V; v++) { /* from here on probabilities, not normalised */
    logits[v] = (float)exp((logits[v] - highest) / how->temperature);
    total += logits[v];
  }
  ranking r = rank(logits, order, V);
  const choice c = cut(&r, how, V, total);
  lm_random_words(how->seed, LM_STREAM_SAMPLE, position, 0, words);
  double left = lm_uniform(words[0]) * c.total;
  for (uint32_t i = 0;; i++) {
    uint32_t id = i < V - r.n ? order[V - 1 - i] : next_ranked(&r);
    left -= logits[id];
    if (left < 0 || i + 1 == c.n) return id;
  }
}
