/* src/model/sample.h - logits -> the next token. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_MODEL_SAMPLE_H
#define LM_MODEL_SAMPLE_H

#include "base/status.h"
#include <stdint.h>

/** How to choose. Plain data. */
typedef struct lm_sampling {
  double temperature; /* >= 0; 0: the likeliest token, the lowest id of equals */
  int64_t top_k;      /* only the k likeliest; 0: all; above V: V */
  double top_p;       /* (0, 1]: only the fewest likeliest that hold this much probability. Holtzman et al.,
                         arXiv:1904.09751, section 3.1 */
  uint64_t seed;
} lm_sampling;

/** Choose a token. Local. A pure function of its arguments: the same seed and position give the same choice.
 *  @param logits   [V] f32, changed
 *  @param order    [V] scratch
 *  @param position counts the tokens chosen with this seed */
uint32_t lm_sample(const lm_sampling *how, float *logits, uint32_t *order, uint32_t V, uint64_t position);

#endif
