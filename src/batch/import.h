/* src/batch/import.h - token files of other programs -> a token dataset. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_BATCH_IMPORT_H
#define LM_BATCH_IMPORT_H

#include "hdf5/token_file.h"

/* What a file holds: told by its first bytes, but for raw ids, which have none. */
typedef enum lm_foreign { LM_FOREIGN_AUTO, LM_FOREIGN_RAW16, LM_FOREIGN_RAW32 } lm_foreign;
#define LM_FOREIGN_WORDS "auto|raw16|raw32" /* for option tables, in the order of the enum */

/** Convert a file. Local: self is one rank. llm.c's .bin (versions 1 and 7), Megatron's .idx with its .bin beside it
 *  (either is named; u8, i16, i32, i64, u16), or raw little-endian ids (nanoGPT).
 *
 *  Documents end behind an end of text; Megatron's, where its index says. An end of text in front of all else is
 *  dropped (llm.c writes it before each document), one that is missing at the end of a document is added, and documents
 *  without a token are left out.
 *  @param[in,out] info  in: vocab_size, end_of_text, vocab_fingerprint; out: all of it
 *  @param[out] added  ends of text that were missing
 *  @return LM_EINVAL (what it is not, an id and its place), LM_EIO, LM_ENOMEM; no file is left then */
lm_status lm_import(const lm_comm *self, const char *from, lm_foreign kind, const char *to, lm_token_info *info,
                    uint64_t *added, lm_error *err) LM_NODISCARD;

/** What an index of Megatron says. Plain data; the arrays lie in the bytes that were read, at any alignment. */
typedef struct lm_megatron {
  int width; /* bytes of an id */
  bool is_signed;
  uint64_t sequences, documents;
  const char *lengths, *places, *ends; /* i32 [sequences]; i64 [sequences], bytes; i64 [documents + 1], sequences */
} lm_megatron;

/** Read an index: magic, version, and that all it says fits into it and into a .bin of bin_bytes. Local. LM_EINVAL */
lm_status lm_megatron_read(lm_megatron *out, const char *idx, size_t n, uint64_t bin_bytes, lm_error *err) LM_NODISCARD;

#endif
