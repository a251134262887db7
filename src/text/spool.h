/* src/text/spool.h - encoded blocks wait in a temporary file until the sizes of all blocks before them are known. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TEXT_SPOOL_H
#define LM_TEXT_SPOOL_H

#include "base/memory.h"
#include "comm/comm.h"
#include "hdf5/token_file.h"

enum { LM_SPLIT_TRAIN, LM_SPLIT_VAL, LM_SPLITS };

/** What a block of documents gives to one split: ids as they are stored, and the tokens of each document (uint64_t). */
typedef struct lm_spool_part {
  lm_buffer ids, lengths;
} lm_spool_part;

typedef struct lm_spool lm_spool; /* opaque: one rank's blocks, in the order of the input */

/** Make a spool in the folder of `near`. The file has no name once it is open: whatever happens, none is left. Local.
 *  @param width  bytes of a stored id
 *  @return LM_EINVAL where there is no such folder, LM_EIO, LM_ENOMEM */
lm_status lm_spool_new(lm_spool **out, const char *near, int width, lm_error *err) LM_NODISCARD;
void lm_spool_free(lm_spool *s);

/** Append this rank's next block. Local. */
lm_status lm_spool_add(lm_spool *s, const lm_spool_part part[LM_SPLITS], lm_error *err) LM_NODISCARD;

/** Learn where each block goes. Collective. Block k of the input is the (k / size)-th of rank k % size.
 *  @param[out] tokens, documents  of each split, over all ranks
 *  @return LM_ENOMEM */
lm_status lm_spool_place(lm_spool *s, const lm_comm *comm, uint64_t tokens[LM_SPLITS], uint64_t documents[LM_SPLITS],
                         lm_error *err) LM_NODISCARD;

/** Write this rank's blocks of a split into a laid-out token file, and fsync. Local; after lm_spool_place().
 *  @param[out] checksum  the sum of lm_token_document_hash() over the documents written */
lm_status lm_spool_write(lm_spool *s, int split, const char *part, const lm_token_info *info, uint64_t *checksum,
                         lm_error *err) LM_NODISCARD;

#endif
