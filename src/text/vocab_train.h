/* src/text/vocab_train.h - documents -> a vocabulary of byte-level BPE. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TEXT_VOCAB_TRAIN_H
#define LM_TEXT_VOCAB_TRAIN_H

#include "comm/comm.h"
#include "text/documents.h"
#include "text/vocab.h"

enum { LM_VOCAB_SIZE_MIN = 257, LM_VOCAB_SIZE_MAX = 1 << 20 };

/* What training saw; the same on all ranks. */
typedef struct lm_vocab_report {
  lm_documents_counts read;
  char first_bad[512]; /* why the first of the skipped records was skipped */
  uint64_t pieces;     /* distinct ones */
  uint64_t merges;
  double read_seconds, merge_seconds;
} lm_vocab_report;

/** Learn a vocabulary. Collective; every rank gets the same one, whatever the number of ranks and however the documents
 *  are spread over files. learn_merges.h says which pairs are merged, and in what order.
 *
 *  Every rank reads all files and counts every size-th document; the merges are learned on rank 0. Where a path is "-",
 *  rank 0 alone reads and counts: mpirun gives stdin to no other.
 *  @param[out] out  the caller's to free; NULL after a failure
 *  @param paths  files and folders, as lm_documents_open() takes them
 *  @param cfg    how to read them
 *  @param size   ids wanted, the 256 bytes and <|endoftext|> included, [LM_VOCAB_SIZE_MIN, LM_VOCAB_SIZE_MAX]; the
 *                vocabulary has fewer where the text has no more pairs to merge
 *  @param[out] report  NULL: not wanted
 *  @return LM_EINVAL where size is out of range or there is no text; as lm_documents_next(); LM_ENOMEM */
lm_status lm_vocab_train(lm_vocab **out, const lm_comm *comm, const char *const *paths, size_t n_paths,
                         const lm_documents_config *cfg, int64_t size, lm_pattern pattern, lm_vocab_report *report,
                         lm_error *err) LM_NODISCARD;

#endif
