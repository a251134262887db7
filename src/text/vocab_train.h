/* src/text/vocab_train.h - documents -> a vocabulary of byte-level BPE. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TEXT_VOCAB_TRAIN_H
#define LM_TEXT_VOCAB_TRAIN_H

#include "comm/comm.h"
#include "text/documents.h"
#include "text/vocab.h"

/** Learn a vocabulary. Collective; every rank gets the same one, whatever the number of ranks.
 *  @param[out] out  the caller's to free; NULL after a failure
 *  @param paths  files and folders, as lm_documents_open() takes them
 *  @param size  ids wanted, the 256 bytes and <|endoftext|> included; fewer where the text has no more pairs to merge
 *  @return LM_EINVAL where size < 257 or there is no text */
lm_status lm_vocab_train(lm_vocab **out, const lm_comm *comm, const char *const *paths, size_t n_paths,
                         const lm_documents_config *cfg, int64_t size, lm_pattern pattern, lm_error *err) LM_NODISCARD;

#endif
