/* src/text/tokenize.h - documents -> token datasets, on all ranks; the bytes do not depend on how many. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TEXT_TOKENIZE_H
#define LM_TEXT_TOKENIZE_H

#include "comm/comm.h"
#include "text/documents.h"
#include "text/spool.h"
#include "text/vocab.h"

typedef struct lm_tokenize_config {
  const char *const *paths; /* files, folders, "-"; the same on all ranks */
  size_t n_paths;
  const char *out;     /* the dataset to write */
  const char *val_out; /* where documents held out for validation go; "" or NULL: none are */
  const char *begin;   /* text of the special token that opens every document; "" or NULL: none does */
  double val_fraction; /* (0, 1): a document is held out where its hash / 2^64 is below this */
  uint64_t part_bytes; /* of text: what is not done again after a kill, parts.h; 0: LM_PART_BYTES */
  lm_documents_config documents;
} lm_tokenize_config;

typedef struct lm_tokenize_result {
  lm_token_info info[LM_SPLITS];  /* what was written; tokens 0: no file */
  uint64_t text_bytes[LM_SPLITS]; /* of the documents that went there */
  lm_documents_counts counts;     /* of the whole input */
  char first_bad[512];            /* why the first of the skipped lines was skipped; "" where an earlier run did */
  uint64_t found_bytes;           /* of text that an earlier run had encoded */
  double seconds;
} lm_tokenize_result;

/** Read documents, encode each and close it with the end of text, and write them in the order of the input. Collective.
 *  Each rank reads its parts of the input (parts.h), in blocks of about 1 MiB that its threads encode while one of them
 *  reads on, and keeps what is finished in a folder beside `out` (spool.h): a run that was killed goes on from there.
 *  Nothing has a final name before all is written. Special tokens' text in documents is ordinary text.
 *  @param vocab  the same on all ranks, else LM_EINVAL; it has an end of text, else LM_EINVAL
 *  @return LM_EINVAL: broken input (file, line, byte), no document at all, a split without documents, ranks that see
 *          different files; LM_EIO, LM_ENOMEM. Only the folder of finished parts is left then, if there are any */
lm_status lm_tokenize(const lm_comm *comm, const lm_vocab *vocab, const lm_tokenize_config *cfg,
                      lm_tokenize_result *result, lm_error *err) LM_NODISCARD;

#endif
