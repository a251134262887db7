/* src/base/param_table.c - the parameter table: groups of parameters, and which slice of each a rank owns. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/param_table.h"

enum { LINE = 64, MOST_UNITS = 1 << 16 };

size_t lm_param_unit(const lm_param_table *t)
{
  size_t lines = (t->elements + LINE - 1) / LINE;
  return LINE * (lines / MOST_UNITS + 1);
}

size_t lm_param_cut(const lm_param_table *t, size_t count, int rank, int size)
{
  size_t unit = lm_param_unit(t), units = (count + unit - 1) / unit, n = (size_t)size;
  size_t at = unit * ((units + n - 1) / n) * (size_t)rank;
  return at < count ? at : count;
}

/* Backward works on one group while the gradients of the one before it are on their way: the layers take turns in two
 * windows. The first and the last group, which hold the embeddings and the head, have their own. */
static void place_windows(lm_param_table *t)
{
  size_t last = t->n_groups - 1, largest = 0, first = t->groups[0].count;
  for (size_t g = 1; g < last; g++)
    if (t->groups[g].count > largest) largest = t->groups[g].count;
  for (size_t g = 1; g < last; g++) t->groups[g].window = first + (g % 2 ? 0 : largest);
  size_t windows = last > 2 ? 2 : last > 1 ? 1 : 0;
  t->groups[0].window = 0;
  if (last > 0) t->groups[last].window = first + windows * largest;
  t->gradient_elements = first + windows * largest + (last > 0 ? t->groups[last].count : 0);
}

static void place_whole(lm_param_table *t)
{
  for (size_t g = 0; g < t->n_groups; g++) t->groups[g].window = t->groups[g].begin;
  t->gradient_elements = t->elements;
}

/* What a rank owns of a parameter is what its part of the group and the parameter share. */
static void place_param(const lm_param_table *t, lm_param *p)
{
  const lm_param_group *g = &t->groups[p->group];
  size_t begin = g->begin + g->own_begin, end = begin + g->own_count, p_end = p->offset + p->count;
  size_t from = begin > p->offset ? begin : p->offset, to = end < p_end ? end : p_end;
  if (from >= to) from = to = p->offset;
  p->own_begin = from - p->offset;
  p->own_count = to - from;
  p->own_at = p->own_count > 0 ? g->own_at + (from - begin) : 0;
  p->gradient_at = t->sharding == LM_SHARD_GRADIENTS ? p->own_at : from;
}

static size_t slack_of(const lm_param_table *t, int size)
{
  size_t slack = 0;
  for (size_t i = 0; i < t->n_groups; i++) {
    const lm_param_group *g = &t->groups[i];
    size_t parts = (size_t)size * lm_param_cut(t, g->count, 1, size);
    if (g->begin + parts > t->elements + slack) slack = g->begin + parts - t->elements;
    if (g->window + parts > t->gradient_elements + slack) slack = g->window + parts - t->gradient_elements;
  }
  return slack;
}

void lm_param_table_shard(lm_param_table *t, lm_sharding sharding, int rank, int size)
{
  t->sharding = sharding;
  t->own_elements = 0;
  for (size_t i = 0; i < t->n_groups; i++) {
    lm_param_group *g = &t->groups[i];
    bool all = sharding == LM_SHARD_NOTHING;
    g->own_begin = all ? 0 : lm_param_cut(t, g->count, rank, size);
    g->own_count = all ? g->count : lm_param_cut(t, g->count, rank + 1, size) - g->own_begin;
    g->own_at = t->own_elements;
    t->own_elements += g->own_count;
  }
  if (sharding == LM_SHARD_GRADIENTS)
    place_windows(t);
  else
    place_whole(t);
  t->slack = sharding == LM_SHARD_NOTHING ? 0 : slack_of(t, size);
  for (size_t i = 0; i < t->n; i++) place_param(t, &t->params[i]);
}

void lm_param_table_group(lm_param_table *t)
{
  for (size_t i = 0; i < t->n; i++) {
    const lm_param *p = &t->params[i];
    lm_param_group *g = &t->groups[p->group];
    if (i == 0 || p->group != t->params[i - 1].group) g->begin = p->offset;
    g->count = p->offset + p->reserved - g->begin;
  }
  lm_param_table_shard(t, LM_SHARD_NOTHING, 0, 1);
}
