/* src/model/sample.c - logits -> the next token. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "model/sample.h"

#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

static const float *sort_logits; /* qsort has no argument to pass it through; one thread samples */

/* Likeliest first; equals by id, so that the order is one on every machine. */
static int by_logit(const void *a, const void *b)
{
  uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
  float x = sort_logits[i], y = sort_logits[j];
  if (x != y) return x > y ? -1 : 1;
  return i < j ? -1 : i > j;
}

static uint32_t likeliest(const float *logits, uint32_t V)
{
  uint32_t best = 0;
  for (uint32_t v = 1; v < V; v++)
    if (logits[v] > logits[best]) best = v;
  return best;
}

/* How many of the sorted tokens hold top_p of the probability: at least one. */
static uint32_t nucleus(const float *p, const uint32_t *order, uint32_t n, double total, double top_p)
{
  double sum = 0;
  for (uint32_t i = 0; i < n; i++) {
    sum += p[order[i]];
    if (sum >= top_p * total) return i + 1;
  }
  return n;
}

uint32_t lm_sample(const lm_sampling *how, float *logits, uint32_t *order, uint32_t V, uint64_t position)
{
  uint32_t best = likeliest(logits, V), n = V;
  if (how->temperature == 0) return best;
  for (uint32_t v = 0; v < V; v++) order[v] = v;
  sort_logits = logits;
  qsort(order, V, sizeof *order, by_logit);
  if (how->top_k > 0 && how->top_k < n) n = (uint32_t)how->top_k;

  double total = 0;
  float highest = logits[best];
  for (uint32_t i = 0; i < n; i++) {
    float *p = &logits[order[i]]; /* from here on a probability, not normalised */
    *p = (float)exp((*p - highest) / how->temperature);
    total += *p;
  }
  n = nucleus(logits, order, n, total, how->top_p);
  total = 0;
  for (uint32_t i = 0; i < n; i++) total += logits[order[i]];

  uint32_t words[4];
  lm_random_words(how->seed, LM_STREAM_SAMPLE, position, 0, words);
  double left = lm_uniform(words[0]) * total;
  for (uint32_t i = 0; i + 1 < n; i++) {
    left -= logits[order[i]];
    if (left < 0) return order[i];
  }
  return order[n - 1];
}
