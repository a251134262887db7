/* src/text/encode_merge.h - inside the text folder: the bytes of one piece -> tokens, by the rank of merges. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TEXT_ENCODE_MERGE_H
#define LM_TEXT_ENCODE_MERGE_H

#include "text/vocab_build.h"

typedef struct lm_heap {
  uint64_t *items; /* the smallest is on top */
  size_t size, capacity;
} lm_heap;

/* Places of a piece, in lists by the rank of the merge that is possible there. */
typedef struct lm_queue {
  struct {
    uint32_t first, last; /* entries + 1; 0: an empty list */
  } * lists;              /* [ranks of the vocabulary]; made for the first long piece */
  struct {
    uint32_t place, next; /* next: an entry + 1 */
  } * entries;
  size_t n_entries, capacity;
  lm_heap ranks; /* whose lists are not empty */
} lm_queue;

/* Scratch of one thread; zero-initialise but for v; free with lm_merger_free(). */
typedef struct lm_merger {
  const lm_vocab *v;
  uint32_t *ids, *ranks;     /* [capacity] tokens of a piece; the rank of the merge with the next one */
  uint32_t *next, *previous; /* [capacity] neighbours, in a long piece */
  size_t capacity;
  lm_queue queue;
  uint32_t *sweep; /* places of the rank at hand, from left to right */
  size_t n_sweep, sweep_capacity;
  lm_heap urgent; /* rank << 32 | place of merges that came up late: their rank is not above the one at hand */
} lm_merger;

/** Append the tokens that a piece of n >= 1 bytes is merged to: again and again the merge of the lowest rank, the
 * leftmost of equals. Local. LM_EINVAL where a byte has no token, LM_ENOMEM. */
lm_status lm_merge_piece(lm_merger *m, const char *piece, size_t n, lm_ids *out, lm_error *err) LM_NODISCARD;
void lm_merger_free(lm_merger *m);

#endif
