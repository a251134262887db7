/* src/text/decompress.h - a file as a stream of bytes, whether it is plain, gzip or zstd. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TEXT_DECOMPRESS_H
#define LM_TEXT_DECOMPRESS_H

#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct lm_source lm_source; /* opaque */

/** Open a file, or stdin where path is "-". Local. Its content tells what it is: gzip of any number of members (RFC
 * 1952; dictd's .dz is one), zstd of any number of frames, skippable ones included (RFC 8878), else plain. A file that
 * is named .gz, .dz, .zst or .zstd and is neither, and xz, bzip2, lz4 and zip, are refused by name.
 *  @param path kept
 *  @return LM_EINVAL, LM_EIO, LM_ENOMEM; *out is NULL then */
lm_status lm_source_open(lm_source **out, const char *path, lm_error *err) LM_NODISCARD;

/** Read some bytes. Local.
 *  @param room  > 0
 *  @param[out] n  0 at the end of the file, and only there
 *  @return LM_EINVAL names the file and the byte of the compressed file: "unexpected end of compressed data" where it
 * is cut off, damaged data, data after the end; LM_EIO */
lm_status lm_source_read(lm_source *s, char *bytes, size_t room, size_t *n, lm_error *err) LM_NODISCARD;

/** Bytes of the file as stored that were used up so far: for progress. Local. */
uint64_t lm_source_position(const lm_source *s);

/** What the file is, told by its content. Local. */
bool lm_source_is_plain(const lm_source *s);

/** Go to byte `at` of a plain file that is no pipe. Local. LM_EIO */
lm_status lm_source_seek(lm_source *s, uint64_t at, lm_error *err) LM_NODISCARD;

void lm_source_close(lm_source *s);

#endif
