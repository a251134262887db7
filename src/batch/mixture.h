/* src/batch/mixture.h - which source each sample of a run comes from, and how many of it came before. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_BATCH_MIXTURE_H
#define LM_BATCH_MIXTURE_H

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** How the samples of a run are shared out among its sources. An era begins where the weights changed; within one, the
 *  source of a sample is a pure function of the weights and of how far the era has come, and any first n samples hold
 *  less than one more or fewer of a source than n times its share (Tijdeman, "The chairman assignment problem",
 *  Discrete Mathematics 32, 1980). A source is a column, for ever: what is taken out and put back goes on where it was.
 *  Plain data; checkpoints keep it. Zero-initialise; free with lm_mixture_free(). */
typedef struct lm_mixture {
  size_t sources, eras;
  uint64_t *checksum; /* [sources]: what a source is known by */
  uint64_t *from;     /* [eras]: the position an era begins at, rising from 0 */
  uint64_t *weight;   /* [eras, sources]: without a common divisor; 0: nothing is drawn */
  uint64_t *drawn;    /* [eras, sources]: samples drawn before the era */
} lm_mixture;

enum { LM_MOST_SOURCES = 65536 };          /* columns */
#define LM_MOST_WEIGHT (UINT64_C(1) << 53) /* sum of an era's weights */

/** Room for so many eras and sources, all zero. Local. */
lm_status lm_mixture_new(lm_mixture *out, size_t eras, size_t sources, lm_error *err) LM_NODISCARD;
void lm_mixture_free(lm_mixture *m);

/** Draw with these weights from `position` on: a new era, unless the last one has the same shares. Eras that would
 *  begin later are dropped. Local. After a failure *m is as it was.
 *  @param checksum, weight  [n]: of the sources, each once; unknown ones get a column. A sum in [1, LM_MOST_WEIGHT] */
lm_status lm_mixture_change(lm_mixture *m, uint64_t position, const uint64_t *checksum, const uint64_t *weight,
                            size_t n, lm_error *err) LM_NODISCARD;

/** The column of a source, or m->sources where it has none. Local. */
size_t lm_mixture_column(const lm_mixture *m, uint64_t checksum);

/** The share of a column's source in the last era, 0 where there is no such column. Local. */
double lm_mixture_share(const lm_mixture *m, size_t column);

/** Do the parts fit together? Local: what a file says is not yet a mixture. */
bool lm_mixture_valid(const lm_mixture *m);

/** A sample: the `index`-th, from 0, of its source. */
typedef struct lm_draw {
  size_t source; /* column */
  uint64_t index;
} lm_draw;

typedef struct lm_mixture_walk lm_mixture_walk; /* opaque: a place in a mixture; for one thread at a time */

/** @param m  kept, unchanged */
lm_status lm_mixture_walk_new(lm_mixture_walk **out, const lm_mixture *m, lm_error *err) LM_NODISCARD;
void lm_mixture_walk_free(lm_mixture_walk *w);

/** The sample at a position. Local; allocates nothing. Time is that of the positions passed over since the last call;
 *  a step back begins again at the last multiple of the sum of weights. */
lm_draw lm_mixture_draw(lm_mixture_walk *w, uint64_t position);

/** Samples drawn of each source before a position. Local. @param[out] drawn  [m->sources] */
lm_status lm_mixture_drawn(const lm_mixture *m, uint64_t position, uint64_t *drawn, lm_error *err) LM_NODISCARD;

#endif
