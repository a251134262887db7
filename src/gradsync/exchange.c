/* src/gradsync/exchange.c - buckets on their way: sent, received, added in a fixed order, gathered. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "gradsync/exchange.h"

#include <string.h>

/* A run of elements of a group, counted from the group's begin. */
struct range {
  size_t begin, count;
};

/* The elements of a bucket that `rank` sums. */
static struct range part_of(const lm_gradsync *s, const lm_bucket *b, int rank)
{
  size_t count = s->table->groups[b->group].count;
  size_t begin = lm_param_cut(s->table, count, rank, s->comm->size) + b->skip;
  size_t end = lm_param_cut(s->table, count, rank + 1, s->comm->size);
  if (begin >= end) return (struct range){0, 0};
  return (struct range){begin, end - begin < s->plan.most ? end - begin : s->plan.most};
}

static uint64_t sequences(const lm_gradsync *s, int rank)
{
  return s->first[rank + 1] - s->first[rank];
}

bool lm_exchange_brings(const lm_gradsync *s, int rank, uint64_t round)
{
  uint64_t rounds = sequences(s, rank) > 0;
  if (s->table->sharding == LM_SHARD_GRADIENTS)
    rounds = (sequences(s, rank) + (uint64_t)s->cfg.micro - 1) / (uint64_t)s->cfg.micro;
  return round < rounds;
}

static int partials_of(const lm_gradsync *s, int rank)
{
  if (!lm_exchange_brings(s, rank, s->round)) return 0;
  return s->cfg.reproducible ? s->node_of[rank + 1] - s->node_of[rank] : 1;
}

/* Gradients of a group in this rank's j-th partial sum. */
static float *partial_at(const lm_gradsync *s, size_t group, int j)
{
  return (s->cfg.reproducible ? s->blocks[j] : s->gradients) + s->table->groups[group].window;
}

static void send_partials(lm_gradsync *s, const lm_bucket *b, lm_slot *slot)
{
  int mine = partials_of(s, s->comm->rank);
  for (int i = 1; i < s->comm->size; i++) {
    int to = (s->comm->rank + i) % s->comm->size; /* not all to the same rank at once */
    struct range part = part_of(s, b, to);
    for (int j = 0; j < mine; j++)
      lm_send_begin(s->comm, partial_at(s, b->group, j) + part.begin, part.count * sizeof(float), to, LM_TAG_PARTIALS,
                    &slot->transfers);
  }
}

/* Also notes where each partial sum of this rank's part will be, in the order of ranks. @return how many */
static int place_sources(lm_gradsync *s, const lm_bucket *b, lm_slot *slot, bool receive)
{
  struct range part = part_of(s, b, s->comm->rank);
  int n = 0;
  for (int r = 0; r < s->comm->size; r++)
    for (int j = 0; j < partials_of(s, r); j++, n++) {
      bool mine = r == s->comm->rank;
      s->sources[n] = mine ? partial_at(s, b->group, j) + part.begin : slot->received + (size_t)n * s->plan.most;
      if (receive && !mine)
        lm_receive_begin(s->comm, s->sources[n], part.count * sizeof(float), r, LM_TAG_PARTIALS, &slot->transfers);
    }
  return n;
}

static void launch(lm_gradsync *s, size_t number)
{
  lm_slot *slot = &s->slots[number % LM_SLOTS];
  const lm_bucket *b = &s->buckets[number];
  slot->stage = LM_SLOT_SUMMING;
  place_sources(s, b, slot, true);
  send_partials(s, b, slot);
}

/* to = the sum of n sources, added from the first to the last; or to += that. `to` may be one of the sources. */
static void sum_sources(float *to, float *const *sources, int n, size_t count, bool add)
{
  enum { BLOCK = 2048 };
#pragma omp parallel for schedule(static) if (count > 8 * BLOCK)
  for (size_t begin = 0; begin < count; begin += BLOCK) {
    float sum[BLOCK];
    size_t m = count - begin < BLOCK ? count - begin : BLOCK;
    memcpy(sum, sources[0] + begin, m * sizeof *sum);
    for (int j = 1; j < n; j++)
      for (size_t i = 0; i < m; i++) sum[i] += sources[j][begin + i];
    for (size_t i = 0; add && i < m; i++) sum[i] += to[begin + i];
    memcpy(to + begin, sum, m * sizeof *sum);
  }
}

static void sum(lm_gradsync *s, const lm_bucket *b, lm_slot *slot)
{
  struct range part = part_of(s, b, s->comm->rank);
  const lm_param_group *g = &s->table->groups[b->group];
  int n = place_sources(s, b, slot, false);
  if (part.count == 0 || n == 0) return;
  if (s->own != NULL) {
    sum_sources(s->own + g->own_at + (part.begin - g->own_begin), s->sources, n, part.count, true);
  } else if (s->cfg.reproducible) {
    memcpy(s->joining, s->nodes, (size_t)n * sizeof *s->nodes);
    const float *all = lm_partials_sum(s->k, s->joining, s->sources, n, part.count);
    memcpy(s->gradients + g->window + part.begin, all, part.count * sizeof *all);
  } else {
    sum_sources(s->gradients + g->window + part.begin, s->sources, n, part.count, false);
  }
}

static void gather(lm_gradsync *s, const lm_bucket *b, lm_slot *slot)
{
  float *x = s->gradients + s->table->groups[b->group].window;
  struct range mine = part_of(s, b, s->comm->rank);
  for (int i = 1; i < s->comm->size; i++) {
    int peer = (s->comm->rank + i) % s->comm->size;
    struct range part = part_of(s, b, peer);
    lm_receive_begin(s->comm, x + part.begin, part.count * sizeof *x, peer, LM_TAG_SUMS, &slot->transfers);
    lm_send_begin(s->comm, x + mine.begin, mine.count * sizeof *x, peer, LM_TAG_SUMS, &slot->transfers);
  }
}

/* A bucket's messages of a stage have all arrived, and left: next stage. */
static void advance(lm_gradsync *s, size_t number)
{
  lm_slot *slot = &s->slots[number % LM_SLOTS];
  const lm_bucket *b = &s->buckets[number];
  if (slot->stage == LM_SLOT_SUMMING) {
    sum(s, b, slot);
    slot->stage = LM_SLOT_DONE;
    if (s->table->sharding != LM_SHARD_NOTHING) return;
    gather(s, b, slot);
    slot->stage = LM_SLOT_GATHERING;
  } else {
    slot->stage = LM_SLOT_DONE;
  }
}

/* Sums are gathered in the order of buckets on all ranks, so that messages of one tag never overtake each other. */
void lm_exchange_progress(lm_gradsync *s)
{
  while (s->launched < s->final && s->launched - s->done < LM_SLOTS) launch(s, s->launched++);
  for (size_t b = s->done; b < s->launched; b++) {
    lm_slot *slot = &s->slots[b % LM_SLOTS];
    while (slot->stage != LM_SLOT_DONE && lm_transfers_done(&slot->transfers)) advance(s, b);
    if (slot->stage == LM_SLOT_SUMMING) break;
  }
  while (s->done < s->launched && s->slots[s->done % LM_SLOTS].stage == LM_SLOT_DONE) s->done++;
}

void lm_exchange_wait(lm_gradsync *s, size_t upto)
{
  while (s->done < upto) {
    lm_exchange_progress(s);
    if (s->done < s->launched) lm_transfers_wait(&s->slots[s->done % LM_SLOTS].transfers);
  }
}
