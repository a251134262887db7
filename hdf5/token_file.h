/* hdf5/token_file.h - a token dataset on disk: /tokens, /document_end, and what they are (doc/formats.md). */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_HDF5_TOKEN_FILE_H
#define LM_HDF5_TOKEN_FILE_H

#include "base/hash.h"
#include "base/memory.h"
#include "comm/comm.h"
#include <stdbool.h>
#include <sys/types.h>

/** What a token dataset says of itself. Plain data. */
typedef struct lm_token_info {
  uint64_t tokens, documents;
  uint64_t vocab_size;    /* ids are below this */
  uint64_t end_of_text;   /* id that closes every document */
  uint64_t begin_of_text; /* id that opens every document, where begins_documents */
  bool begins_documents;
  uint64_t vocab_fingerprint; /* lm_vocab_fingerprint() of what made it */
  uint64_t checksum;          /* sum of lm_token_document_hash() over all documents, modulo 2^64 */
  int width;                  /* bytes of a stored id, little-endian: 2 or 4 */
  off_t offset;               /* of /tokens in the file: it is contiguous, so ids are read without HDF5 */
  off_t document_offset;      /* of /document_end, u64: index one past each document's last token, its end of text */
  char sources[480];          /* the first source files' names, for people */
} lm_token_info;

/** Bytes of a stored id: 2 where every id of the vocabulary fits, else 4. Local. */
static inline int lm_token_width(uint64_t vocab_size)
{
  return vocab_size <= 65536 ? 2 : 4;
}

/** A document's share of the checksum: hash of its ids as stored, end of text included, keyed with where it ends.
 * Local. A sum of these depends on ids and document borders, not on who wrote which part or in which order.
 *  @param ids  n bytes @param end  the document's entry in /document_end */
static inline uint64_t lm_token_document_hash(const void *ids, size_t n, uint64_t end)
{
  return lm_hash_seeded(ids, n, end);
}

/** Read the description. Local. Opening for reading never blocks another reader.
 *  @return LM_EINVAL: not a token dataset, another format version, not complete, or being written; LM_EDAMAGED: shorter
 *          than it says, or its parts do not fit together; LM_EIO */
lm_status lm_token_file_info(const char *path, lm_token_info *out, lm_error *err) LM_NODISCARD;

/** Lay out `path` under a temporary name for info->tokens and info->documents. Collective.
 *  @param[in,out] info  offset, document_offset and width are filled in; the rest is the same on all ranks
 *  @param[out] part [4096] the temporary name, to be written by pwrite at the offsets
 *  @return LM_EINVAL: nothing to store, a path that cannot be; LM_EIO. No file is left behind then */
lm_status lm_token_file_create(const lm_comm *comm, const char *path, lm_token_info *info, char part[4096],
                               lm_error *err) LM_NODISCARD;

/** Mark complete, store the checksum, fsync, and rename to `path`. Collective; after all ranks wrote and fsynced.
 *  @param info  rank 0's checksum is stored
 *  @return LM_EIO with the path; `part` is removed then, and `path` is what it was before */
lm_status lm_token_file_commit(const lm_comm *comm, const char *part, const char *path, const lm_token_info *info,
                               lm_error *err) LM_NODISCARD;

#endif
