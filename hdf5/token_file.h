/* hdf5/token_file.h - a token dataset on disk: /tokens, /document_end, and what they are (doc/formats.md). */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_HDF5_TOKEN_FILE_H
#define LM_HDF5_TOKEN_FILE_H

#include "base/memory.h"
#include "comm/comm.h"
#include <stdbool.h>
#include <sys/types.h>

/** What a token dataset says of itself. Plain data. */
typedef struct lm_token_info {
  uint64_t tokens, documents;
  uint64_t vocab_size;        /* ids are below this */
  uint64_t end_of_text;       /* id that closes every document */
  uint64_t vocab_fingerprint; /* lm_vocab_fingerprint() of what made it */
  uint64_t checksum;          /* hash of /tokens as stored, combined over blocks as doc/formats.md says */
  int width;                  /* bytes of a stored id: 2 or 4 */
  off_t offset;               /* of /tokens in the file: it is contiguous, so ids are read without HDF5 */
  off_t document_offset;      /* of /document_end, u64: index one past each document's last token */
  char sources[480];          /* the first source files' names, for people */
} lm_token_info;

/** Read the description. Local. LM_EINVAL: not a token dataset, another format version, not complete; LM_EDAMAGED:
 *  shorter than it says. */
lm_status lm_token_file_info(const char *path, lm_token_info *out, lm_error *err) LM_NODISCARD;

/** Lay out `path` under a temporary name for info->tokens and info->documents. Collective.
 *  @param[in,out] info  offset, document_offset and width are filled in
 *  @param[out] part [4096] the temporary name, to be written by pwrite at the offsets */
lm_status lm_token_file_create(const lm_comm *comm, const char *path, lm_token_info *info, char part[4096],
                               lm_error *err) LM_NODISCARD;

/** Mark complete, store the checksum, fsync, and rename to `path`. Collective; after all ranks wrote and closed. */
lm_status lm_token_file_commit(const lm_comm *comm, const char *part, const char *path, const lm_token_info *info,
                               lm_error *err) LM_NODISCARD;

#endif
