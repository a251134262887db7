/* src/text/piece_counts.c - how often each piece of text occurs. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "text/piece_counts.h"

#include "base/hash.h"
#include "text/split.h"

#include <stdlib.h>
#include <string.h>

void lm_piece_counts_free(lm_piece_counts *c)
{
  free(c->pieces);
  free(c->slots);
  lm_buffer_free(&c->bytes);
  *c = (lm_piece_counts){0};
}

static void insert(lm_piece_counts *c, uint32_t index)
{
  size_t mask = c->n_slots - 1, at = c->pieces[index].hash & mask;
  while (c->slots[at] != 0) at = (at + 1) & mask;
  c->slots[at] = index + 1;
}

/* Twice the slots, so that at most half of them are taken. */
static lm_status grow_slots(lm_piece_counts *c, lm_error *err)
{
  size_t n = c->n_slots == 0 ? 1 << 12 : c->n_slots * 2;
  uint32_t *slots = calloc(n, sizeof *slots);
  if (slots == NULL) return lm_fail(err, LM_ENOMEM, "no memory for %zu distinct pieces of text", n / 2);
  free(c->slots);
  c->slots = slots;
  c->n_slots = n;
  for (size_t i = 0; i < c->n; i++) insert(c, (uint32_t)i);
  return LM_OK;
}

static lm_status add_new(lm_piece_counts *c, const char *piece, size_t n, uint64_t hash, uint64_t times, lm_error *err)
{
  if (c->n >= UINT32_MAX - 1) return lm_fail(err, LM_EINVAL, "the text has more than %zu distinct pieces", c->n);
  if (c->n == c->capacity) {
    size_t capacity = c->capacity == 0 ? 1 << 11 : c->capacity * 2;
    lm_piece *pieces = realloc(c->pieces, capacity * sizeof *pieces);
    if (pieces == NULL) return lm_fail(err, LM_ENOMEM, "no memory for %zu distinct pieces of text", capacity);
    c->pieces = pieces;
    c->capacity = capacity;
  }
  if (c->n * 2 >= c->n_slots) LM_TRY(grow_slots(c, err));
  size_t begin = c->bytes.size;
  LM_TRY(lm_buffer_append(&c->bytes, piece, n, err));
  c->pieces[c->n++] = (lm_piece){.count = times, .hash = hash, .begin = begin, .n = n};
  insert(c, (uint32_t)(c->n - 1));
  return LM_OK;
}

lm_status lm_piece_counts_add(lm_piece_counts *c, const char *piece, size_t n, uint64_t times, lm_error *err)
{
  uint64_t hash = lm_hash(piece, n);
  size_t mask = c->n_slots - 1; /* not used while there are no slots */
  for (size_t at = hash & mask; c->n_slots > 0 && c->slots[at] != 0; at = (at + 1) & mask) {
    lm_piece *p = &c->pieces[c->slots[at] - 1];
    if (p->hash != hash || p->n != n || memcmp(c->bytes.data + p->begin, piece, n) != 0) continue;
    p->count += times;
    return LM_OK;
  }
  return add_new(c, piece, n, hash, times, err);
}

lm_status lm_piece_counts_add_text(lm_piece_counts *c, lm_pattern pattern, const char *text, size_t n, lm_error *err)
{
  for (size_t i = 0, m; i < n; i += m) {
    m = lm_split_next(pattern, text + i, n - i);
    LM_TRY(lm_piece_counts_add(c, text + i, m, 1, err));
  }
  return LM_OK;
}

/* ---- over ranks ---- */

static lm_status make_room(lm_piece_counts *c, const uint64_t sizes[2], lm_error *err)
{
  LM_TRY(lm_alloc(&c->pieces, sizes[0], sizeof *c->pieces, "the pieces of another rank", err));
  LM_TRY(lm_buffer_reserve(&c->bytes, sizes[1], err));
  c->n = sizes[0];
  c->bytes.size = sizes[1];
  return LM_OK;
}

static lm_status add_all(lm_piece_counts *c, const lm_piece_counts *more, lm_error *err)
{
  for (size_t i = 0; i < more->n; i++) {
    const lm_piece *p = &more->pieces[i];
    LM_TRY(lm_piece_counts_add(c, more->bytes.data + p->begin, p->n, p->count, err));
  }
  return LM_OK;
}

/* The ranks stand in pairs, `step` apart: the upper one gives its counts to the lower one. Collective. */
static lm_status reduce_round(lm_piece_counts *c, const lm_comm *comm, int step, lm_error *err)
{
  bool gives = comm->rank % (2 * step) == step;
  bool takes = comm->rank % (2 * step) == 0 && comm->rank + step < comm->size;
  int other = gives ? comm->rank - step : comm->rank + step;
  uint64_t sizes[2] = {c->n, c->bytes.size};
  lm_piece_counts more = {0};
  if (gives) lm_send(comm, sizes, sizeof sizes, other, LM_TAG_PIECES);
  if (takes) lm_receive(comm, sizes, sizeof sizes, other, LM_TAG_PIECES);
  lm_status s = lm_agree(comm, takes ? make_room(&more, sizes, err) : LM_OK, err);
  if (s == LM_OK) {
    lm_status mine = LM_OK;
    if (gives) {
      lm_send(comm, c->pieces, c->n * sizeof *c->pieces, other, LM_TAG_PIECES);
      lm_send(comm, c->bytes.data, c->bytes.size, other, LM_TAG_PIECES);
      lm_piece_counts_free(c);
    } else if (takes) {
      lm_receive(comm, more.pieces, more.n * sizeof *more.pieces, other, LM_TAG_PIECES);
      lm_receive(comm, more.bytes.data, more.bytes.size, other, LM_TAG_PIECES);
      mine = add_all(c, &more, err);
    }
    s = lm_agree(comm, mine, err);
  }
  lm_piece_counts_free(&more);
  return s;
}

lm_status lm_piece_counts_reduce(lm_piece_counts *c, const lm_comm *comm, lm_error *err)
{
  for (int step = 1; step < comm->size; step *= 2) LM_TRY(reduce_round(c, comm, step, err));
  return LM_OK;
}
