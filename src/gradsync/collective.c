/* src/gradsync/collective.c - buckets on devices: summed and gathered by the fabric, in the order of its queue. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "gradsync/exchange.h"

/* The fabric's parts of a group are all of one size, those of the table may end earlier. What lies behind the group is
 * then read too, and its sums are not used. The table's slack is for the last group. */
static size_t each_of(const lm_gradsync *s, size_t group)
{
  return lm_param_cut(s->table, s->table->groups[group].count, 1, s->comm->size);
}

size_t lm_collective_spare(const lm_param_table *t, int size)
{
  size_t spare = 0;
  for (size_t g = 0; g < t->n_groups && t->sharding != LM_SHARD_NOTHING; g++) {
    size_t each = lm_param_cut(t, t->groups[g].count, 1, size), behind = (size_t)size * each - t->groups[g].count;
    size_t needed = each > behind ? each : behind;
    if (needed > spare) spare = needed;
  }
  return spare;
}

static void sum_sharded(lm_gradsync *s, size_t group)
{
  const lm_fabric *f = s->device->fabric;
  const lm_param_group *g = &s->table->groups[group];
  float *own = s->gradients + g->window + g->own_begin;
  bool in_place = s->own == NULL && g->own_count == each_of(s, group);
  f->fork(s->device->group);
  f->reduce_scatter(s->device->group, in_place ? own : s->spare, s->gradients + g->window, each_of(s, group));
  if (s->own != NULL)
    f->add(s->device->group, s->own + g->own_at, s->spare, g->own_count);
  else if (!in_place)
    f->copy(s->device->group, own, s->spare, g->own_count * sizeof *own);
}

/* Neighbouring groups are summed together, as many as make a bucket. */
static void sum_whole(lm_gradsync *s, size_t group)
{
  size_t begin = s->table->groups[group].begin, n = s->unsummed - begin;
  if (group > 0 && n * sizeof(float) < s->cfg.bucket_bytes) return;
  s->device->fabric->fork(s->device->group);
  s->device->fabric->all_reduce(s->device->group, s->gradients + begin, n);
  s->unsummed = begin;
}

void lm_collective_begin(lm_gradsync *s)
{
  s->offered = 0;
  s->unsummed = s->table->elements;
}

void lm_collective_offer(lm_gradsync *s, size_t group)
{
  for (size_t n = s->table->n_groups; s->offered < n - group; s->offered++) {
    size_t g = n - 1 - s->offered;
    if (s->table->sharding == LM_SHARD_NOTHING)
      sum_whole(s, g);
    else
      sum_sharded(s, g);
    s->device->fabric->mark(s->device->group, (int)g);
  }
}

void lm_collective_await(lm_gradsync *s, size_t group)
{
  s->device->fabric->await(s->device->group, (int)group);
}

/* Full parts behind the group's end would write into the groups that follow, which have their own owners: what is there
 * is kept meanwhile. */
static void gather_group(lm_gradsync *s, size_t group, char *weights, size_t width)
{
  const lm_fabric *f = s->device->fabric;
  const lm_param_group *g = &s->table->groups[group];
  size_t each = each_of(s, group), behind = (size_t)s->comm->size * each - g->count;
  char *x = weights + g->begin * width, *end = x + g->count * width;
  f->copy(s->device->group, s->spare, end, behind * width);
  f->all_gather(s->device->group, x, x + (size_t)s->comm->rank * each * width, each * width);
  f->copy(s->device->group, end, s->spare, behind * width);
}

void lm_collective_gather(lm_gradsync *s, void *weights, lm_dtype t)
{
  s->device->fabric->fork(s->device->group);
  for (size_t g = 0; g < s->table->n_groups; g++) gather_group(s, g, weights, lm_dtype_size(t));
  s->device->fabric->mark(s->device->group, 0);
  lm_collective_await(s, 0);
}
