/* src/text/learn_merges.h - counted pieces -> the merges of byte-level BPE, most frequent first. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TEXT_LEARN_MERGES_H
#define LM_TEXT_LEARN_MERGES_H

#include "text/piece_counts.h"

/** Learn merges. Local. Sennrich, Haddow & Birch, "Neural Machine Translation of Rare Words with Subword Units",
 *  arXiv:1508.07909, Algorithm 1, on bytes (ids 0-255); merge i makes id 256 + i.
 *
 *  Each round merges the pair of neighbouring ids with the highest count; between equal counts the pair with the
 * smaller left id, then the one with the smaller right id. A pair is counted at every place where it stands, weighted
 * by how often the piece occurs ("aaa" holds (a, a) twice), and merged from the left ("aaa" -> "aa", "a"). So the
 * merges are a function of the counts alone: not of the order of pieces, files or ranks.
 *
 *  No two merges spell the same bytes: where no merge crossed the ends of a span, the span looks as its bytes would
 *  look alone, and once a merge spells these bytes, that is one token.
 *
 *  Time is that of the merges that take place: n log n for n bytes in all distinct pieces, whatever their length.
 *  @param c        read
 *  @param wanted   merges at most; fewer where no pair is left
 *  @param[out] out [n][2] the pairs; free() it; NULL on failure
 *  @return LM_ENOMEM; LM_EINVAL where the distinct pieces hold 2^32 bytes or more */
lm_status lm_learn_merges(const lm_piece_counts *c, size_t wanted, uint32_t (**out)[2], size_t *n,
                          lm_error *err) LM_NODISCARD;

#endif
