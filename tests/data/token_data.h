/* tests/data/token_data.h - small token datasets for tests, and a folder to put them in. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TESTS_TOKEN_DATA_H
#define LM_TESTS_TOKEN_DATA_H

#include "base/file.h"
#include "hdf5/token_file.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A new folder, the same on all ranks; remove it with rmdir() on rank 0 when it is empty. Collective. */
static inline void scratch_folder(const lm_comm *comm, char folder[64])
{
  snprintf(folder, 64, "/tmp/mpilm-data.XXXXXX");
  if (comm->rank == 0 && mkdtemp(folder) == NULL) abort();
  lm_bcast(comm, folder, 64, 0);
}

/* Write ids [n], cut into documents after each `end_of_text`; info->vocab_size and end_of_text are the caller's.
 * Collective; rank 0 writes. */
static inline lm_status write_tokens(const lm_comm *comm, const char *path, const uint32_t *ids, size_t n,
                                     lm_token_info *info, lm_error *err)
{
  char part[4096];
  uint64_t *ends = calloc(n + 1, sizeof *ends);
  unsigned char *stored = calloc(n + 1, 4);
  size_t width = (size_t)lm_token_width(info->vocab_size), begin = 0;
  info->tokens = n;
  info->documents = info->checksum = 0;
  for (size_t i = 0; i < n; i++) {
    memcpy(stored + i * width, &ids[i], width);
    if (ids[i] != info->end_of_text && i + 1 < n) continue;
    ends[info->documents++] = i + 1;
    info->checksum += lm_token_document_hash(stored + begin * width, (i + 1 - begin) * width, i + 1);
    begin = i + 1;
  }
  lm_status s = lm_token_file_create(comm, path, info, part, err);
  if (s == LM_OK && comm->rank == 0) {
    int fd = open(part, O_WRONLY);
    s = lm_pwrite_all(fd, part, stored, n * width, info->offset, err);
    if (s == LM_OK) s = lm_pwrite_all(fd, part, ends, info->documents * 8, info->document_offset, err);
    close(fd);
  }
  s = lm_agree(comm, s, err);
  if (s == LM_OK) s = lm_token_file_commit(comm, part, path, info, err);
  free(ends);
  free(stored);
  return s;
}

#endif
