/* src/text/vocab.c - a vocabulary in memory: tokens, merges, special tokens, and the tables to find them. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "text/vocab_build.h"

#include "base/file.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

static const char end_of_text[] = "<|endoftext|>";

lm_status lm_vocab_new(lm_vocab **out, lm_pattern pattern, lm_error *err)
{
  LM_TRY(lm_alloc(out, 1, sizeof **out, "a vocabulary", err));
  (*out)->pattern = pattern;
  (*out)->end_of_text = LM_NO_ID;
  return LM_OK;
}

void lm_vocab_free(lm_vocab *v)
{
  if (v == NULL) return;
  lm_regex_free(v->regex);
  free(v->tokens);
  free(v->merges);
  free(v->specials);
  free(v->pairs);
  free(v->byte_pairs);
  free(v->borders.wide);
  free(v->by_bytes);
  lm_buffer_free(&v->bytes);
  free(v);
}

lm_status lm_vocab_add(lm_vocab *v, uint32_t id, const char *bytes, size_t n, lm_error *err)
{
  if (id >= LM_VOCAB_MAX)
    return lm_fail(err, LM_EINVAL, "id %u is too large, at most %d is supported", id, LM_VOCAB_MAX - 1);
  if (n == 0 || n > INT32_MAX)
    return lm_fail(err, LM_EINVAL, "id %u has a token of %zu bytes, at least 1 is wanted", id, n);
  if (id >= v->size) {
    LM_TRY(lm_grow(&v->tokens, &v->tokens_capacity, (size_t)id + 1, sizeof *v->tokens, err));
    memset(v->tokens + v->size, 0, (id + 1 - v->size) * sizeof *v->tokens);
    v->size = id + 1;
  }
  if (v->tokens[id].n > 0) return lm_fail(err, LM_EINVAL, "id %u is given to two tokens", id);
  v->tokens[id] = (lm_token){.at = v->bytes.size, .n = (uint32_t)n};
  return lm_buffer_append(&v->bytes, bytes, n, err);
}

lm_status lm_vocab_add_special(lm_vocab *v, uint32_t id, const char *text, size_t n, bool always, lm_error *err)
{
  LM_TRY(lm_vocab_add(v, id, text, n, err));
  v->tokens[id].special = true;
  LM_TRY(lm_grow(&v->specials, &v->specials_capacity, v->n_specials + 1, sizeof *v->specials, err));
  size_t at = v->n_specials++;
  for (; at > 0 && v->tokens[v->specials[at - 1].id].n < n; at--) v->specials[at] = v->specials[at - 1];
  v->specials[at] = (lm_special){.id = id, .always = always};
  return LM_OK;
}

lm_status lm_vocab_add_merge(lm_vocab *v, lm_merge merge, lm_error *err)
{
  LM_TRY(lm_grow(&v->merges, &v->merges_capacity, v->n_merges + 1, sizeof *v->merges, err));
  v->merges[v->n_merges++] = merge;
  return LM_OK;
}

const char *lm_vocab_bytes(const lm_vocab *v, uint32_t id, size_t *n)
{
  LM_ASSERT(id < v->size);
  *n = v->tokens[id].n;
  return *n > 0 ? v->bytes.data + v->tokens[id].at : NULL;
}

/* ---- tables ---- */

uint32_t lm_vocab_find(const lm_vocab *v, const char *bytes, size_t n)
{
  uint64_t hash = lm_hash(bytes, n);
  for (size_t i = hash & v->by_bytes_mask;; i = (i + 1) & v->by_bytes_mask) {
    uint64_t slot = v->by_bytes[i];
    if (slot == 0) return LM_NO_ID;
    if (slot >> 32 != hash >> 32) continue;
    uint32_t id = (uint32_t)slot - 1;
    if (v->tokens[id].n == n && memcmp(v->bytes.data + v->tokens[id].at, bytes, n) == 0) return id;
  }
}

/* A power of two with room for n entries at half load. */
static size_t table_size(size_t n)
{
  size_t size = 64;
  while (size < 2 * n) size *= 2;
  return size;
}

lm_status lm_vocab_index(lm_vocab *v, lm_error *err)
{
  size_t size = table_size(v->size);
  LM_TRY(lm_alloc(&v->by_bytes, size, sizeof *v->by_bytes, "the index of a vocabulary", err));
  memset(v->of_byte, 0xff, sizeof v->of_byte);
  v->by_bytes_mask = size - 1;
  for (uint32_t id = 0; id < v->size; id++) {
    size_t n;
    const char *bytes = lm_vocab_bytes(v, id, &n);
    if (n == 0 || v->tokens[id].special) continue;
    uint32_t other = lm_vocab_find(v, bytes, n);
    if (other != LM_NO_ID) return lm_fail(err, LM_EINVAL, "ids %u and %u spell the same bytes", other, id);
    uint64_t hash = lm_hash(bytes, n);
    size_t slot = hash & v->by_bytes_mask;
    while (v->by_bytes[slot] != 0) slot = (slot + 1) & v->by_bytes_mask;
    v->by_bytes[slot] = hash >> 32 << 32 | (id + 1);
    if (n == 1) v->of_byte[(uint8_t)*bytes] = id;
  }
  return LM_OK;
}

/* Every way to cut one token in two tokens. */
static bool walk_cuts(const lm_vocab *v, uint32_t id, bool (*visit)(void *to, lm_merge m, uint32_t rank), void *to)
{
  size_t n;
  const char *bytes = lm_vocab_bytes(v, id, &n);
  for (size_t cut = 1; cut < n; cut++) {
    lm_merge m = {.id = id, .left = lm_vocab_find(v, bytes, cut)};
    if (m.left == LM_NO_ID) continue;
    m.right = lm_vocab_find(v, bytes + cut, n - cut);
    if (m.right != LM_NO_ID && !visit(to, m, id)) return false;
  }
  return true;
}

/* The cuts of all ordinary tokens, in the order of ids. */
static bool walk_all_cuts(const lm_vocab *v, bool (*visit)(void *to, lm_merge m, uint32_t rank), void *to)
{
  for (uint32_t id = 0; id < v->size; id++)
    if (v->tokens[id].n > 1 && !v->tokens[id].special && !walk_cuts(v, id, visit, to)) return false;
  return true;
}

bool lm_vocab_walk_merges(const lm_vocab *v, bool (*visit)(void *to, lm_merge m, uint32_t rank), void *to)
{
  if (v->by_rank) return walk_all_cuts(v, visit, to);
  for (size_t i = 0; i < v->n_merges; i++)
    if (!visit(to, v->merges[i], (uint32_t)i)) return false;
  return true;
}

typedef struct merge_list {
  uint64_t *slots; /* [n] as they will stand in lm_vocab.pairs */
  size_t n, capacity;
  lm_status status;
  lm_error *err;
} merge_list;

static bool list_merge(void *to, lm_merge m, uint32_t rank)
{
  merge_list *l = to;
  l->status = lm_grow(&l->slots, &l->capacity, l->n + 1, sizeof *l->slots, l->err);
  if (l->status == LM_OK && l->n == LM_MERGES_MAX)
    l->status = lm_fail(l->err, LM_EINVAL, "more than %d merges, which are not supported", LM_MERGES_MAX);
  if (l->status == LM_OK) l->slots[l->n++] = ((uint64_t)m.left << 20 | m.right) << 24 | rank;
  return l->status == LM_OK;
}

/* Where a file repeats a merge, the first one counts. */
static void index_merge(lm_vocab *v, uint64_t merge)
{
  uint64_t key = merge >> 24;
  const lm_token *left = &v->tokens[key >> 20], *right = &v->tokens[key & 0xfffff];
  size_t i = lm_pair_hash(key) & v->pair_mask;
  for (; v->pairs[i] != LM_NO_PAIR; i = (i + 1) & v->pair_mask)
    if (v->pairs[i] >> 24 == key) return;
  v->pairs[i] = merge;
  if (left->n == 1 && right->n == 1)
    v->byte_pairs[(uint8_t)v->bytes.data[left->at] << 8 | (uint8_t)v->bytes.data[right->at]] = merge & 0xffffff;
}

static lm_status index_listed(lm_vocab *v, const merge_list *l, lm_error *err)
{
  size_t n_bytes = 256 * 256, size = table_size(l->n);
  LM_TRY(lm_alloc(&v->pairs, size, sizeof *v->pairs, "the index of the merges", err));
  LM_TRY(lm_alloc(&v->byte_pairs, n_bytes, sizeof *v->byte_pairs, "the index of the merges", err));
  memset(v->pairs, 0xff, size * sizeof *v->pairs);
  memset(v->byte_pairs, 0xff, n_bytes * sizeof *v->byte_pairs);
  v->pair_mask = size - 1;
  for (size_t i = 0; i < l->n; i++) index_merge(v, l->slots[i]);
  return LM_OK;
}

/* They are listed first, as only then it is known how many there are. */
static lm_status index_merges(lm_vocab *v, lm_error *err)
{
  merge_list list = {.err = err};
  lm_vocab_walk_merges(v, list_merge, &list);
  lm_status s = list.status == LM_OK ? index_listed(v, &list, err) : list.status;
  free(list.slots);
  return s;
}

static void add_borders(lm_vocab *v, size_t *count)
{
  for (uint32_t id = 0; id < v->size; id++) {
    size_t n;
    const char *bytes = lm_vocab_bytes(v, id, &n);
    if (!v->tokens[id].special) lm_borders_add(&v->borders, (const uint8_t *)bytes, n, count);
  }
}

static lm_status index_borders(lm_vocab *v, lm_error *err)
{
  size_t count = 0;
  add_borders(v, &count);
  LM_TRY(lm_borders_reserve(&v->borders, count, err));
  add_borders(v, NULL);
  return LM_OK;
}

/* What closes a document, by the names that base models in use have for it. */
static void find_end_of_text(lm_vocab *v)
{
  static const char *const names[] = {end_of_text, "<|end_of_text|>", "<|eos|>", "<eos>", "</s>", "[EOS]"};
  for (size_t k = 0; k < sizeof names / sizeof names[0] && v->end_of_text == LM_NO_ID; k++)
    for (size_t i = 0; i < v->n_specials; i++) {
      size_t n;
      const char *text = lm_vocab_bytes(v, v->specials[i].id, &n);
      if (n == strlen(names[k]) && memcmp(text, names[k], n) == 0) v->end_of_text = v->specials[i].id;
    }
}

lm_status lm_vocab_finish(lm_vocab *v, lm_error *err)
{
  if (v->size == 0) return lm_fail(err, LM_EINVAL, "has no tokens");
  if (v->by_bytes == NULL) LM_TRY(lm_vocab_index(v, err));
  LM_TRY(index_merges(v, err));
  LM_TRY(index_borders(v, err));
  for (size_t i = 0; i < v->n_specials; i++) {
    size_t n;
    uint8_t first = (uint8_t)*lm_vocab_bytes(v, v->specials[i].id, &n);
    v->special_first[first] |= v->specials[i].always ? 3 : 1;
  }
  find_end_of_text(v);
  return lm_vocab_weigh_tokens(v, err);
}

/* ---- vocabularies that need no file ---- */

static lm_status fill_from_merges(lm_vocab *v, const uint32_t (*merges)[2], size_t n, lm_error *err)
{
  lm_buffer joined = {0};
  lm_status s = LM_OK;
  for (uint32_t byte = 0; byte < 256 && s == LM_OK; byte++) s = lm_vocab_add(v, byte, &(char){(char)byte}, 1, err);
  for (size_t i = 0; i < n && s == LM_OK; i++) {
    uint32_t id = (uint32_t)(256 + i), left = merges[i][0], right = merges[i][1];
    LM_ASSERT(left < id && right < id);
    const lm_token *a = &v->tokens[left], *b = &v->tokens[right];
    joined.size = 0;
    s = lm_buffer_append(&joined, v->bytes.data + a->at, a->n, err);
    if (s == LM_OK) s = lm_buffer_append(&joined, v->bytes.data + b->at, b->n, err);
    if (s == LM_OK) s = lm_vocab_add(v, id, joined.data, joined.size, err);
    if (s == LM_OK) s = lm_vocab_add_merge(v, (lm_merge){left, right, id}, err);
  }
  lm_buffer_free(&joined);
  LM_TRY(s);
  LM_TRY(lm_vocab_add_special(v, v->size, end_of_text, sizeof end_of_text - 1, false, err));
  return lm_vocab_finish(v, err);
}

lm_status lm_vocab_from_merges(lm_vocab **out, const uint32_t (*merges)[2], size_t n, lm_pattern pattern, lm_error *err)
{
  LM_TRY(lm_vocab_new(out, pattern, err));
  lm_status s = fill_from_merges(*out, merges, n, err);
  if (s == LM_OK) return LM_OK;
  lm_vocab_free(*out);
  *out = NULL;
  return lm_fail_in(err, s, "a vocabulary of %zu merges", n);
}

/* ---- files ---- */

/* JSON begins with a brace, a rank file with "base64 number", and what is left are GPT-2's merges. */
static lm_status read_text(lm_vocab **out, const char *path, const lm_buffer *text, lm_pattern pattern, lm_error *err)
{
  size_t at = text->size == 0 ? 0 : strspn(text->data, " \t\r\n");
  if (at == text->size) return lm_fail(err, LM_EINVAL, "%s: is empty, a vocabulary was wanted", path);
  if (text->data[at] == '{') return lm_vocab_read_json(out, path, text, err);
  size_t first = strcspn(text->data, " \n"),
         digits = strspn(text->data + first + (text->data[first] == ' '), "0123456789");
  bool ranks = first > 0 && first % 4 == 0 && text->data[first] == ' ' && digits > 0 &&
               strchr("\r\n", text->data[first + 1 + digits]) != NULL;
  return ranks ? lm_vocab_read_ranks(out, path, text, pattern, err) : lm_vocab_read_bpe(out, path, text, pattern, err);
}

lm_status lm_vocab_load(lm_vocab **out, const char *path, lm_pattern pattern, lm_error *err)
{
  *out = NULL;
  if (strcmp(path, "bytes") == 0)
    return lm_vocab_from_merges(out, NULL, 0, pattern == LM_PATTERN_AUTO ? LM_PATTERN_GPT2 : pattern, err);
  lm_buffer text = {0};
  lm_status s = lm_file_read(path, &text, err);
  if (s == LM_OK) s = read_text(out, path, &text, pattern, err);
  lm_buffer_free(&text);
  if (s != LM_OK) {
    lm_vocab_free(*out);
    *out = NULL;
  }
  return s;
}

/* ---- what others may know ---- */

uint32_t lm_vocab_size(const lm_vocab *v)
{
  return v->size;
}

uint32_t lm_vocab_end_of_text(const lm_vocab *v)
{
  return v->end_of_text;
}

lm_pattern lm_vocab_pattern(const lm_vocab *v)
{
  return v->pattern;
}

const char *lm_vocab_regex(const lm_vocab *v)
{
  return v->regex != NULL ? lm_regex_text(v->regex) : lm_pattern_regex(v->pattern);
}

bool lm_vocab_is_special(const lm_vocab *v, uint32_t id)
{
  LM_ASSERT(id < v->size);
  return v->tokens[id].special;
}

lm_status lm_vocab_begin_of_text(const lm_vocab *v, const char *text, uint32_t *id, lm_error *err)
{
  for (size_t i = 0; i < v->n_specials; i++) {
    size_t n;
    *id = v->specials[i].id;
    const char *bytes = lm_vocab_bytes(v, *id, &n);
    if (v->tokens[*id].special && n == strlen(text) && memcmp(bytes, text, n) == 0) return LM_OK;
  }
  return lm_fail(err, LM_EINVAL, "'%s' is no special token of the vocabulary; documents cannot begin with it", text);
}
