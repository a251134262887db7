/* src/text/vocab_fingerprint.c - one number that two vocabularies share if and only if they give the same ids. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "text/encode_merge.h"

#include "base/hash.h"

#include <string.h>

static uint64_t hash_number(uint64_t h, uint32_t x)
{
  const uint8_t bytes[4] = {(uint8_t)x, (uint8_t)(x >> 8), (uint8_t)(x >> 16), (uint8_t)(x >> 24)};
  return lm_hash_seeded(bytes, sizeof bytes, h);
}

static uint64_t hash_tokens(const lm_vocab *v, uint64_t h)
{
  for (uint32_t id = 0; id < v->size; id++) {
    size_t n;
    const char *bytes = lm_vocab_bytes(v, id, &n);
    h = hash_number(h, (uint32_t)n);
    if (n > 0) h = lm_hash_seeded(bytes, n, h);
  }
  for (uint32_t id = 0; id < v->size; id++) {
    if (!v->tokens[id].special) continue;
    h = hash_number(h, id);
    for (size_t i = 0; i < v->n_specials; i++)
      if (v->specials[i].id == id) h = hash_number(h, v->specials[i].always);
  }
  return h;
}

typedef struct merges {
  const lm_vocab *v;
  uint32_t last; /* id of the merge before */
  uint64_t hash;
} merges;

static bool in_order(void *to, lm_merge m, uint32_t rank)
{
  merges *w = to;
  (void)rank;
  if (m.id < w->last) return false;
  w->last = m.id;
  return true;
}

static bool hash_merge(void *to, lm_merge m, uint32_t rank)
{
  merges *w = to;
  (void)rank;
  w->hash = hash_number(hash_number(w->hash, m.left), m.right);
  return true;
}

/* Does every ordinary token come out of its own bytes by merging? */
static lm_status merges_reach_all(const lm_vocab *v, bool *all, lm_error *err)
{
  lm_merger merger = {.v = v};
  lm_ids ids = {0};
  lm_status s = LM_OK;
  *all = true;
  for (uint32_t id = 0; id < v->size && *all && s == LM_OK; id++) {
    size_t n;
    const char *bytes = lm_vocab_bytes(v, id, &n);
    if (n == 0 || v->tokens[id].special) continue;
    ids.size = 0;
    s = lm_merge_piece(&merger, bytes, n, &ids, err);
    *all = s == LM_OK && ids.size == 1 && ids.data[0] == id;
  }
  lm_ids_free(&ids);
  lm_merger_free(&merger);
  return s;
}

/* Do the tokens alone say how text is merged: the lowest id that two neighbours can join to? Then the same vocabulary
 * read from ranks, from GPT-2's merges, and from a tokenizer.json has the same fingerprint. */
lm_status lm_vocab_weigh_tokens(lm_vocab *v, lm_error *err)
{
  merges w = {.v = v};
  v->tokens_say_all = v->by_rank || lm_vocab_walk_merges(v, in_order, &w);
  if (!v->tokens_say_all || v->by_rank || v->whole_first) return LM_OK;
  return merges_reach_all(v, &v->tokens_say_all, err);
}

uint64_t lm_vocab_fingerprint(const lm_vocab *v)
{
  const char *regex = lm_vocab_regex(v);
  merges w = {.v = v, .hash = hash_tokens(v, lm_hash(regex, strlen(regex)))};
  if (v->nfc) w.hash = hash_number(w.hash, LM_NO_ID);
  if (v->tokens_say_all) return w.hash;
  lm_vocab_walk_merges(v, hash_merge, &w);
  return hash_number(w.hash, v->whole_first);
}
