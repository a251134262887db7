/* src/text/parts.h - the input cut into parts, and which rank reads which: every record once, whatever the ranks are.
 */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TEXT_PARTS_H
#define LM_TEXT_PARTS_H

#include "comm/comm.h"
#include "text/documents.h"

#define LM_PART_BYTES (UINT64_C(4) << 20) /* of text, where nothing else is asked for */

/* A place in the order of the input. */
typedef struct lm_part_id {
  uint64_t item, part;
} lm_part_id;

/* Order of ids, for qsort() and bsearch() of structs that begin with one. Local. */
int lm_part_order(const void *a, const void *b);

typedef struct lm_parts lm_parts; /* opaque: the same on all ranks */

/** Plan who reads what. Collective. An item is a file, or neighbours that are small together. Plain files with records
 *  are cut into parts that go to the rank with the least to read; other items go whole, the largest first; only a
 * packed file that is more than half of a rank's share is unpacked by all, who take its parts in turn. Where
 * first_bytes is set, or stdin is read, rank 0 reads all.
 *  @param d     the input as this rank sees it; kept
 *  @param part_bytes  0: LM_PART_BYTES
 *  @return LM_EINVAL where ranks see other files; LM_ENOMEM */
lm_status lm_parts_plan(lm_parts **out, const lm_comm *comm, lm_documents *d, const lm_documents_config *cfg,
                        uint64_t part_bytes, lm_error *err) LM_NODISCARD;
void lm_parts_free(lm_parts *p);

/** Hash of the names, sizes and times of the files, and of what decides how they are read. Local. */
uint64_t lm_parts_fingerprint(const lm_parts *p);

/** Can another run find the same input again? Local. Not where it is a pipe. */
bool lm_parts_repeatable(const lm_parts *p);

/** Parts that need no reading. Local; before the first lm_parts_next().
 *  @param done  [n] structs of `size` bytes that begin with an lm_part_id, in order; kept
 *  @param is_last  was this the last part of its item? */
void lm_parts_skip(lm_parts *p, const void *done, size_t n, size_t size, bool (*is_last)(const void *));

/** Let the documents given to lm_parts_plan() read this rank's next part, once the one before was read to its end.
 *  Local. *more is false where there is none. */
lm_status lm_parts_next(lm_parts *p, lm_part_id *id, bool *more, lm_error *err) LM_NODISCARD;

/** Stored bytes that this rank has to read, and has read. Local. */
void lm_parts_progress(const lm_parts *p, double *done, double *all);

#endif
