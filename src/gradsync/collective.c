/* src/gradsync/collective.c - buckets on devices: summed and gathered by the fabric, in the order of its queue. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "gradsync/exchange.h"

#include <string.h>

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

/* ---- the binary tree: a bucket of all partial sums goes to all ranks, and each joins it ---- */

static int brings(const lm_gradsync *s, int rank)
{
  return s->node_of[rank + 1] - s->node_of[rank];
}

/* Elements [at, at + n) of the partial sums of all ranks, each rank's j-th one beside those of the others. A rank that
 * has fewer sends something that nobody looks at. */
static void gather_partials(lm_gradsync *s, int slot, size_t at, size_t n)
{
  const lm_fabric *f = s->device->fabric;
  size_t row = (size_t)s->comm->size * s->plan.most;
  f->fork(s->device->group);
  for (int j = 0; j < s->plan.widest; j++) {
    const float *mine = j < brings(s, s->comm->rank) ? s->blocks[j] : s->gradients;
    f->all_gather(s->device->group, s->slots[slot].received + (size_t)j * row, mine + at, n * sizeof *mine);
  }
  f->mark(s->device->group, slot);
}

static void join_partials(lm_gradsync *s, int slot, size_t at, size_t n)
{
  size_t row = (size_t)s->comm->size * s->plan.most;
  int k = 0;
  if (s->comm->size > 1) lm_collective_await(s, (size_t)slot);
  for (int r = 0; r < s->comm->size; r++)
    for (int j = 0; j < brings(s, r); j++)
      s->sources[k++] =
          r == s->comm->rank ? s->blocks[j] + at : s->slots[slot].received + (size_t)j * row + (size_t)r * n;
  memcpy(s->joining, s->nodes, (size_t)k * sizeof *s->nodes);
  const float *all = lm_partials_sum(s->k, s->joining, s->sources, k, n);
  s->k->cast(s->gradients + at, LM_F32, all, LM_F32, n);
}

/* The next bucket is on its way while one is joined. */
void lm_collective_tree(lm_gradsync *s)
{
  size_t all = s->table->elements, most = s->plan.most, buckets = (all + most - 1) / most;
  for (size_t b = 0; b <= buckets; b++) {
    size_t at = b * most;
    if (b < buckets && s->comm->size > 1) gather_partials(s, b % LM_SLOTS, at, all - at < most ? all - at : most);
    if (b > 0) join_partials(s, (b - 1) % LM_SLOTS, at - most, all - (at - most) < most ? all - (at - most) : most);
  }
}

/* ---- the weights, where each rank updates what it owns ---- */

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
