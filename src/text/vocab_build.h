/* src/text/vocab_build.h - inside the text folder: what a vocabulary is made of, and how a file's reader makes one. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TEXT_VOCAB_BUILD_H
#define LM_TEXT_VOCAB_BUILD_H

#include "text/borders.h"
#include "text/split.h"
#include "text/split_regex.h"
#include "text/vocab.h"

/* Far above any vocabulary in use: two ids and a rank fit in 64 bits, and a broken file cannot ask for all memory. */
enum { LM_VOCAB_MAX = (1 << 20) - 1, LM_MERGES_MAX = 1 << 24 };

typedef struct lm_token {
  size_t at;  /* in lm_vocab.bytes */
  uint32_t n; /* 0: the id is not used */
  bool special;
} lm_token;

/* Two neighbours become one token; the lowest rank in a piece goes first. */
typedef struct lm_merge {
  uint32_t left, right, id;
} lm_merge;

typedef struct lm_special {
  uint32_t id;
  bool always; /* found in every text, not only where special tokens are asked for */
} lm_special;

struct lm_vocab {
  lm_pattern pattern;
  lm_regex *regex;     /* of LM_PATTERN_OTHER */
  bool by_rank;        /* of a rank file: any two tokens whose joined bytes are a token merge, with its id as rank */
  bool tokens_say_all; /* lm_vocab_weigh_tokens() */
  bool nfc;            /* text is brought into NFC first */
  bool whole_first;    /* a piece that is a token is that token, before any merge */
  uint32_t size, end_of_text;
  lm_token *tokens; /* [size] */
  size_t tokens_capacity;
  lm_buffer bytes;
  uint32_t of_byte[256]; /* LM_NO_ID where a byte has no token */
  lm_merge *merges;      /* [n_merges] by rank; none where by_rank */
  size_t n_merges, merges_capacity;
  lm_special *specials; /* [n_specials], the longest first */
  size_t n_specials, specials_capacity;
  uint8_t special_first[256]; /* can a special token begin with this byte? 1: yes, 2: one that is always found */
  uint64_t *pairs;            /* [pair_mask + 1] merges by their two tokens: left, right, rank, in 20, 20, 24 bits */
  size_t pair_mask;
  uint32_t *byte_pairs; /* [256 * 256] ranks of the merges of two bytes, by left * 256 + right */
  uint64_t *by_bytes;   /* [by_bytes_mask + 1] ordinary tokens: upper bits of the hash of the bytes, id + 1; 0: empty */
  size_t by_bytes_mask;
  lm_borders borders; /* of the ordinary tokens */
};

/** An empty vocabulary. Local. */
lm_status lm_vocab_new(lm_vocab **out, lm_pattern pattern, lm_error *err) LM_NODISCARD;

/** Give an id its bytes. Local. LM_EINVAL where the id is taken or too large, or n is 0. */
lm_status lm_vocab_add(lm_vocab *v, uint32_t id, const char *bytes, size_t n, lm_error *err) LM_NODISCARD;

/** As lm_vocab_add(), for a token that stands for more than its text. Local. */
lm_status lm_vocab_add_special(lm_vocab *v, uint32_t id, const char *text, size_t n, bool always,
                               lm_error *err) LM_NODISCARD;

/** The next merge by rank; id has the joined bytes. Local. */
lm_status lm_vocab_add_merge(lm_vocab *v, lm_merge merge, lm_error *err) LM_NODISCARD;

/** Make the tokens added so far known to lm_vocab_find(), for readers that need it; ordinary ones can no longer be
 * added then. Local. LM_EINVAL where two ids spell the same bytes. */
lm_status lm_vocab_index(lm_vocab *v, lm_error *err) LM_NODISCARD;

/** Build the tables once everything is added. Local. As lm_vocab_index(). */
lm_status lm_vocab_finish(lm_vocab *v, lm_error *err) LM_NODISCARD;

/** The last step of lm_vocab_finish(): do the tokens alone say how text is merged? Local. LM_ENOMEM */
lm_status lm_vocab_weigh_tokens(lm_vocab *v, lm_error *err) LM_NODISCARD;

/** The ordinary token that spells these bytes, or LM_NO_ID. Local. After lm_vocab_index(). */
uint32_t lm_vocab_find(const lm_vocab *v, const char *bytes, size_t n);

/** Walk the merges in the order of their ranks: those of the file, or, of a rank file, every way to cut a token in two
 *  tokens. Local. `visit` returns false to stop; the result is then false. */
bool lm_vocab_walk_merges(const lm_vocab *v, bool (*visit)(void *to, lm_merge m, uint32_t rank), void *to);

#define LM_NO_PAIR UINT64_MAX /* an empty slot of lm_vocab.pairs */

static inline size_t lm_pair_hash(uint64_t key)
{
  key *= 0x9e3779b97f4a7c15u; /* 2^64 / the golden ratio (Knuth, The Art of Computer Programming 3, section 6.4) */
  return (size_t)(key >> 32);
}

/** The rank of the merge of two neighbours, or LM_NO_ID. Local. */
static inline uint32_t lm_vocab_rank(const lm_vocab *v, uint32_t left, uint32_t right)
{
  uint64_t key = (uint64_t)left << 20 | right;
  for (size_t i = lm_pair_hash(key) & v->pair_mask;; i = (i + 1) & v->pair_mask) {
    uint64_t slot = v->pairs[i];
    if (slot >> 24 == key) return slot & 0xffffff;
    if (slot == LM_NO_PAIR) return LM_NO_ID;
  }
}

/** Begin to fetch what lm_vocab_rank() will look at. Local. */
static inline void lm_vocab_rank_soon(const lm_vocab *v, uint32_t left, uint32_t right)
{
  __builtin_prefetch(&v->pairs[lm_pair_hash((uint64_t)left << 20 | right) & v->pair_mask]);
}

/** The token that a merge makes. Local. */
static inline uint32_t lm_vocab_merged(const lm_vocab *v, uint32_t rank)
{
  return v->by_rank ? rank : v->merges[rank].id;
}

/* ---- readers and writers, one a file format; `text` is the file's content, `path` is for messages ---- */

lm_status lm_vocab_read_json(lm_vocab **out, const char *path, const lm_buffer *text, lm_error *err) LM_NODISCARD;
lm_status lm_vocab_read_ranks(lm_vocab **out, const char *path, const lm_buffer *text, lm_pattern pattern,
                              lm_error *err) LM_NODISCARD;
lm_status lm_vocab_read_bpe(lm_vocab **out, const char *path, const lm_buffer *text, lm_pattern pattern,
                            lm_error *err) LM_NODISCARD;

/* ---- the byte alphabet of GPT-2: a printable character for each byte, so that tokens can stand in text files ---- */

/** Append the spelling of n bytes. Local. */
lm_status lm_alphabet_write(lm_buffer *out, const char *bytes, size_t n, lm_error *err) LM_NODISCARD;

/** Append the bytes of a spelling of n bytes; *known is false where it has a character that spells no byte. Local. */
lm_status lm_alphabet_read(lm_buffer *out, const char *text, size_t n, bool *known, lm_error *err) LM_NODISCARD;

/** The byte of place i in the alphabet's own order, which GPT-2's ids 0-255 follow. Local. */
uint8_t lm_alphabet_byte(unsigned i);

#endif
