/* src/text/spool.h - encoded parts wait in a folder beside the output until all are there, and outlive a killed run. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TEXT_SPOOL_H
#define LM_TEXT_SPOOL_H

#include "comm/comm.h"
#include "hdf5/token_file.h"
#include "text/documents.h"
#include "text/parts.h"

enum { LM_SPLIT_TRAIN, LM_SPLIT_VAL, LM_SPLITS };

/** What a block of documents gives to one split: ids as they are stored, and the tokens of each document (uint64_t). */
typedef struct lm_spool_part {
  lm_buffer ids, lengths;
} lm_spool_part;

/** A finished part, as it stands in a journal: an entry counts if its seal is right for this job, and its bytes have
 *  the hash. So nothing has to be fsynced while it is made, and what a crash tore is made again. */
typedef struct lm_part_record {
  lm_part_id id;
  uint64_t last;                   /* 1: the item has no part behind this one */
  uint64_t spool, at, bytes, hash; /* in which spool file, and where */
  uint64_t tokens[LM_SPLITS], documents[LM_SPLITS], text_bytes[LM_SPLITS];
  lm_documents_counts counts;
  uint64_t seal;
} lm_part_record;

typedef struct lm_spool lm_spool; /* opaque: this rank's spool file, and what earlier runs left */

/** Open the folder `.NAME.work` beside `near`, and find the parts that an earlier run of the same job finished.
 * Collective.
 *  @param job    fingerprint of all that decides the bytes of a part; parts of other jobs are thrown away, with a word
 *  @param again  false: what is there is of no use
 *  @param width  bytes of a stored id
 *  @return LM_EINVAL where there is no such folder, or another run writes there; LM_EIO, LM_ENOMEM */
lm_status lm_spool_open(lm_spool **out, const lm_comm *comm, const char *near, uint64_t job, bool again, int width,
                        lm_error *err) LM_NODISCARD;

/** The finished parts of earlier runs, in order. Local; the same on all ranks. */
const lm_part_record *lm_spool_found(const lm_spool *s, size_t *n);

/** Drop those of them that `keep` refuses. Local; the same on all ranks. */
void lm_spool_filter(lm_spool *s, bool (*keep)(const lm_part_record *));

/** Append a block of the part that this rank is at. Local. */
lm_status lm_spool_add(lm_spool *s, const lm_spool_part part[LM_SPLITS], lm_error *err) LM_NODISCARD;

/** All blocks of a part were added: enter it into the journal. Local.
 *  @param record  id, last, counts and text_bytes are given, the rest is filled in */
lm_status lm_spool_finish_part(lm_spool *s, lm_part_record *record, lm_error *err) LM_NODISCARD;

/** Parts finished by this process. Local. */
uint64_t lm_spool_finished(const lm_spool *s);

/** Put the parts of all ranks and runs in order. Collective; after the last one.
 *  @param[out] sum  of all records: tokens, documents, text_bytes, counts @return LM_ENOMEM */
lm_status lm_spool_place(lm_spool *s, const lm_comm *comm, lm_part_record *sum, lm_error *err) LM_NODISCARD;

/** Write this rank's share of a split into a laid-out token file, and fsync. Local; after lm_spool_place().
 *  @param[out] checksum  the sum of lm_token_document_hash() over the documents written */
lm_status lm_spool_write(lm_spool *s, int split, const char *path, const lm_token_info *info, uint64_t *checksum,
                         lm_error *err) LM_NODISCARD;

/** Close. Collective. The folder stays only where `keep` says so and a part is finished; then it is said.
 *  @param s  NULL on all ranks or on none */
void lm_spool_close(lm_spool *s, const lm_comm *comm, bool keep);

#endif
