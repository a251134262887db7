/* src/text/documents.h - files -> documents, in a stable order: txt, jsonl; plain, .gz, .dz, .zst; stdin. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TEXT_DOCUMENTS_H
#define LM_TEXT_DOCUMENTS_H

#include "text/utf8.h"
#include <stdbool.h>
#include <stdint.h>

/* What files hold. AUTO goes by the name, a .gz, .dz, .zst or .zstd put aside: .jsonl, .ndjson and .json are JSON
 * Lines, everything else, stdin too, is text. */
typedef enum lm_format { LM_FORMAT_AUTO, LM_FORMAT_TEXT, LM_FORMAT_JSONL } lm_format;
#define LM_FORMAT_WORDS "auto|text|jsonl" /* for option tables, in the order of the enum */

typedef struct lm_documents_config {
  const char *text_key;  /* of jsonl; "text" */
  const char *separator; /* splits a text file into documents ("\n\n"); "": a file is one document */
  bool skip_bad;         /* broken records are skipped and counted, up to max_bad; else they are an error */
  int64_t max_bad;
  int64_t first_bytes; /* the document that reaches this much text is the last; 0: all */
  lm_format format;
  lm_invalid_utf8 invalid_utf8;
} lm_documents_config;

/* Documents given out and bytes of their text; documents dropped as empty; records skipped as broken; halves of
 * surrogate pairs that became U+FFFD; bad sequences in the documents, kept or replaced. */
typedef struct lm_documents_counts {
  uint64_t documents, empty, bad, bytes, lone_surrogates, invalid_utf8;
} lm_documents_counts;

/* Where a document was found. A record is a document of a text file, or a line (blank ones counted) of JSON Lines. */
typedef struct lm_documents_place {
  const char *path;
  size_t file;       /* in [0, lm_documents_files()) */
  uint64_t record;   /* in its file, from 1 */
  uint64_t position; /* bytes of the file as stored that were read so far: for progress, ahead of the document */
} lm_documents_place;

typedef struct lm_documents lm_documents; /* opaque */

/** Open files as one stream of documents. Local. A folder stands for all files in it and in its folders, sorted by
 * name, byte by byte, folder by folder; names that begin with a dot are left out. "-" is stdin. Files come in the order
 *  given. Compression is told by content, see decompress.h.
 *
 *  Text is passed on as it is: CR and NUL stay, nothing is normalised, and bytes that are not UTF-8 are counted and,
 * unless cfg says otherwise, stay too. Only a byte order mark at the start of a file is dropped. Separators are found
 * from the left and belong to no document; what follows the last one is a document only if it is not empty. In JSON
 * Lines blank lines are no records; json_line.h says what a line may hold.
 *
 *  Memory: about twice the longest document or line, and 1 MiB.
 *  @param paths  kept
 *  @param cfg    copied, its strings kept
 *  @return LM_EINVAL (a path does not exist, a folder without files, an empty text_key), LM_EIO, LM_ENOMEM; *out is
 *          NULL then. Files are opened when their turn comes. */
lm_status lm_documents_open(lm_documents **out, const char *const *paths, size_t n_paths,
                            const lm_documents_config *cfg, lm_error *err) LM_NODISCARD;

/** The next document that is not empty. Local.
 *  @param[out] text  n bytes, valid until the next call; NULL at the end of all input
 *  @return LM_EINVAL names file and line and byte: a broken record; damaged or cut-off compressed data, which skip_bad
 * never forgives. LM_EIO, LM_ENOMEM. Nothing may be asked of a stream that failed but its counts. */
lm_status lm_documents_next(lm_documents *d, const char **text, size_t *n, lm_error *err) LM_NODISCARD;

/** Read one part of the input from now on: lm_documents_next() ends with it. Local. Bytes of a file are counted as they
 *  are unpacked; part k holds the records behind the first separator at or behind byte k * part_bytes (part 0: those
 *  from the start on), up to the first separator at or behind byte (k + 1) * part_bytes. Of separators that could
 *  overlap ("\n\n" in "\n\n\n") only one counts that no other overlaps, so that every reader finds the same ones. So
 *  each record is in exactly one part, whoever reads which. Parts in ascending order are read in one pass; a plain file
 *  is entered anywhere.
 *  @param first, count  the files to read, one behind the other; more than one, or one without a separator, or a
 *                       part_bytes of 0, is not cut: all of it is part 0
 *  @return as lm_documents_next() */
lm_status lm_documents_part(lm_documents *d, size_t first, size_t count, uint64_t part, uint64_t part_bytes,
                            lm_error *err) LM_NODISCARD;

/** Have the files of the part ended, so that there is no further part? Local. After lm_documents_next() gave NULL. */
bool lm_documents_ended(const lm_documents *d);

/** Is a file cut into documents, by line ends or the separator? Local. */
bool lm_documents_has_records(const lm_documents *d, size_t file);

const lm_documents_counts *lm_documents_count(const lm_documents *d);

/** Why the first of the skipped records was skipped; "" where none was. Local. */
const char *lm_documents_first_bad(const lm_documents *d);

/** Where the document given last was found. Local. */
lm_documents_place lm_documents_where(const lm_documents *d);

/** The files that the paths stand for, in reading order. Local. */
size_t lm_documents_files(const lm_documents *d);
const char *lm_documents_file(const lm_documents *d, size_t i);

void lm_documents_close(lm_documents *d);

#endif
