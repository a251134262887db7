/* src/text/encode_merge.c - the bytes of one piece -> tokens, by the rank of merges: short pieces and gigantic ones. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "text/encode_merge.h"

#include <stdlib.h>
#include <string.h>

enum {
  SCAN_MAX = 96, /* up to this many tokens, looking at all of them for the lowest rank is faster than keeping lists */
  WINDOW = 1 << 14, /* bytes of a gigantic piece that are merged at a time: what belongs to them stays in a cache */
  OVERLAP = 8       /* tokens that are merged again with the bytes behind them, where that is enough */
};

void lm_merger_free(lm_merger *m)
{
  free(m->ids);
  free(m->queue.lists);
  free(m->queue.entries);
  free(m->queue.ranks.items);
  free(m->sweep);
  free(m->urgent.items);
}

/* Scratch for a piece of n tokens: four arrays in one block. */
static lm_status reserve(lm_merger *m, size_t n, lm_error *err)
{
  if (n <= m->capacity) return LM_OK;
  size_t capacity = n + n / 2 + SCAN_MAX;
  free(m->ids);
  m->capacity = 0;
  LM_TRY(lm_alloc(&m->ids, 4 * capacity, sizeof *m->ids, "a piece of text", err));
  m->capacity = capacity;
  m->ranks = m->ids + capacity;
  m->next = m->ranks + capacity;
  m->previous = m->next + capacity;
  return LM_OK;
}

/* The bytes of a piece as tokens, and the ranks of the merges of neighbours; the last has none. */
static lm_status begin(lm_merger *m, const char *piece, size_t n, lm_error *err)
{
  const lm_vocab *v = m->v;
  const uint8_t *s = (const uint8_t *)piece;
  for (size_t i = 0; i < n; i++) {
    m->ids[i] = v->of_byte[s[i]];
    if (m->ids[i] == LM_NO_ID) return lm_fail(err, LM_EINVAL, "byte 0x%02x has no token in the vocabulary", s[i]);
  }
  for (size_t i = 0; i + 1 < n; i++) m->ranks[i] = v->byte_pairs[s[i] << 8 | s[i + 1]];
  m->ranks[n - 1] = LM_NO_ID;
  return LM_OK;
}

/* ---- short pieces ---- */

/* Find the lowest rank, merge, close the gap, again. @return tokens left in m->ids */
static size_t merge_short(lm_merger *m, size_t n)
{
  uint32_t *ids = m->ids, *ranks = m->ranks;
  for (;;) {
    uint32_t lowest = LM_NO_ID;
#pragma omp simd reduction(min : lowest)
    for (size_t i = 0; i < n; i++) lowest = ranks[i] < lowest ? ranks[i] : lowest;
    if (lowest == LM_NO_ID) return n;
    size_t at = 0;
    while (ranks[at] != lowest) at++;
    ids[at] = lm_vocab_merged(m->v, lowest);
    n--;
    for (size_t i = at + 1; i < n; i++) {
      ids[i] = ids[i + 1];
      ranks[i] = ranks[i + 1];
    }
    if (at > 0) lm_vocab_rank_soon(m->v, ids[at - 1], ids[at]);
    ranks[at] = at + 1 < n ? lm_vocab_rank(m->v, ids[at], ids[at + 1]) : LM_NO_ID;
    if (at > 0) ranks[at - 1] = lm_vocab_rank(m->v, ids[at - 1], ids[at]);
  }
}

/* ---- a binary heap ---- */

static lm_status push(lm_heap *h, uint64_t item, lm_error *err)
{
  LM_TRY(lm_grow(&h->items, &h->capacity, h->size + 1, sizeof *h->items, err));
  size_t i = h->size++;
  for (; i > 0 && item < h->items[(i - 1) / 2]; i = (i - 1) / 2) h->items[i] = h->items[(i - 1) / 2];
  h->items[i] = item;
  return LM_OK;
}

static uint64_t pop(lm_heap *h)
{
  uint64_t top = h->items[0], item = h->items[--h->size];
  size_t i = 0;
  for (size_t child; (child = 2 * i + 1) < h->size; i = child) {
    child += child + 1 < h->size && h->items[child + 1] < h->items[child];
    if (item <= h->items[child]) break;
    h->items[i] = h->items[child];
  }
  h->items[i] = item;
  return top;
}

/* ---- long pieces ----
 * All places of the lowest rank are merged in one sweep from left to right. What a merge makes possible has a higher
 * rank, as a rule, and waits in the list of its rank; otherwise it is urgent, and goes before the rest of the sweep
 * where its rank and place say so. So the order is exact, and memory is walked, not jumped through. */

static lm_status enqueue(lm_merger *m, size_t place, lm_error *err)
{
  lm_queue *q = &m->queue;
  uint32_t rank = m->ranks[place], entry = (uint32_t)q->n_entries + 1;
  LM_TRY(lm_grow(&q->entries, &q->capacity, q->n_entries + 1, sizeof *q->entries, err));
  q->entries[q->n_entries].place = (uint32_t)place;
  q->entries[q->n_entries++].next = 0;
  if (q->lists[rank].first == 0) {
    q->lists[rank].first = entry;
    LM_TRY(push(&q->ranks, rank, err));
  } else {
    q->entries[q->lists[rank].last - 1].next = entry;
  }
  q->lists[rank].last = entry;
  return LM_OK;
}

static int compare_places(const void *a, const void *b)
{
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

/* Move the list of a rank into m->sweep, from left to right. */
static lm_status dequeue(lm_merger *m, uint32_t rank, lm_error *err)
{
  lm_queue *q = &m->queue;
  bool ordered = true;
  m->n_sweep = 0;
  for (uint32_t entry = q->lists[rank].first; entry != 0; entry = q->entries[entry - 1].next) {
    LM_TRY(lm_grow(&m->sweep, &m->sweep_capacity, m->n_sweep + 1, sizeof *m->sweep, err));
    uint32_t place = q->entries[entry - 1].place;
    ordered &= m->n_sweep == 0 || m->sweep[m->n_sweep - 1] <= place;
    m->sweep[m->n_sweep++] = place;
  }
  q->lists[rank].first = 0;
  if (!ordered) qsort(m->sweep, m->n_sweep, sizeof *m->sweep, compare_places);
  return LM_OK;
}

/* Note the merge that has become possible at a place, while `rank` is at hand. */
static lm_status note(lm_merger *m, size_t place, uint32_t rank, lm_error *err)
{
  if (m->ranks[place] == LM_NO_ID) return LM_OK;
  if (m->ranks[place] > rank) return enqueue(m, place, err);
  return push(&m->urgent, (uint64_t)m->ranks[place] << 32 | place, err);
}

/* Merge the token at i with the next one, if their rank is still the one that was noted. */
static lm_status merge_at(lm_merger *m, size_t i, uint32_t noted, uint32_t at_hand, size_t end, lm_error *err)
{
  if (m->ranks[i] != noted) return LM_OK;
  size_t gone = m->next[i], after = m->next[gone];
  m->ids[i] = lm_vocab_merged(m->v, noted);
  m->ranks[i] = m->ranks[gone] = LM_NO_ID;
  m->next[i] = (uint32_t)after;
  if (i > 0) {
    m->ranks[m->previous[i]] = lm_vocab_rank(m->v, m->ids[m->previous[i]], m->ids[i]);
    LM_TRY(note(m, m->previous[i], at_hand, err));
  }
  if (after < end) {
    m->previous[after] = (uint32_t)i;
    m->ranks[i] = lm_vocab_rank(m->v, m->ids[i], m->ids[after]);
    LM_TRY(note(m, i, at_hand, err));
  }
  return LM_OK;
}

static lm_status sweep(lm_merger *m, uint32_t rank, size_t end, lm_error *err)
{
  for (size_t k = 0; k < m->n_sweep || m->urgent.size > 0;) {
    uint64_t item = k < m->n_sweep ? (uint64_t)rank << 32 | m->sweep[k] : UINT64_MAX;
    if (m->urgent.size > 0 && m->urgent.items[0] < item)
      item = pop(&m->urgent);
    else
      k++;
    LM_TRY(merge_at(m, (uint32_t)item, (uint32_t)(item >> 32), rank, end, err));
  }
  return LM_OK;
}

/* An earlier piece may have ended in an error, so that its lists are still there. */
static lm_status clear_queue(lm_merger *m, lm_error *err)
{
  lm_queue *q = &m->queue;
  size_t ranks = m->v->by_rank ? m->v->size : m->v->n_merges;
  if (q->lists == NULL) LM_TRY(lm_alloc(&q->lists, ranks, sizeof *q->lists, "the ranks of a vocabulary", err));
  while (q->ranks.size > 0) q->lists[pop(&q->ranks)].first = 0;
  q->n_entries = m->urgent.size = 0;
  return LM_OK;
}

/* @param[in,out] n  tokens in m->ids, then tokens left */
static lm_status merge_long(lm_merger *m, size_t *n, lm_error *err)
{
  size_t end = *n, left = 0;
  LM_TRY(clear_queue(m, err));
  for (size_t i = 0; i < end; i++) {
    m->next[i] = (uint32_t)(i + 1);
    m->previous[i] = (uint32_t)(i - 1);
    if (m->ranks[i] != LM_NO_ID) LM_TRY(enqueue(m, i, err));
  }
  while (m->queue.ranks.size > 0) {
    uint32_t rank = (uint32_t)pop(&m->queue.ranks);
    LM_TRY(dequeue(m, rank, err));
    LM_TRY(sweep(m, rank, end, err));
  }
  for (size_t i = 0; i < end; i = m->next[i]) m->ids[left++] = m->ids[i];
  *n = left;
  return LM_OK;
}

static lm_status append(const lm_merger *m, size_t n, lm_ids *out, lm_error *err)
{
  LM_TRY(lm_grow(&out->data, &out->capacity, out->size + n, sizeof *out->data, err));
  memcpy(out->data + out->size, m->ids, n * sizeof *m->ids);
  out->size += n;
  return LM_OK;
}

/* ---- gigantic pieces ----
 * They are merged in windows. Say that the text before a place is merged to tokens of which the last is x, and the text
 * behind it to tokens of which the first is y, and that the text of x and y alone is merged to x y again. Then the
 * tokens of both sides are those of the whole. For suppose that merges cross the place. Up to the first of them nothing
 * crosses the ends of x and of y, so what is merged between these ends, and in which order, is what is merged in their
 * text alone: what is lowest and leftmost of all is so among these. The same merge crosses the place there, and x y is
 * not what comes out. */

/* The tokens of n bytes, into m->ids. @param[in,out] n  bytes, then tokens */
static lm_status merge_window(lm_merger *m, const char *text, size_t *n, lm_error *err)
{
  LM_TRY(reserve(m, *n, err));
  LM_TRY(begin(m, text, *n, err));
  return merge_long(m, n, err);
}

/* Is the text of two tokens, which meet at `place`, merged to those two again? */
static lm_status meet(lm_merger *m, const char *place, const uint32_t both[2], bool *good, lm_error *err)
{
  size_t left = m->v->tokens[both[0]].n, n = left + m->v->tokens[both[1]].n;
  LM_TRY(merge_window(m, place - left, &n, err));
  *good = n == 2 && memcmp(m->ids, both, sizeof m->ids[0] * 2) == 0;
  return LM_OK;
}

/* Drop the last tokens of a piece. @return their bytes */
static size_t drop(const lm_merger *m, lm_ids *out, size_t count)
{
  size_t bytes = 0;
  for (; count > 0; count--) bytes += m->v->tokens[out->data[--out->size]].n;
  return bytes;
}

/* *done is false, and `out` is as it was, where it cannot be done so. */
static lm_status merge_windows(lm_merger *m, const char *piece, size_t n, lm_ids *out, bool *done, lm_error *err)
{
  size_t first = out->size, at = 0, overlap = OVERLAP;
  for (size_t merged = 0; merged < 4 * n;) { /* places that hold together from afar are not worth more */
    size_t place = out->size, length = n - at < WINDOW ? n - at : WINDOW, end = at + length;
    bool good = true;
    merged += length;
    LM_TRY(merge_window(m, piece + at, &length, err));
    LM_TRY(append(m, length, out, err));
    if (place > first) LM_TRY(meet(m, piece + at, out->data + place - 1, &good, err));
    *done = good && end == n;
    if (*done) return LM_OK;
    if (!good) out->size = place;
    overlap = good ? OVERLAP : 2 * overlap;
    if (out->size - first <= overlap) break;
    at = (good ? end : at) - drop(m, out, overlap);
  }
  out->size = first;
  *done = false;
  return LM_OK;
}

lm_status lm_merge_piece(lm_merger *m, const char *piece, size_t n, lm_ids *out, lm_error *err)
{
  enum { PIECE_MAX = INT32_MAX / 2 }; /* so that places and entries of lists fit in 32 bits */
  bool done = false;
  if (n > 2 * WINDOW) LM_TRY(merge_windows(m, piece, n, out, &done, err));
  if (done) return LM_OK;
  if (n > PIECE_MAX)
    return lm_fail(err, LM_EINVAL, "a piece of %zu bytes that no pattern splits; at most %d are supported", n,
                   PIECE_MAX);
  LM_TRY(reserve(m, n, err));
  LM_TRY(begin(m, piece, n, err));
  if (n <= SCAN_MAX)
    n = merge_short(m, n);
  else
    LM_TRY(merge_long(m, &n, err));
  return append(m, n, out, err);
}
