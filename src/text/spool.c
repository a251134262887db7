/* src/text/spool.c - encoded blocks wait in a temporary file until the sizes of all blocks before them are known. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h" /* mkostemp */

#include "base/file.h"
#include "text/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How much of a split lies before something, or in it. */
struct extent {
  uint64_t tokens, documents;
};

struct block {
  struct extent size[LM_SPLITS];
  struct extent before[LM_SPLITS]; /* in all blocks before this one; known after lm_spool_place() */
};

struct lm_spool {
  int fd, width;
  char path[PATH_MAX]; /* for errors: the file has no name any more */
  off_t end;
  struct block *blocks;
  size_t count, capacity;
};

lm_status lm_spool_new(lm_spool **out, const char *near, int width, lm_error *err)
{
  lm_spool *s;
  LM_TRY(lm_alloc(out, 1, sizeof *s, "the spool", err));
  s = *out;
  s->width = width;
  if ((size_t)snprintf(s->path, sizeof s->path, "%s.spool-XXXXXX", near) >= sizeof s->path)
    s->fd = -1, errno = ENAMETOOLONG;
  else
    s->fd = mkostemp(s->path, O_CLOEXEC);
  if (s->fd >= 0) {
    unlink(s->path);
    return LM_OK;
  }
  int e = errno;
  lm_status status = e == ENOENT || e == ENOTDIR || e == ENAMETOOLONG ? LM_EINVAL : LM_EIO;
  status = lm_fail(err, status, "%s: cannot make a temporary file beside it: %s", near, strerror(e));
  lm_spool_free(s);
  *out = NULL;
  return status;
}

void lm_spool_free(lm_spool *s)
{
  if (s == NULL) return;
  if (s->fd >= 0) close(s->fd);
  free(s->blocks);
  free(s);
}

/* In the file a block is: ids and lengths of the first split, ids and lengths of the second. */
lm_status lm_spool_add(lm_spool *s, const lm_spool_part part[LM_SPLITS], lm_error *err)
{
  LM_TRY(lm_grow(&s->blocks, &s->capacity, s->count + 1, sizeof *s->blocks, err));
  struct block b = {0};
  for (int i = 0; i < LM_SPLITS; i++) {
    LM_TRY(lm_pwrite_all(s->fd, s->path, part[i].ids.data, part[i].ids.size, s->end, err));
    s->end += (off_t)part[i].ids.size;
    LM_TRY(lm_pwrite_all(s->fd, s->path, part[i].lengths.data, part[i].lengths.size, s->end, err));
    s->end += (off_t)part[i].lengths.size;
    b.size[i] = (struct extent){part[i].ids.size / (size_t)s->width, part[i].lengths.size / sizeof(uint64_t)};
  }
  s->blocks[s->count++] = b;
  return LM_OK;
}

/* Sizes are gathered for some rows at a time; row r is block r of each rank. */
static void place_rows(lm_spool *s, const lm_comm *comm, size_t first, size_t rows, struct extent *mine,
                       struct extent *all, struct extent running[LM_SPLITS])
{
  for (size_t r = 0; r < rows; r++)
    for (int i = 0; i < LM_SPLITS; i++)
      mine[r * LM_SPLITS + (size_t)i] = first + r < s->count ? s->blocks[first + r].size[i] : (struct extent){0, 0};
  lm_allgather(comm, mine, rows * LM_SPLITS * sizeof *mine, all);
  for (size_t r = 0; r < rows; r++)
    for (int q = 0; q < comm->size; q++)
      for (int i = 0; i < LM_SPLITS; i++) {
        struct extent e = all[((size_t)q * rows + r) * LM_SPLITS + (size_t)i];
        if (q == comm->rank && first + r < s->count) s->blocks[first + r].before[i] = running[i];
        running[i].tokens += e.tokens;
        running[i].documents += e.documents;
      }
}

lm_status lm_spool_place(lm_spool *s, const lm_comm *comm, uint64_t tokens[LM_SPLITS], uint64_t documents[LM_SPLITS],
                         lm_error *err)
{
  enum { AT_ONCE = 1 << 16 };
  size_t step = (size_t)(AT_ONCE / comm->size > 0 ? AT_ONCE / comm->size : 1);
  struct extent running[LM_SPLITS] = {{0, 0}}, *mine = NULL, *all = NULL;
  double most = (double)s->count;
  lm_allreduce_max_f64(comm, &most, 1);
  lm_status status = lm_alloc(&mine, step * LM_SPLITS, sizeof *mine, "block sizes", err);
  if (status == LM_OK)
    status = lm_alloc(&all, step * LM_SPLITS * (size_t)comm->size, sizeof *all, "block sizes of all ranks", err);
  status = lm_agree(comm, status, err);
  for (size_t first = 0; status == LM_OK && first < (size_t)most; first += step) {
    size_t left = (size_t)most - first;
    place_rows(s, comm, first, left < step ? left : step, mine, all, running);
  }
  for (int i = 0; i < LM_SPLITS; i++) {
    tokens[i] = running[i].tokens;
    documents[i] = running[i].documents;
  }
  free(mine);
  free(all);
  return status;
}

/* Lengths of documents -> where they end, and their share of the checksum. */
static uint64_t finish_documents(const char *ids, uint64_t *lengths, size_t documents, uint64_t begin, size_t width)
{
  uint64_t checksum = 0;
  for (size_t k = 0; k < documents; k++) {
    size_t bytes = (size_t)lengths[k] * width;
    begin += lengths[k];
    checksum += lm_token_document_hash(ids, bytes, begin);
    ids += bytes;
    lengths[k] = begin; /* from here on: the end */
  }
  return checksum;
}

static lm_status write_block(lm_spool *s, const struct block *b, int split, off_t at, int fd, const char *part,
                             const lm_token_info *info, lm_buffer buffer[2], uint64_t *checksum, lm_error *err)
{
  struct extent size = b->size[split], before = b->before[split];
  size_t width = (size_t)s->width, id_bytes = (size_t)size.tokens * width, end_bytes = (size_t)size.documents * 8;
  buffer[0].size = buffer[1].size = 0;
  LM_TRY(lm_buffer_reserve(&buffer[0], id_bytes, err));
  LM_TRY(lm_buffer_reserve(&buffer[1], end_bytes, err));
  LM_TRY(lm_pread_all(s->fd, s->path, buffer[0].data, id_bytes, at, err));
  LM_TRY(lm_pread_all(s->fd, s->path, buffer[1].data, end_bytes, at + (off_t)id_bytes, err));
  uint64_t *ends = (uint64_t *)(void *)buffer[1].data;
  *checksum += finish_documents(buffer[0].data, ends, (size_t)size.documents, before.tokens, width);
  LM_TRY(lm_pwrite_all(fd, part, buffer[0].data, id_bytes, info->offset + (off_t)(before.tokens * width), err));
  return lm_pwrite_all(fd, part, ends, end_bytes, info->document_offset + (off_t)(before.documents * 8), err);
}

lm_status lm_spool_write(lm_spool *s, int split, const char *part, const lm_token_info *info, uint64_t *checksum,
                         lm_error *err)
{
  *checksum = 0;
  LM_ASSERT(info->width == s->width);
  int fd = open(part, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return lm_fail(err, LM_EIO, "%s: cannot open for writing: %s", part, strerror(errno));
  lm_buffer buffer[2] = {{0}, {0}};
  lm_status status = LM_OK;
  off_t at = 0;
  for (size_t k = 0; k < s->count && status == LM_OK; k++)
    for (int i = 0; i < LM_SPLITS && status == LM_OK; i++) {
      const struct block *b = &s->blocks[k];
      if (i == split) status = write_block(s, b, split, at, fd, part, info, buffer, checksum, err);
      at += (off_t)(b->size[i].tokens * (uint64_t)s->width + b->size[i].documents * 8);
    }
  lm_buffer_free(&buffer[0]);
  lm_buffer_free(&buffer[1]);
  if (status == LM_OK && fsync(fd) != 0) status = lm_fail(err, LM_EIO, "%s: cannot fsync: %s", part, strerror(errno));
  if (close(fd) != 0 && status == LM_OK) status = lm_fail(err, LM_EIO, "%s: cannot close: %s", part, strerror(errno));
  return status;
}
