/* src/text/vocab.h - a byte-level BPE vocabulary: ids, their bytes, merges, the split pattern, special tokens. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TEXT_VOCAB_H
#define LM_TEXT_VOCAB_H

#include "base/memory.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum lm_pattern {
  LM_PATTERN_GPT2,
  LM_PATTERN_CL100K,
  LM_PATTERN_O200K,
  LM_PATTERN_LLAMA3,
  LM_PATTERN_QWEN2, /* cl100k's with numbers one by one */
  LM_PATTERN_AUTO,  /* only for lm_vocab_load(): the pattern that a known rank file was made with, told by its size */
  LM_PATTERN_OTHER, /* a tokenizer.json's own regular expression, matched by PCRE2 */
} lm_pattern;
/* For option tables, in the order of the enum: of what is made, and of what is loaded. */
#define LM_PATTERN_WORDS         "gpt2|cl100k|o200k|llama3|qwen2"
#define LM_PATTERN_WORDS_OR_AUTO LM_PATTERN_WORDS "|auto"

typedef struct lm_vocab lm_vocab; /* opaque, immutable once loaded: threads may share it */

/** Load a vocabulary. Local.
 *  @param path  "bytes" (built in: ids 0-255 are the bytes, 256 is the end of text), or a file: tokenizer.json,
 *               *.tiktoken, vocab.bpe; told apart by their content
 *  @param pattern  the split pattern for files that do not say theirs (rank files, vocab.bpe) and for "bytes"; a
 *                  tokenizer.json brings its own
 *  @return LM_EINVAL (file and reason), LM_EIO, LM_ENOMEM; *out is NULL then */
lm_status lm_vocab_load(lm_vocab **out, const char *path, lm_pattern pattern, lm_error *err) LM_NODISCARD;
void lm_vocab_free(lm_vocab *v);

/** Make a vocabulary of merges, as training gives them. Local. Ids 0-255 are the bytes by value, 256 + i is the
 *  joined bytes of merges[i], and the last id is the special token <|endoftext|>.
 *  @param merges  [n] pairs of ids (left, right), each below 256 + its own index; copied
 *  @return LM_ENOMEM; LM_EINVAL where two merges spell the same bytes */
lm_status lm_vocab_from_merges(lm_vocab **out, const uint32_t (*merges)[2], size_t n, lm_pattern pattern,
                               lm_error *err) LM_NODISCARD;

#define LM_NO_ID UINT32_MAX /* no token */

uint32_t lm_vocab_size(const lm_vocab *v);        /* ids are [0, size), special tokens included */
uint32_t lm_vocab_end_of_text(const lm_vocab *v); /* closes every document; LM_NO_ID where a tokenizer.json has none */
lm_pattern lm_vocab_pattern(const lm_vocab *v);
const char *lm_vocab_regex(const lm_vocab *v); /* the expression that the pattern stands for */

bool lm_vocab_is_special(const lm_vocab *v, uint32_t id); /* id < lm_vocab_size() */

/** The special token with this text, which begins documents. Local. LM_EINVAL where there is none. */
lm_status lm_vocab_begin_of_text(const lm_vocab *v, const char *text, uint32_t *id, lm_error *err) LM_NODISCARD;

/** Hash of vocabulary, merges, split pattern and special tokens: equal if and only if all ids are. Local. */
uint64_t lm_vocab_fingerprint(const lm_vocab *v);

/** The bytes of a token; special tokens give their text. Local. id < lm_vocab_size(). *n bytes, not 0-terminated;
 *  NULL for an id that the vocabulary leaves unused, as cl100k does. */
const char *lm_vocab_bytes(const lm_vocab *v, uint32_t id, size_t *n);

/** Write as a Hugging Face tokenizer.json that `tokenizers` loads with equal ids. Local. */
lm_status lm_vocab_save(const lm_vocab *v, const char *path, lm_error *err) LM_NODISCARD;

/* ---- text -> ids ---- */

typedef struct lm_ids { /* growable; zero-initialise; free with lm_ids_free() */
  uint32_t *data;
  size_t size, capacity;
} lm_ids;
void lm_ids_free(lm_ids *ids);

typedef struct lm_encoder lm_encoder; /* opaque: one thread's caches and scratch */

/** @param v kept */
lm_status lm_encoder_new(lm_encoder **out, const lm_vocab *v, lm_error *err) LM_NODISCARD;
void lm_encoder_free(lm_encoder *e);

/** Append the ids of n bytes of text, without an end-of-text. Local. Time linear in n on every input.
 *  @param specials  text that spells a special token becomes that token; else it is ordinary text */
lm_status lm_encode(lm_encoder *e, const char *text, size_t n, bool specials, lm_ids *out, lm_error *err) LM_NODISCARD;

/** What takes ids on their way: `ids` is empty again when the next ones come. Local. */
typedef lm_status (*lm_take_ids)(void *to, const lm_ids *ids, lm_error *err);

/** As lm_encode(), handing on the ids some ten thousand at a time, so that a huge text needs no huge room for them.
 * Local.
 *  @param ids  scratch; what is in it already goes first */
lm_status lm_encode_stream(lm_encoder *e, const char *text, size_t n, bool specials, lm_ids *ids, lm_take_ids take,
                           void *to, lm_error *err) LM_NODISCARD;

#endif
