/* src/text/documents.h - files -> documents, in a stable order: txt, jsonl; plain, .gz, .dz, .zst; stdin. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TEXT_DOCUMENTS_H
#define LM_TEXT_DOCUMENTS_H

#include "base/memory.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct lm_documents_config {
  const char *text_key;  /* of jsonl; "text" */
  const char *separator; /* splits a text file into documents ("\n\n"); "" : a file is one document */
  bool skip_bad;         /* broken jsonl lines are skipped and counted, up to max_bad; else they are an error */
  int64_t max_bad;
  int64_t first_bytes; /* stop after this much text; 0: all */
} lm_documents_config;

typedef struct lm_documents_counts {
  uint64_t documents, empty, bad, bytes; /* given out, dropped as empty, skipped as broken; bytes of text given out */
} lm_documents_counts;

typedef struct lm_documents lm_documents; /* opaque */

/** Open files as one stream of documents. Local. Folders stand for their files, sorted by name; "-" is stdin.
 *  What a file is, is told by its name: *.jsonl[.gz|.zst], *.ndjson..., everything else is text; .gz, .dz and .zst
 *  are told by content. @param paths kept @param cfg copied */
lm_status lm_documents_open(lm_documents **out, const char *const *paths, size_t n_paths,
                            const lm_documents_config *cfg, lm_error *err) LM_NODISCARD;

/** The next document that is not empty. Local.
 *  @param[out] text  n bytes, valid until the next call; NULL at the end of all input
 *  @return LM_EINVAL names file, line, byte: broken line, truncated compressed data */
lm_status lm_documents_next(lm_documents *d, const char **text, size_t *n, lm_error *err) LM_NODISCARD;

const lm_documents_counts *lm_documents_count(const lm_documents *d);
void lm_documents_close(lm_documents *d);

#endif
