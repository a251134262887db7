/* src/batch/sources.h - the datasets that a run draws its samples from, and in which shares. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_BATCH_SOURCES_H
#define LM_BATCH_SOURCES_H

#include "base/options.h"
#include "batch/dataset.h"
#include "batch/mixture.h"

typedef struct lm_source {
  lm_dataset *data;
  uint64_t windows; /* of one epoch */
  uint64_t weight;  /* a whole number; the sum of all is at most LM_MOST_WEIGHT */
} lm_source;

/** data.train, opened. Plain data; threads may share it. */
typedef struct lm_sources {
  lm_source *items;
  size_t n;
} lm_sources;

/** Open what a list names: FILE, or FILE:WEIGHT, a decimal number. Without weights each dataset counts by its windows,
 *  so that all end an epoch together. Local.
 *  @param T  tokens of a window
 *  @return LM_EINVAL: none, a weight that is no number or is missing, no weight above 0, the same data twice, other
 *          vocabularies (both are named), too short for a window; or as lm_dataset_open() */
lm_status lm_sources_open(lm_sources *out, const lm_list *list, int T, lm_error *err) LM_NODISCARD;
void lm_sources_close(lm_sources *s);

/** The first one's description: what all share is vocabulary and end of text. Local. */
const lm_token_info *lm_sources_vocab(const lm_sources *s);

/** Sum of the checksums: that of the data where there is one dataset. Local. */
uint64_t lm_sources_checksum(const lm_sources *s);

/** The sources' share of the samples from `position` on, whatever was drawn before. Local. As lm_mixture_change(). */
lm_status lm_sources_mix(const lm_sources *s, lm_mixture *m, uint64_t position, lm_error *err) LM_NODISCARD;

/** The source of a column of the mixture, or NULL where the list does not name it. Local. */
const lm_source *lm_sources_find(const lm_sources *s, const lm_mixture *m, size_t column);

#endif
