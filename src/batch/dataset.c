/* src/batch/dataset.c - a token dataset as training sees it. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "batch/dataset.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 2048 }; /* ids read at a time, on the stack */

struct lm_dataset {
  lm_token_info info;
  int fd;
  char *path;
};

lm_status lm_dataset_open(lm_dataset **out, const char *path, lm_error *err)
{
  *out = NULL;
  lm_token_info info;
  LM_TRY(lm_token_file_info(path, &info, err));
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return lm_fail(err, LM_EIO, "%s: cannot open for reading: %s", path, strerror(errno));
  lm_dataset *d = NULL;
  lm_status s = lm_alloc(&d, 1, sizeof *d, "the dataset", err);
  char *copy = strdup(path);
  if (s == LM_OK && copy == NULL) s = lm_fail(err, LM_ENOMEM, "%s: no memory for the path", path);
  if (s != LM_OK) {
    free(copy);
    free(d);
    close(fd);
    return s;
  }
  *d = (lm_dataset){.info = info, .fd = fd, .path = copy};
  *out = d;
  return LM_OK;
}

void lm_dataset_close(lm_dataset *d)
{
  if (d == NULL) return;
  close(d->fd);
  free(d->path);
  free(d);
}

const lm_token_info *lm_dataset_info(const lm_dataset *d)
{
  return &d->info;
}

const char *lm_dataset_path(const lm_dataset *d)
{
  return d->path;
}

uint64_t lm_dataset_windows(const lm_dataset *d, int T)
{
  LM_ASSERT(T >= 1);
  return (d->info.tokens - 1) / (uint64_t)T;
}

lm_status lm_dataset_ids(const lm_dataset *d, uint64_t begin, size_t count, void *ids, lm_error *err)
{
  LM_ASSERT(begin <= d->info.tokens && count <= d->info.tokens - begin);
  size_t width = (size_t)d->info.width;
  return lm_pread_all(d->fd, d->path, ids, count * width, d->info.offset + (off_t)(begin * width), err);
}

lm_status lm_dataset_document_ends(const lm_dataset *d, uint64_t begin, size_t count, uint64_t *ends, lm_error *err)
{
  LM_ASSERT(begin <= d->info.documents && count <= d->info.documents - begin);
  return lm_pread_all(d->fd, d->path, ends, count * sizeof *ends, d->info.document_offset + (off_t)(begin * 8), err);
}

/* Stored ids -> 32 bits. Returns the first that is not below vocab_size, or count where all are. */
static size_t widen(const lm_dataset *d, const void *stored, size_t count, uint32_t *ids)
{
  if (d->info.width == 2)
    for (size_t i = 0; i < count; i++) ids[i] = ((const uint16_t *)stored)[i];
  else
    memcpy(ids, stored, count * sizeof *ids);
  for (size_t i = 0; i < count; i++)
    if (ids[i] >= d->info.vocab_size) return i;
  return count;
}

static lm_status fail_id(const lm_dataset *d, uint64_t position, uint32_t id, lm_error *err)
{
  return lm_fail(err, LM_EDAMAGED, "%s: token %" PRIu64 " is id %" PRIu32 ", not below the vocabulary size %" PRIu64,
                 d->path, position, id, d->info.vocab_size);
}

/* Ids [begin, begin + count), count <= CHUNK, checked. */
static lm_status read_checked(const lm_dataset *d, uint64_t begin, size_t count, uint32_t ids[CHUNK], lm_error *err)
{
  uint32_t stored[CHUNK];
  LM_TRY(lm_dataset_ids(d, begin, count, stored, err));
  size_t bad = widen(d, stored, count, ids);
  return bad == count ? LM_OK : fail_id(d, begin + bad, ids[bad], err);
}

lm_status lm_dataset_window(const lm_dataset *d, uint64_t i, int T, int32_t *inputs, int32_t *targets, lm_error *err)
{
  LM_ASSERT(i <= lm_dataset_windows(d, T));
  uint64_t begin = i * (uint64_t)T, pairs = d->info.tokens - 1 - begin; /* an input counts where it has a target */
  size_t n = pairs < (uint64_t)T ? (size_t)pairs : (size_t)T;
  for (size_t done = 0; done < n;) {
    uint32_t ids[CHUNK];
    size_t step = n - done < CHUNK - 1 ? n - done : CHUNK - 1;
    LM_TRY(read_checked(d, begin + done, step + 1, ids, err));
    for (size_t k = 0; k < step; k++) {
      inputs[done + k] = (int32_t)ids[k];
      targets[done + k] = (int32_t)ids[k + 1];
    }
    done += step;
  }
  for (size_t k = n; k < (size_t)T; k++) {
    inputs[k] = 0;
    targets[k] = -1;
  }
  return LM_OK;
}

/* ---- verify ---- */

/* One document [begin, end): ids in range, closed by the end of text; adds its hash to *checksum. */
static lm_status verify_document(const lm_dataset *d, uint64_t n, uint64_t begin, uint64_t end, lm_buffer *stored,
                                 uint64_t *checksum, lm_error *err)
{
  if (end <= begin || end > d->info.tokens)
    return lm_fail(err, LM_EDAMAGED,
                   "%s: document %" PRIu64 " ends at %" PRIu64 "; want more than %" PRIu64 " and at most %" PRIu64,
                   d->path, n, end, begin, d->info.tokens);
  size_t count = (size_t)(end - begin), width = (size_t)d->info.width;
  stored->size = 0;
  LM_TRY(lm_buffer_reserve(stored, count * width, err));
  LM_TRY(lm_dataset_ids(d, begin, count, stored->data, err));
  uint32_t ids[CHUNK];
  for (size_t done = 0; done < count;) {
    size_t step = count - done < CHUNK ? count - done : CHUNK, bad = widen(d, stored->data + done * width, step, ids);
    if (bad < step) return fail_id(d, begin + done + bad, ids[bad], err);
    done += step;
    if (done == count && ids[step - 1] != d->info.end_of_text)
      return lm_fail(err, LM_EDAMAGED,
                     "%s: document %" PRIu64 " is closed by id %" PRIu32 "; want the end of text, %" PRIu64, d->path, n,
                     ids[step - 1], d->info.end_of_text);
  }
  *checksum += lm_token_document_hash(stored->data, count * width, end);
  return LM_OK;
}

static lm_status verify_documents(const lm_dataset *d, lm_buffer *stored, uint64_t *checksum, lm_error *err)
{
  uint64_t ends[1024], begin = 0;
  for (uint64_t n = 0; n < d->info.documents;) {
    uint64_t left = d->info.documents - n;
    size_t step = left < 1024 ? (size_t)left : 1024;
    LM_TRY(lm_dataset_document_ends(d, n, step, ends, err));
    for (size_t k = 0; k < step; begin = ends[k++])
      LM_TRY(verify_document(d, n + k, begin, ends[k], stored, checksum, err));
    n += step;
  }
  if (begin != d->info.tokens)
    return lm_fail(err, LM_EDAMAGED, "%s: the last document ends at token %" PRIu64 " of %" PRIu64, d->path, begin,
                   d->info.tokens);
  return LM_OK;
}

lm_status lm_dataset_verify(const lm_dataset *d, lm_error *err)
{
  lm_buffer stored = {0};
  uint64_t checksum = 0;
  lm_status s = verify_documents(d, &stored, &checksum, err);
  lm_buffer_free(&stored);
  if (s == LM_OK && checksum != d->info.checksum)
    s = lm_fail(err, LM_EDAMAGED, "%s: checksum is %016" PRIx64 ", the file says %016" PRIx64, d->path, checksum,
                d->info.checksum);
  return s;
}
