/* src/model/generation.h - sequences that grow a token at a time: what they have read is kept, not read again. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_MODEL_GENERATION_H
#define LM_MODEL_GENERATION_H

#include "model/model.h"

typedef struct lm_generation lm_generation; /* opaque: keys and values of some sequences, each in a slot */

/** Make room for `slots` sequences of up to `longest` tokens, prompt included (n_ctx where that is less). Local.
 *  @param m  kept; makes one forward at a time, so nothing else may use it between the calls of lm_model
 *  @return LM_ENOMEM with the bytes wanted */
lm_status lm_generation_new(lm_generation **out, lm_model *m, int slots, int64_t longest, lm_error *err) LM_NODISCARD;
void lm_generation_free(lm_generation *g);

/** Begin the sequence of a slot with n tokens; what was there is forgotten. Of more than n_ctx the last n_ctx. Local.
 *  @param[out] logits  [V] of the token after them, on the host */
void lm_generation_begin(lm_generation *g, int slot, const int32_t *tokens, size_t n, float *logits);

/** One token more for each of B sequences. Local. Logits do not depend on which other sequences are there. Where the
 *  context is full, the last half of it is read again, at positions from 0 on, and the sequence goes on from there.
 *  @param slots [B], begun, no two the same @param tokens [B] @param[out] logits [B,V], on the host */
void lm_generation_next(lm_generation *g, const int *slots, const int32_t *tokens, int B, float *logits);

/** What lm_generation_next() did so far. */
typedef struct lm_generation_work {
  uint64_t tokens, passes; /* tokens added; times that all weights were read for it */
  double bytes;            /* of weights, keys and values read for it */
  uint64_t slides;         /* times that a full context was read again from its half */
} lm_generation_work;

lm_generation_work lm_generation_done(const lm_generation *g);

#endif
