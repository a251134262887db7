/* src/text/piece_counts.h - how often each piece of text occurs: what a vocabulary is learned from. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TEXT_PIECE_COUNTS_H
#define LM_TEXT_PIECE_COUNTS_H

#include "base/memory.h"
#include "comm/comm.h"
#include "text/vocab.h"

typedef struct lm_piece {
  uint64_t count, hash;
  size_t begin, n; /* its bytes are bytes.data[begin, begin + n) */
} lm_piece;

/** Distinct pieces in the order of their first occurrence. Zero-initialise it; free with lm_piece_counts_free(). */
typedef struct lm_piece_counts {
  lm_piece *pieces;
  size_t n, capacity;
  lm_buffer bytes;
  uint32_t *slots; /* open addressing: index into pieces + 1, or 0 */
  size_t n_slots;  /* a power of two */
} lm_piece_counts;

/** Count a piece `times` more. Local. @param n >= 1 @return LM_ENOMEM; LM_EINVAL beyond 2^32 - 2 distinct pieces */
lm_status lm_piece_counts_add(lm_piece_counts *c, const char *piece, size_t n, uint64_t times,
                              lm_error *err) LM_NODISCARD;

/** Split a text by `pattern` and count its pieces. Local. @param text n bytes, n may be 0 */
lm_status lm_piece_counts_add_text(lm_piece_counts *c, lm_pattern pattern, const char *text, size_t n,
                                   lm_error *err) LM_NODISCARD;

/** Add up the counts of all ranks on rank 0, in log2(ranks) rounds; those of the other ranks are empty afterwards.
 *  Collective. @return LM_ENOMEM */
lm_status lm_piece_counts_reduce(lm_piece_counts *c, const lm_comm *comm, lm_error *err) LM_NODISCARD;

void lm_piece_counts_free(lm_piece_counts *c);

#endif
