/* src/text/encode.c - text -> ids: special tokens, pieces, a cache of pieces, and merges by rank inside a piece. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "text/vocab_build.h"

#include <stdlib.h>
#include <string.h>

/* Two caches, both direct-mapped: a later piece takes the slot, so they never grow and never need clearing. The first
 * holds what nearly all words of a text are, in half a cache line each; the second what is longer. */
enum {
  SHORT_BYTES = 16,
  SHORT_IDS = 3,
  SHORT_SLOTS = 1 << 16,
  LONG_BYTES = 64,
  LONG_IDS = 15,
  LONG_SLOTS = 1 << 13,
  SCAN_MAX = 96 /* pieces up to this many tokens are merged by scanning for the lowest rank, longer ones with a heap */
};

typedef struct short_entry {
  uint64_t key[2]; /* the bytes, then zeros */
  uint32_t ids[SHORT_IDS];
  uint8_t n, n_ids; /* n 0: empty */
} short_entry;

typedef struct long_entry {
  char bytes[LONG_BYTES];
  uint32_t ids[LONG_IDS];
  uint16_t n, n_ids;
} long_entry;

struct lm_encoder {
  const lm_vocab *v;
  short_entry *shorts;
  long_entry *longs;
  uint32_t *ids, *ranks, *merged; /* [capacity] tokens of a piece; rank and result of the merge with the next one */
  uint32_t *next, *previous;      /* [capacity] neighbours, in the heap's list */
  uint64_t *heap;                 /* rank << 32 | place: the lowest rank, and of those the leftmost, is on top */
  size_t capacity, heap_size, heap_capacity;
};

void lm_ids_free(lm_ids *ids)
{
  free(ids->data);
  *ids = (lm_ids){0};
}

void lm_encoder_free(lm_encoder *e)
{
  if (e == NULL) return;
  free(e->shorts);
  free(e->longs);
  free(e->ids);
  free(e->heap);
  free(e);
}

static lm_status allocate(lm_encoder *e, lm_error *err)
{
  LM_TRY(lm_alloc(&e->shorts, SHORT_SLOTS, sizeof *e->shorts, "the cache of an encoder", err));
  return lm_alloc(&e->longs, LONG_SLOTS, sizeof *e->longs, "the cache of an encoder", err);
}

lm_status lm_encoder_new(lm_encoder **out, const lm_vocab *v, lm_error *err)
{
  LM_TRY(lm_alloc(out, 1, sizeof **out, "an encoder", err));
  (*out)->v = v;
  lm_status s = allocate(*out, err);
  if (s == LM_OK) return LM_OK;
  lm_encoder_free(*out);
  *out = NULL;
  return s;
}

static inline lm_status reserve_ids(lm_ids *out, size_t extra, lm_error *err)
{
  return lm_grow(&out->data, &out->capacity, out->size + extra, sizeof *out->data, err);
}

/* ---- merging ---- */

/* Scratch for a piece of n tokens: five arrays in one block. */
static lm_status reserve_piece(lm_encoder *e, size_t n, lm_error *err)
{
  if (n <= e->capacity) return LM_OK;
  size_t capacity = n + n / 2 + SCAN_MAX;
  free(e->ids);
  e->capacity = 0;
  LM_TRY(lm_alloc(&e->ids, 5 * capacity, sizeof *e->ids, "a piece of text", err));
  e->capacity = capacity;
  e->ranks = e->ids + capacity;
  e->merged = e->ranks + capacity;
  e->next = e->merged + capacity;
  e->previous = e->next + capacity;
  return LM_OK;
}

/* Look up the merge of the token at i with the one at j. */
static inline void look_up(lm_encoder *e, size_t i, size_t j)
{
  const lm_pair *p = lm_vocab_pair(e->v, e->ids[i], e->ids[j]);
  e->ranks[i] = p != NULL ? p->rank : LM_NO_ID;
  e->merged[i] = p != NULL ? p->id : LM_NO_ID;
}

/* Few tokens: find the lowest rank, merge, close the gap, again. @return tokens left in e->ids */
static size_t merge_by_scan(lm_encoder *e, size_t n)
{
  for (size_t i = 0; i + 1 < n; i++) look_up(e, i, i + 1);
  e->ranks[n - 1] = LM_NO_ID;
  for (;;) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; i++)
      if (e->ranks[i] < e->ranks[best]) best = i;
    if (e->ranks[best] == LM_NO_ID) return n;
    e->ids[best] = e->merged[best];
    size_t behind = n - best - 2;
    memmove(e->ids + best + 1, e->ids + best + 2, behind * sizeof *e->ids);
    memmove(e->ranks + best + 1, e->ranks + best + 2, behind * sizeof *e->ranks);
    memmove(e->merged + best + 1, e->merged + best + 2, behind * sizeof *e->merged);
    n--;
    if (best + 1 < n)
      look_up(e, best, best + 1);
    else
      e->ranks[best] = LM_NO_ID;
    if (best > 0) look_up(e, best - 1, best);
  }
}

static void sift_down(uint64_t *heap, size_t n, size_t i)
{
  uint64_t item = heap[i];
  for (size_t child; (child = 2 * i + 1) < n; i = child) {
    child += child + 1 < n && heap[child + 1] < heap[child];
    if (item <= heap[child]) break;
    heap[i] = heap[child];
  }
  heap[i] = item;
}

static lm_status push(lm_encoder *e, size_t place, lm_error *err)
{
  if (e->ranks[place] == LM_NO_ID) return LM_OK;
  LM_TRY(lm_grow(&e->heap, &e->heap_capacity, e->heap_size + 1, sizeof *e->heap, err));
  uint64_t item = (uint64_t)e->ranks[place] << 32 | place;
  size_t i = e->heap_size++;
  for (; i > 0 && item < e->heap[(i - 1) / 2]; i = (i - 1) / 2) e->heap[i] = e->heap[(i - 1) / 2];
  e->heap[i] = item;
  return LM_OK;
}

static uint64_t pop(lm_encoder *e)
{
  uint64_t top = e->heap[0];
  e->heap[0] = e->heap[--e->heap_size];
  if (e->heap_size > 0) sift_down(e->heap, e->heap_size, 0);
  return top;
}

/* Many tokens: a list of tokens and a heap of possible merges. Entries of merges that are gone are passed over.
 * @param[in,out] n  tokens in e->ids, then tokens left */
static lm_status merge_by_heap(lm_encoder *e, size_t *n, lm_error *err)
{
  size_t end = *n, left = 0;
  LM_TRY(lm_grow(&e->heap, &e->heap_capacity, end, sizeof *e->heap, err));
  e->heap_size = 0;
  for (size_t i = 0; i < end; i++) {
    e->next[i] = (uint32_t)(i + 1);
    e->previous[i] = (uint32_t)(i - 1);
    e->ranks[i] = LM_NO_ID;
    if (i + 1 < end) look_up(e, i, i + 1);
    if (e->ranks[i] != LM_NO_ID) e->heap[e->heap_size++] = (uint64_t)e->ranks[i] << 32 | i;
  }
  for (size_t i = e->heap_size / 2; i-- > 0;) sift_down(e->heap, e->heap_size, i);
  while (e->heap_size > 0) {
    uint64_t top = pop(e);
    size_t i = (uint32_t)top;
    if (e->ranks[i] != top >> 32) continue; /* a token of it has been merged since */
    size_t gone = e->next[i], after = e->next[gone];
    e->ids[i] = e->merged[i];
    e->ranks[i] = e->ranks[gone] = LM_NO_ID;
    e->next[i] = (uint32_t)after;
    if (after < end) {
      e->previous[after] = (uint32_t)i;
      look_up(e, i, after);
      LM_TRY(push(e, i, err));
    }
    if (i > 0) {
      look_up(e, e->previous[i], i);
      LM_TRY(push(e, e->previous[i], err));
    }
  }
  for (size_t i = 0; i < end; i = e->next[i]) e->ids[left++] = e->ids[i];
  *n = left;
  return LM_OK;
}

lm_status lm_encode_piece(lm_encoder *e, const char *piece, size_t n, lm_ids *out, lm_error *err)
{
  const lm_vocab *v = e->v;
  if (n >= LM_NO_ID)
    return lm_fail(err, LM_EINVAL, "a piece of %zu bytes without a split, at most %u are supported", n, LM_NO_ID - 1);
  LM_TRY(reserve_piece(e, n, err));
  for (size_t i = 0; i < n; i++) {
    e->ids[i] = v->of_byte[(uint8_t)piece[i]];
    if (e->ids[i] == LM_NO_ID)
      return lm_fail(err, LM_EINVAL, "byte 0x%02x has no token in the vocabulary", (uint8_t)piece[i]);
  }
  if (n <= SCAN_MAX)
    n = merge_by_scan(e, n);
  else
    LM_TRY(merge_by_heap(e, &n, err));
  LM_TRY(reserve_ids(out, n, err));
  memcpy(out->data + out->size, e->ids, n * sizeof *e->ids);
  out->size += n;
  return LM_OK;
}

/* ---- one piece, with what earlier ones left in the caches ---- */

static lm_status encode_uncached(lm_encoder *e, const char *piece, size_t n, lm_ids *out, lm_error *err)
{
  uint32_t whole = e->v->whole_first ? lm_vocab_find(e->v, piece, n) : LM_NO_ID;
  if (whole == LM_NO_ID) return lm_encode_piece(e, piece, n, out, err);
  LM_TRY(reserve_ids(out, 1, err));
  out->data[out->size++] = whole;
  return LM_OK;
}

/* Mix two words by one product of 128 bits. */
static inline uint64_t mix(uint64_t a, uint64_t b)
{
  unsigned __int128 product = (unsigned __int128)(a ^ 0x9e3779b97f4a7c15u) * (b ^ 0xd1b54a32d192ed03u);
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static lm_status encode_long(lm_encoder *e, const char *piece, size_t n, lm_ids *out, lm_error *err)
{
  if (n > LONG_BYTES) return encode_uncached(e, piece, n, out, err);
  long_entry *slot;
  uint64_t hash = n, word = 0;
  for (size_t i = 0; i < n; i += 8) {
    memcpy(&word, piece + i, n - i < 8 ? n - i : 8);
    hash = mix(hash, word);
  }
  slot = &e->longs[hash % LONG_SLOTS];
  if (slot->n == n && memcmp(slot->bytes, piece, n) == 0) {
    LM_TRY(reserve_ids(out, LONG_IDS, err));
    memcpy(out->data + out->size, slot->ids, sizeof slot->ids);
    out->size += slot->n_ids;
    return LM_OK;
  }
  size_t before = out->size;
  LM_TRY(encode_uncached(e, piece, n, out, err));
  if (out->size - before > LONG_IDS) return LM_OK;
  slot->n = (uint16_t)n;
  slot->n_ids = (uint16_t)(out->size - before);
  memcpy(slot->bytes, piece, n);
  memcpy(slot->ids, out->data + before, slot->n_ids * sizeof *slot->ids);
  return LM_OK;
}

/* The first n <= 16 bytes at s, then zeros; `left` bytes may be read. */
static inline void load_key(const char *s, size_t n, size_t left, uint64_t key[2])
{
  key[0] = key[1] = 0;
#if defined __BYTE_ORDER__ && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  if (left >= SHORT_BYTES) { /* two loads and a mask are faster than a copy of n bytes */
    memcpy(key, s, SHORT_BYTES);
    if (n <= 8) {
      key[0] &= ~(uint64_t)0 >> (64 - 8 * n);
      key[1] = 0;
    } else {
      key[1] &= ~(uint64_t)0 >> (128 - 8 * n);
    }
    return;
  }
#endif
  memcpy(key, s, n);
}

static lm_status encode_short(lm_encoder *e, short_entry *slot, const uint64_t key[2], const char *piece, size_t n,
                              lm_ids *out, lm_error *err)
{
  size_t before = out->size;
  LM_TRY(encode_uncached(e, piece, n, out, err));
  if (out->size - before > SHORT_IDS) return LM_OK;
  *slot = (short_entry){.key = {key[0], key[1]}, .n = (uint8_t)n, .n_ids = (uint8_t)(out->size - before)};
  memcpy(slot->ids, out->data + before, slot->n_ids * sizeof *slot->ids);
  return LM_OK;
}

/* Text without special tokens. */
static lm_status encode_ordinary(lm_encoder *e, const char *text, size_t n, lm_ids *out, lm_error *err)
{
  for (size_t i = 0, length; i < n; i += length) {
    length = lm_split_next(e->v->pattern, text + i, n - i);
    if (length > SHORT_BYTES) {
      LM_TRY(encode_long(e, text + i, length, out, err));
      continue;
    }
    uint64_t key[2];
    load_key(text + i, length, n - i, key);
    short_entry *slot = &e->shorts[mix(key[0], key[1] + length) % SHORT_SLOTS];
    if (slot->n != length || slot->key[0] != key[0] || slot->key[1] != key[1]) {
      LM_TRY(encode_short(e, slot, key, text + i, length, out, err));
      continue;
    }
    LM_TRY(reserve_ids(out, SHORT_IDS, err));
    memcpy(out->data + out->size, slot->ids, sizeof slot->ids);
    out->size += slot->n_ids;
  }
  return LM_OK;
}

/* ---- special tokens ---- */

/* The special token at text, or NULL. Of several the longest. */
static const lm_special *special_at(const lm_vocab *v, const char *text, size_t n, bool all)
{
  for (size_t i = 0; i < v->n_specials; i++) {
    size_t length;
    const char *bytes = lm_vocab_bytes(v, v->specials[i].id, &length);
    if ((all || v->specials[i].always) && length <= n && memcmp(bytes, text, length) == 0) return &v->specials[i];
  }
  return NULL;
}

lm_status lm_encode(lm_encoder *e, const char *text, size_t n, bool specials, lm_ids *out, lm_error *err)
{
  const lm_vocab *v = e->v;
  const uint8_t wanted = specials ? 1 : 2;
  size_t begin = 0;
  for (size_t i = 0; i < n; i++) {
    if ((v->special_first[(uint8_t)text[i]] & wanted) == 0) continue;
    const lm_special *found = special_at(v, text + i, n - i, specials);
    if (found == NULL) continue;
    LM_TRY(encode_ordinary(e, text + begin, i - begin, out, err));
    LM_TRY(reserve_ids(out, 1, err));
    out->data[out->size++] = found->id;
    begin = i + v->tokens[found->id].n;
    i = begin - 1;
  }
  return encode_ordinary(e, text + begin, n - begin, out, err);
}
