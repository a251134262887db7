/* src/text/learn_merges.c - counted pieces -> the merges of byte-level BPE. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "text/learn_merges.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

/* All pieces lie in one row of cells, a byte a cell, with a wall before, between and after them. A token holds the
 * cells of its bytes: its first and its last cell say its id, so that both neighbours are found in one step; the cells
 * between are INNER. Tokens only grow, so a place that once began an (x, y) still does if and only if the ids stand
 * there. */
enum { N_BYTES = 256 };
#define WALL  UINT32_MAX
#define INNER (UINT32_MAX - 1)

/* A pair of neighbours. All its places come to be in the round that makes the younger of its ids (in the round's order:
 * from the left); afterwards they only go, so the list is written once, and the count only falls. */
typedef struct pair {
  uint64_t key; /* left << 32 | right */
  uint64_t count;
  uint32_t *places; /* where the left token begins, ascending; places that are gone are still listed */
  size_t n;
} pair;

/* What a round changes in the counts of pairs with one neighbour id. */
typedef struct change {
  uint64_t more, less;
  size_t n;         /* new places */
  uint32_t *places; /* filled while they are handed out */
} change;

typedef struct place {
  uint32_t id, at; /* the neighbour, and where the pair begins */
} place;

typedef struct side {
  change *of; /* [tokens] by the neighbour's id */
  uint32_t *touched;
  size_t n_touched;
  place *places;
  size_t n_places, capacity;
} side;

typedef struct heap_entry {
  uint64_t count, key;
} heap_entry;

typedef struct learner {
  const lm_piece_counts *counts;
  uint32_t *cells, *piece_of; /* [n_cells] */
  size_t n_cells;
  size_t *length; /* [tokens] in bytes */
  pair *pairs;
  size_t n_pairs, pair_capacity;
  uint32_t *pair_slots; /* index into pairs + 1 by key */
  size_t n_pair_slots;
  heap_entry *heap;
  size_t n_heap, heap_capacity;
  side left, right; /* pairs (neighbour, new id) and (new id, neighbour) */
  uint32_t n_tokens;
  lm_error *err;
} learner;

static uint64_t key_of(uint32_t left, uint32_t right)
{
  return (uint64_t)left << 32 | right;
}

/* ---- growth ---- */

static lm_status grow(void *array, size_t *capacity, size_t wanted, size_t width, const char *what, lm_error *err)
{
  if (wanted <= *capacity) return LM_OK;
  size_t n = *capacity * 2 > wanted ? *capacity * 2 : wanted;
  void *grown = n > SIZE_MAX / 2 / width ? NULL : realloc(*(void **)array, n * width);
  if (grown == NULL) return lm_fail(err, LM_ENOMEM, "no memory for %zu %s", n, what);
  *(void **)array = grown;
  *capacity = n;
  return LM_OK;
}

/* ---- the heap: highest count first, then the smallest key ---- */

static bool comes_before(heap_entry a, heap_entry b)
{
  return a.count != b.count ? a.count > b.count : a.key < b.key;
}

static lm_status heap_push(learner *l, heap_entry e)
{
  LM_TRY(grow(&l->heap, &l->heap_capacity, l->n_heap + 1, sizeof *l->heap, "pairs of tokens", l->err));
  size_t i = l->n_heap++;
  for (; i > 0 && comes_before(e, l->heap[(i - 1) / 2]); i = (i - 1) / 2) l->heap[i] = l->heap[(i - 1) / 2];
  l->heap[i] = e;
  return LM_OK;
}

static void heap_replace_first(learner *l, heap_entry e)
{
  size_t i = 0;
  for (;;) {
    size_t child = 2 * i + 1;
    if (child >= l->n_heap) break;
    if (child + 1 < l->n_heap && comes_before(l->heap[child + 1], l->heap[child])) child++;
    if (!comes_before(l->heap[child], e)) break;
    l->heap[i] = l->heap[child];
    i = child;
  }
  l->heap[i] = e;
}

static void heap_drop_first(learner *l)
{
  if (--l->n_heap > 0) heap_replace_first(l, l->heap[l->n_heap]);
}

/* ---- pairs by key ---- */

static size_t first_slot(uint64_t key, size_t n_slots)
{
  uint64_t x = (key ^ key >> 29) * 0x9e3779b97f4a7c15; /* 2^64 / golden ratio spreads neighbouring keys */
  return (size_t)(x >> 20) & (n_slots - 1);
}

static pair *find_pair(const learner *l, uint64_t key)
{
  for (size_t at = first_slot(key, l->n_pair_slots);; at = (at + 1) & (l->n_pair_slots - 1)) {
    if (l->pair_slots[at] == 0) return NULL;
    pair *p = &l->pairs[l->pair_slots[at] - 1];
    if (p->key == key) return p;
  }
}

static void insert_pair(learner *l, uint32_t index)
{
  size_t at = first_slot(l->pairs[index].key, l->n_pair_slots);
  while (l->pair_slots[at] != 0) at = (at + 1) & (l->n_pair_slots - 1);
  l->pair_slots[at] = index + 1;
}

static lm_status grow_pair_slots(learner *l)
{
  size_t n = l->n_pair_slots == 0 ? 1 << 17 : l->n_pair_slots * 2;
  uint32_t *slots = calloc(n, sizeof *slots);
  if (slots == NULL) return lm_fail(l->err, LM_ENOMEM, "no memory for %zu pairs of tokens", n);
  free(l->pair_slots);
  l->pair_slots = slots;
  l->n_pair_slots = n;
  for (size_t i = 0; i < l->n_pairs; i++) insert_pair(l, (uint32_t)i);
  return LM_OK;
}

/* A pair that was not there before, with room for its places. */
static lm_status add_pair(learner *l, uint64_t key, uint64_t count, size_t n, uint32_t **places)
{
  if (l->n_pairs >= UINT32_MAX - 1) return lm_fail(l->err, LM_EINVAL, "the text has more than 2^32 pairs of tokens");
  LM_TRY(grow(&l->pairs, &l->pair_capacity, l->n_pairs + 1, sizeof *l->pairs, "pairs of tokens", l->err));
  if (l->n_pairs * 2 >= l->n_pair_slots) LM_TRY(grow_pair_slots(l));
  *places = malloc(n * sizeof **places);
  if (*places == NULL) return lm_fail(l->err, LM_ENOMEM, "no memory for %zu places of a pair", n);
  l->pairs[l->n_pairs] = (pair){.key = key, .count = count, .places = *places, .n = n};
  insert_pair(l, (uint32_t)l->n_pairs++);
  return LM_OK;
}

/* ---- the start: a row of bytes, and all its pairs ---- */

static lm_status lay_out(learner *l)
{
  const lm_piece_counts *c = l->counts;
  l->n_cells = c->bytes.size + c->n + 1;
  if (l->n_cells >= INNER)
    return lm_fail(l->err, LM_EINVAL, "the distinct pieces of the text hold %zu bytes, fewer than 2^32 were wanted",
                   c->bytes.size);
  LM_TRY(lm_alloc(&l->cells, l->n_cells, sizeof *l->cells, "the bytes of all pieces", l->err));
  LM_TRY(lm_alloc(&l->piece_of, l->n_cells, sizeof *l->piece_of, "the bytes of all pieces", l->err));
  size_t at = 0;
  l->cells[at++] = WALL;
  for (size_t i = 0; i < c->n; i++) {
    for (size_t k = 0; k < c->pieces[i].n; k++) {
      l->piece_of[at] = (uint32_t)i;
      l->cells[at++] = (unsigned char)c->bytes.data[c->pieces[i].begin + k];
    }
    l->cells[at++] = WALL;
  }
  return LM_OK;
}

static uint64_t weight(const learner *l, size_t at)
{
  return l->counts->pieces[l->piece_of[at]].count;
}

static bool is_pair_at(const learner *l, size_t at)
{
  return l->cells[at] != WALL && l->cells[at + 1] != WALL;
}

static lm_status count_byte_pairs(learner *l, change *byte_pairs)
{
  for (size_t at = 1; at + 1 < l->n_cells; at++) {
    if (!is_pair_at(l, at)) continue;
    change *p = &byte_pairs[l->cells[at] * N_BYTES + l->cells[at + 1]];
    p->more += weight(l, at);
    p->n++;
  }
  for (uint32_t i = 0; i < N_BYTES * N_BYTES; i++) {
    change *p = &byte_pairs[i];
    uint64_t key = key_of(i / N_BYTES, i % N_BYTES);
    if (p->n == 0) continue;
    LM_TRY(add_pair(l, key, p->more, p->n, &p->places));
    LM_TRY(heap_push(l, (heap_entry){p->more, key}));
  }
  for (size_t at = 1; at + 1 < l->n_cells; at++)
    if (is_pair_at(l, at)) *byte_pairs[l->cells[at] * N_BYTES + l->cells[at + 1]].places++ = (uint32_t)at;
  return LM_OK;
}

static lm_status start(learner *l, size_t wanted)
{
  size_t tokens = N_BYTES + wanted;
  change *byte_pairs;
  LM_TRY(lm_alloc(&l->length, tokens, sizeof *l->length, "the tokens", l->err));
  for (int i = 0; i < 2; i++) {
    side *s = i == 0 ? &l->left : &l->right;
    LM_TRY(lm_alloc(&s->of, tokens, sizeof *s->of, "the tokens", l->err));
    LM_TRY(lm_alloc(&s->touched, tokens, sizeof *s->touched, "the tokens", l->err));
  }
  LM_TRY(grow_pair_slots(l));
  for (l->n_tokens = 0; l->n_tokens < N_BYTES; l->n_tokens++) l->length[l->n_tokens] = 1;
  LM_TRY(lay_out(l));
  LM_TRY(lm_alloc(&byte_pairs, (size_t)N_BYTES * N_BYTES, sizeof *byte_pairs, "the pairs of bytes", l->err));
  lm_status s = count_byte_pairs(l, byte_pairs);
  free(byte_pairs);
  return s;
}

/* ---- a round ---- */

static change *touch(side *s, uint32_t id)
{
  change *c = &s->of[id];
  if (c->more == 0 && c->less == 0) s->touched[s->n_touched++] = id;
  return c;
}

/* A token beside the new one: its pair with the old neighbour goes, its pair with the new one, at `at`, comes. */
static void note(side *s, uint32_t neighbour, size_t at, uint64_t times)
{
  change *c = touch(s, neighbour);
  c->less += times;
  c->more += times;
  c->n++;
  s->places[s->n_places++] = (place){neighbour, (uint32_t)at};
}

/* Make token `id` of an (x, y) at `at`. A neighbour on the left may be an `id` of this round already: then the pair
 * that goes is (id, x), which this round brought, and the sums come out right. */
static void merge_at(learner *l, uint32_t x, uint32_t y, uint32_t id, size_t at)
{
  uint32_t *cells = l->cells;
  size_t middle = at + l->length[x], end = middle + l->length[y];
  uint64_t times = weight(l, at);
  if (cells[at - 1] != WALL) note(&l->left, cells[at - 1], at - l->length[cells[at - 1]], times);
  if (cells[end] != WALL) note(&l->right, cells[end], at, times);
  cells[middle - 1] = cells[middle] = INNER;
  cells[at] = cells[end - 1] = id;
}

static lm_status merge_everywhere(learner *l, const pair *p, uint32_t id)
{
  uint32_t x = (uint32_t)(p->key >> 32), y = (uint32_t)p->key;
  for (int i = 0; i < 2; i++) {
    side *s = i == 0 ? &l->left : &l->right;
    LM_TRY(grow(&s->places, &s->capacity, p->n, sizeof *s->places, "places of a pair", l->err));
    s->n_places = s->n_touched = 0;
  }
  for (size_t i = 0; i < p->n; i++) {
    size_t at = p->places[i];
    if (l->cells[at] == x && l->cells[at + l->length[x]] == y) merge_at(l, x, y, id, at);
  }
  return LM_OK;
}

/* The pairs that the round brought: their counts, and their places in order. */
static lm_status add_new_pairs(learner *l, side *s, uint32_t id, bool on_left)
{
  for (size_t i = 0; i < s->n_touched; i++) {
    uint32_t other = s->touched[i];
    change *c = &s->of[other];
    LM_TRY(add_pair(l, on_left ? key_of(other, id) : key_of(id, other), c->more, c->n, &c->places));
  }
  for (size_t i = 0; i < s->n_places; i++) *s->of[s->places[i].id].places++ = s->places[i].at;
  return LM_OK;
}

static void take_from_old_pairs(learner *l, side *s, uint32_t old, bool on_left)
{
  for (size_t i = 0; i < s->n_touched; i++) {
    uint32_t other = s->touched[i];
    pair *p = find_pair(l, on_left ? key_of(other, old) : key_of(old, other));
    LM_ASSERT(p != NULL && p->count >= s->of[other].less);
    p->count -= s->of[other].less;
  }
}

static lm_status offer_new_pairs(learner *l, side *s, uint32_t id, bool on_left)
{
  for (size_t i = 0; i < s->n_touched; i++) {
    uint32_t other = s->touched[i];
    s->of[other] = (change){0};
    uint64_t key = on_left ? key_of(other, id) : key_of(id, other);
    uint64_t count = find_pair(l, key)->count;
    if (count > 0) LM_TRY(heap_push(l, (heap_entry){count, key}));
  }
  return LM_OK;
}

static lm_status merge_pair(learner *l, uint64_t key, uint32_t id)
{
  uint32_t x = (uint32_t)(key >> 32), y = (uint32_t)key;
  LM_TRY(merge_everywhere(l, find_pair(l, key), id));
  LM_TRY(add_new_pairs(l, &l->left, id, true));
  LM_TRY(add_new_pairs(l, &l->right, id, false));
  take_from_old_pairs(l, &l->left, x, true);
  take_from_old_pairs(l, &l->right, y, false);
  pair *done = find_pair(l, key);
  free(done->places);
  *done = (pair){.key = key};
  LM_TRY(offer_new_pairs(l, &l->left, id, true));
  return offer_new_pairs(l, &l->right, id, false);
}

/* The pair to merge next; false where none is left. Entries of the heap may be too high, never too low. */
static bool take_best(learner *l, uint64_t *key)
{
  while (l->n_heap > 0) {
    heap_entry first = l->heap[0];
    uint64_t count = find_pair(l, first.key)->count;
    *key = first.key;
    if (count == 0 || count == first.count)
      heap_drop_first(l);
    else
      heap_replace_first(l, (heap_entry){count, first.key});
    if (count > 0 && count == first.count) return true;
  }
  return false;
}

static lm_status learn(learner *l, size_t wanted, uint32_t (*merges)[2], size_t *n)
{
  double said = lm_clock();
  uint64_t key;
  LM_TRY(start(l, wanted));
  while (*n < wanted && take_best(l, &key)) {
    uint32_t x = (uint32_t)(key >> 32), y = (uint32_t)key;
    l->length[l->n_tokens] = l->length[x] + l->length[y];
    LM_TRY(merge_pair(l, key, l->n_tokens++));
    merges[*n][0] = x;
    merges[(*n)++][1] = y;
    if (lm_clock() - said > 5) {
      said = lm_clock();
      lm_info("vocab train: %zu of %zu merges", *n, wanted);
    }
  }
  return LM_OK;
}

static void free_learner(learner *l)
{
  for (size_t i = 0; i < l->n_pairs; i++) free(l->pairs[i].places);
  void *const blocks[] = {l->cells,   l->piece_of,     l->length,      l->pairs,    l->pair_slots,    l->heap,
                          l->left.of, l->left.touched, l->left.places, l->right.of, l->right.touched, l->right.places};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) free(blocks[i]);
}

lm_status lm_learn_merges(const lm_piece_counts *c, size_t wanted, uint32_t (**out)[2], size_t *n, lm_error *err)
{
  learner l = {.counts = c, .err = err};
  *n = 0;
  LM_TRY(lm_alloc(out, wanted, sizeof **out, "the merges", err));
  lm_status s = learn(&l, wanted, *out, n);
  free_learner(&l);
  if (s == LM_OK) return LM_OK;
  free(*out);
  *out = NULL;
  *n = 0;
  return s;
}
