/* src/text/encode.c - text -> ids: special tokens, pieces, and a cache of pieces. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "text/encode_merge.h"
#include "text/nfc.h"

#include <stdlib.h>
#include <string.h>

/* Two caches, whose entries are replaced by later pieces, so that they never grow and never need clearing. The first
 * has what nearly all words of a text are, two entries a cache line: a new piece takes the second, and moves up when it
 * is met again. The other has what is longer, in bytes or ids. */
enum {
  SHORT_BYTES = 16,
  SHORT_IDS = 3,
  SHORT_LINES = 1 << 17,
  LONG_BYTES = 64,
  LONG_IDS = 31,
  LONG_SLOTS = 1 << 13,
  IN_LONG = 255, /* short_entry.n_ids of a piece of few bytes and many ids */
  PART = 128,    /* in a tag, beside the number of bytes: a part of a piece, which is not looked up as a whole */
  BATCH = 32,    /* pieces that are fetched together */
  MANY = 1 << 16 /* ids that are handed on together */
};

typedef struct short_entry {
  uint64_t key[2]; /* the bytes, then zeros */
  uint32_t ids[SHORT_IDS];
  uint8_t tag, n_ids; /* tag 0: empty */
} short_entry;

typedef struct short_line {
  short_entry entry[2];
} short_line;

typedef struct long_entry {
  char bytes[LONG_BYTES];
  uint32_t ids[LONG_IDS];
  uint8_t tag, n_ids;
} long_entry;

/* A piece, or a part of one, on its way. */
typedef struct pending {
  const char *bytes;
  size_t n;
  uint8_t part; /* PART or 0 */
  uint64_t key[2];
  short_line *line; /* NULL: too long for a line */
} pending;

struct lm_encoder {
  const lm_vocab *v;
  short_line *lines;
  long_entry *longs;
  lm_merger merger;
  lm_regex_walk *walk; /* of LM_PATTERN_OTHER */
  lm_take_ids take;    /* NULL: all ids stay where they are appended */
  void *to;
  lm_nfc nfc;
  lm_buffer normalised;
};

void lm_ids_free(lm_ids *ids)
{
  free(ids->data);
  *ids = (lm_ids){0};
}

void lm_encoder_free(lm_encoder *e)
{
  if (e == NULL) return;
  free(e->lines);
  free(e->longs);
  lm_merger_free(&e->merger);
  lm_regex_walk_free(e->walk);
  lm_nfc_free(&e->nfc);
  lm_buffer_free(&e->normalised);
  free(e);
}

static lm_status allocate(lm_encoder *e, lm_error *err)
{
  if (e->v->regex != NULL) LM_TRY(lm_regex_walk_new(&e->walk, e->v->regex, err));
  LM_TRY(lm_alloc(&e->lines, SHORT_LINES, sizeof *e->lines, "the cache of an encoder", err));
  return lm_alloc(&e->longs, LONG_SLOTS, sizeof *e->longs, "the cache of an encoder", err);
}

lm_status lm_encoder_new(lm_encoder **out, const lm_vocab *v, lm_error *err)
{
  LM_TRY(lm_alloc(out, 1, sizeof **out, "an encoder", err));
  (*out)->v = (*out)->merger.v = v;
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

/* ---- one piece, with what earlier ones left in the caches ---- */

static lm_status encode_uncached(lm_encoder *e, const pending *p, lm_ids *out, lm_error *err)
{
  uint32_t whole = e->v->whole_first && p->part == 0 ? lm_vocab_find(e->v, p->bytes, p->n) : LM_NO_ID;
  if (whole == LM_NO_ID) return lm_merge_piece(&e->merger, p->bytes, p->n, out, err);
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

static lm_status encode_long(lm_encoder *e, const pending *p, lm_ids *out, lm_error *err)
{
  if (p->n > LONG_BYTES) return encode_uncached(e, p, out, err);
  long_entry *slot;
  uint64_t hash = p->n | p->part, word = 0;
  for (size_t i = 0; i < p->n; i += 8) {
    memcpy(&word, p->bytes + i, p->n - i < 8 ? p->n - i : 8);
    hash = mix(hash, word);
  }
  slot = &e->longs[hash % LONG_SLOTS];
  if (slot->tag == (p->n | p->part) && memcmp(slot->bytes, p->bytes, p->n) == 0) {
    LM_TRY(reserve_ids(out, LONG_IDS, err));
    memcpy(out->data + out->size, slot->ids, sizeof slot->ids);
    out->size += slot->n_ids;
    return LM_OK;
  }
  size_t before = out->size;
  LM_TRY(encode_uncached(e, p, out, err));
  if (out->size - before > LONG_IDS) return LM_OK;
  slot->tag = (uint8_t)(p->n | p->part);
  slot->n_ids = (uint8_t)(out->size - before);
  memcpy(slot->bytes, p->bytes, p->n);
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

/* A piece that is not in its line: encode it, and keep it there. */
static lm_status encode_short(lm_encoder *e, const pending *p, lm_ids *out, lm_error *err)
{
  short_entry *slot = &p->line->entry[1];
  size_t before = out->size;
  LM_TRY(encode_uncached(e, p, out, err));
  size_t n = out->size - before;
  *slot = (short_entry){
      .key = {p->key[0], p->key[1]}, .tag = (uint8_t)(p->n | p->part), .n_ids = n <= SHORT_IDS ? (uint8_t)n : IN_LONG};
  if (n <= SHORT_IDS) memcpy(slot->ids, out->data + before, n * sizeof *slot->ids);
  return LM_OK;
}

static inline bool is_entry(const short_entry *entry, const pending *p)
{
  return entry->tag == (p->n | p->part) && entry->key[0] == p->key[0] && entry->key[1] == p->key[1];
}

static inline lm_status encode_next(lm_encoder *e, const pending *p, lm_ids *out, lm_error *err)
{
  if (p->line == NULL) return encode_long(e, p, out, err);
  short_entry *entry = &p->line->entry[0];
  if (!is_entry(entry, p)) {
    if (!is_entry(entry + 1, p)) return encode_short(e, p, out, err);
    short_entry first = entry[0];
    entry[0] = entry[1];
    entry[1] = first;
  }
  if (entry->n_ids == IN_LONG) return encode_long(e, p, out, err);
  LM_TRY(reserve_ids(out, SHORT_IDS, err));
  memcpy(out->data + out->size, entry->ids, sizeof entry->ids);
  out->size += entry->n_ids;
  return LM_OK;
}

/* Where a text is cut: [begin, end) is the piece at hand, of which the bytes before `at` are cut. */
typedef struct cuts {
  const char *text;
  size_t n, begin, end, at;
} cuts;

static inline lm_status next_piece(lm_encoder *e, cuts *c, lm_error *err)
{
  size_t length;
  c->begin = c->at;
  if (e->walk != NULL)
    LM_TRY(lm_regex_walk_next(e->walk, c->at, &length, err));
  else
    length = lm_split_next(e->v->pattern, c->text + c->at, c->n - c->at);
  c->end = c->at + length;
  return LM_OK;
}

/* The next piece, or part of one where it is long, and the fetching of its line. */
static inline lm_status cut(lm_encoder *e, cuts *c, pending *p, lm_error *err)
{
  if (c->at == c->end) LM_TRY(next_piece(e, c, err));
  p->bytes = c->text + c->at;
  p->n = c->end - c->at;
  if (p->n > SHORT_BYTES) p->n = lm_borders_next(&e->v->borders, (const uint8_t *)p->bytes, p->n, c->at - c->begin);
  p->part = p->n == c->end - c->begin ? 0 : PART;
  p->line = NULL;
  if (p->n <= SHORT_BYTES) {
    load_key(p->bytes, p->n, c->n - c->at, p->key);
    p->line = &e->lines[mix(p->key[0], p->key[1] + (p->n | p->part)) % SHORT_LINES];
    __builtin_prefetch(p->line, 1);
  }
  c->at += p->n;
  return LM_OK;
}

/* Text without special tokens: cut a batch of pieces, so that their lines are fetched from memory at the same time. */
static lm_status encode_ordinary(lm_encoder *e, const char *text, size_t n, lm_ids *out, lm_error *err)
{
  pending batch[BATCH];
  cuts c = {.text = text, .n = n};
  if (e->walk != NULL) lm_regex_walk_begin(e->walk, text, n);
  while (c.at < n) {
    size_t count = 0;
    for (; count < BATCH && c.at < n; count++) LM_TRY(cut(e, &c, &batch[count], err));
    for (size_t k = 0; k < count; k++) LM_TRY(encode_next(e, &batch[k], out, err));
    if (e->take == NULL || out->size < MANY) continue;
    LM_TRY(e->take(e->to, out, err));
    out->size = 0;
  }
  return LM_OK;
}

static lm_status encode_normalised(lm_encoder *e, const char *text, size_t n, lm_ids *out, lm_error *err)
{
  if (!e->v->nfc || lm_nfc_quick(text, n)) return encode_ordinary(e, text, n, out, err);
  e->normalised.size = 0;
  LM_TRY(lm_nfc_append(&e->nfc, text, n, &e->normalised, err));
  return encode_ordinary(e, e->normalised.data, e->normalised.size, out, err);
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
    LM_TRY(encode_normalised(e, text + begin, i - begin, out, err));
    LM_TRY(reserve_ids(out, 1, err));
    out->data[out->size++] = found->id;
    begin = i + v->tokens[found->id].n;
    i = begin - 1;
  }
  return encode_normalised(e, text + begin, n - begin, out, err);
}

lm_status lm_encode_stream(lm_encoder *e, const char *text, size_t n, bool specials, lm_ids *ids, lm_take_ids take,
                           void *to, lm_error *err)
{
  e->take = take;
  e->to = to;
  lm_status s = lm_encode(e, text, n, specials, ids, err);
  e->take = NULL;
  if (s == LM_OK) s = take(to, ids, err);
  ids->size = 0;
  return s;
}
