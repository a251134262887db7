/* src/batch/import.c - token files of other programs -> a token dataset. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "batch/import.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
  CHUNK = 1 << 20,       /* bytes read at a time, a multiple of any id's width */
  LLMC_HEADER = 256 * 4, /* i32: magic, version, tokens */
  LLMC_MAGIC_16 = 20240520,
  LLMC_MAGIC_32 = 20240801,
  MEGATRON_HEADER = 34
};

/* ---- where documents go: counted first, written in a second pass ---- */

struct sink {
  lm_token_info *info;
  const char *from;
  int fd; /* -1: only count */
  const char *part;
  lm_buffer document, ids, ends; /* as stored */
  uint64_t read, tokens, documents, added, checksum, written, ends_written;
  bool closed; /* the document ends in the end of text */
};

static lm_status flush(struct sink *s, size_t least, lm_error *err)
{
  if (s->fd < 0 || s->ids.size + s->ends.size < least) return LM_OK;
  LM_TRY(lm_pwrite_all(s->fd, s->part, s->ids.data, s->ids.size, s->info->offset + (off_t)s->written, err));
  LM_TRY(lm_pwrite_all(s->fd, s->part, s->ends.data, s->ends.size, s->info->document_offset + (off_t)s->ends_written,
                       err));
  s->written += s->ids.size;
  s->ends_written += s->ends.size;
  s->ids.size = s->ends.size = 0;
  return LM_OK;
}

static lm_status put(struct sink *s, int64_t id, lm_error *err)
{
  if (id < 0 || (uint64_t)id >= s->info->vocab_size)
    return lm_fail(err, LM_EINVAL, "%s: token %" PRIu64 " is id %" PRId64 ", not below the vocabulary size %" PRIu64,
                   s->from, s->read, id, s->info->vocab_size);
  uint32_t stored = (uint32_t)id; /* the first bytes are those of the narrow id: little-endian */
  s->closed = (uint64_t)id == s->info->end_of_text;
  return lm_buffer_append(&s->document, &stored, (size_t)s->info->width, err);
}

static lm_status end_document(struct sink *s, lm_error *err)
{
  if (s->document.size == 0) return LM_OK;
  if (!s->closed) {
    LM_TRY(put(s, (int64_t)s->info->end_of_text, err));
    s->added++;
  }
  s->tokens += s->document.size / (size_t)s->info->width;
  s->documents++;
  s->checksum += lm_token_document_hash(s->document.data, s->document.size, s->tokens);
  if (s->fd >= 0) LM_TRY(lm_buffer_append(&s->ids, s->document.data, s->document.size, err));
  if (s->fd >= 0) LM_TRY(lm_buffer_append(&s->ends, &s->tokens, sizeof s->tokens, err));
  s->document.size = 0;
  s->closed = false;
  return flush(s, CHUNK, err);
}

/* ---- ids ---- */

static int64_t id_at(const char *bytes, int width, bool is_signed)
{
  uint64_t raw = 0;
  memcpy(&raw, bytes, (size_t)width);
  if (is_signed && width < 8 && raw >> (8 * width - 1) != 0) return -1;
  return raw > INT64_MAX ? -1 : (int64_t)raw;
}

/* Ids [at, at + n bytes) of a file; `by_end`: a document ends behind each end of text. */
static lm_status put_ids(struct sink *s, int fd, uint64_t at, uint64_t bytes, int width, bool is_signed, bool by_end,
                         lm_buffer *chunk, lm_error *err)
{
  for (uint64_t done = 0; done < bytes;) {
    size_t step = bytes - done < CHUNK ? (size_t)(bytes - done) : CHUNK;
    chunk->size = 0;
    LM_TRY(lm_buffer_reserve(chunk, step, err));
    LM_TRY(lm_pread_all(fd, s->from, chunk->data, step, (off_t)(at + done), err));
    for (size_t i = 0; i < step; i += (size_t)width, s->read++) {
      int64_t id = id_at(chunk->data + i, width, is_signed);
      bool ends = id >= 0 && (uint64_t)id == s->info->end_of_text;
      if (by_end && ends && s->read == 0) continue;
      LM_TRY(put(s, id, err));
      if (by_end && ends) LM_TRY(end_document(s, err));
    }
    done += step;
  }
  return LM_OK;
}

/* ---- Megatron ---- */

static uint64_t u64_at(const char *bytes)
{
  uint64_t x;
  memcpy(&x, bytes, sizeof x);
  return x;
}

static int64_t length_at(const lm_megatron *m, uint64_t i)
{
  int32_t x;
  memcpy(&x, m->lengths + 4 * i, sizeof x);
  return x;
}

/* Which sequences a document has, and where those lie. */
static lm_status check_places(const lm_megatron *m, uint64_t bin_bytes, lm_error *err)
{
  for (uint64_t i = 0; i < m->sequences; i++) {
    int64_t length = length_at(m, i);
    uint64_t at = u64_at(m->places + 8 * i), bytes = (uint64_t)length * (uint64_t)m->width;
    if (length < 0 || at > bin_bytes || bytes > bin_bytes - at)
      return lm_fail(err, LM_EINVAL,
                     "sequence %" PRIu64 " has %" PRId64 " ids at byte %" PRIu64 " of a .bin of %" PRIu64, i, length,
                     at, bin_bytes);
  }
  for (uint64_t k = 0; k <= m->documents; k++) {
    uint64_t end = u64_at(m->ends + 8 * k), before = k > 0 ? u64_at(m->ends + 8 * (k - 1)) : 0;
    if (end < before || end > m->sequences || (k == 0 && end != 0))
      return lm_fail(err, LM_EINVAL, "document %" PRIu64 " ends with sequence %" PRIu64 " of %" PRIu64, k, end,
                     m->sequences);
  }
  return LM_OK;
}

lm_status lm_megatron_read(lm_megatron *out, const char *idx, size_t n, uint64_t bin_bytes, lm_error *err)
{
  static const struct {
    int width;
    bool is_signed;
  } types[] = {{0, false}, {1, false}, {1, true}, {2, true}, {4, true}, {8, true}, {0, false}, {0, false}, {2, false}};
  if (n < MEGATRON_HEADER || memcmp(idx, "MMIDIDX\0\0", 9) != 0)
    return lm_fail(err, LM_EINVAL, "is no index of Megatron: it does not begin with MMIDIDX");
  uint64_t version = u64_at(idx + 9), entries = u64_at(idx + 26);
  unsigned code = (unsigned char)idx[17];
  if (version != 1) return lm_fail(err, LM_EINVAL, "has version %" PRIu64 " of Megatron's index; 1 is read", version);
  if (code >= sizeof types / sizeof types[0] || types[code].width == 0)
    return lm_fail(err, LM_EINVAL, "has ids of Megatron's type %u; integers of 1, 2, 4 and 8 bytes are read", code);
  *out = (lm_megatron){.width = types[code].width, .is_signed = types[code].is_signed, .sequences = u64_at(idx + 18)};
  uint64_t room = n - MEGATRON_HEADER;
  if (entries == 0 || out->sequences > room / 12 || entries > (room - 12 * out->sequences) / 8)
    return lm_fail(err, LM_EINVAL, "is cut off: %zu bytes do not hold %" PRIu64 " sequences and %" PRIu64 " documents",
                   n, out->sequences, entries);
  out->documents = entries - 1;
  out->lengths = idx + MEGATRON_HEADER;
  out->places = out->lengths + 4 * out->sequences;
  out->ends = out->places + 8 * out->sequences;
  return check_places(out, bin_bytes, err);
}

/* ---- a file ---- */

struct foreign {
  int fd;
  char bin[4096];
  lm_buffer idx, chunk;
  lm_megatron megatron;
  bool has_index;
  int width;
  uint64_t at, bytes; /* of the ids */
};

static lm_status open_bin(struct foreign *f, uint64_t *size, lm_error *err)
{
  struct stat st;
  f->fd = open(f->bin, O_RDONLY | O_CLOEXEC);
  if (f->fd < 0 || fstat(f->fd, &st) != 0)
    return lm_fail(err, errno == ENOENT || errno == ENOTDIR ? LM_EINVAL : LM_EIO, "%s: cannot open for reading: %s",
                   f->bin, strerror(errno));
  if (!S_ISREG(st.st_mode)) return lm_fail(err, LM_EINVAL, "%s: is no file of ids", f->bin);
  *size = (uint64_t)st.st_size;
  return LM_OK;
}

/* x.bin or x.idx -> both, where there is an x.idx. */
static lm_status find_index(struct foreign *f, const char *from, char idx[4096], lm_error *err)
{
  size_t n = strlen(from);
  if (n + 1 > sizeof f->bin) return lm_fail(err, LM_EINVAL, "%.64s...: the path is too long", from);
  strcpy(f->bin, from);
  strcpy(idx, from);
  bool is_idx = n > 4 && strcmp(from + n - 4, ".idx") == 0, is_bin = n > 4 && strcmp(from + n - 4, ".bin") == 0;
  if (is_idx) strcpy(f->bin + n - 4, ".bin");
  if (is_bin) strcpy(idx + n - 4, ".idx");
  f->has_index = is_idx || (is_bin && lm_file_exists(idx));
  return LM_OK;
}

static lm_status read_header(struct foreign *f, uint64_t size, lm_error *err)
{
  int32_t head[3] = {0};
  if (size >= LLMC_HEADER) LM_TRY(lm_pread_all(f->fd, f->bin, head, sizeof head, 0, err));
  bool v1 = head[0] == LLMC_MAGIC_16 && head[1] == 1, v7 = head[0] == LLMC_MAGIC_32 && head[1] == 7;
  if (!v1 && !v7)
    return lm_fail(
        err, LM_EINVAL,
        "%s: is neither llm.c's .bin (20240520 version 1, 20240801 version 7) nor has it Megatron's .idx beside "
        "it; give --format raw16 or raw32 for ids without a header",
        f->bin);
  f->width = v1 ? 2 : 4;
  f->at = LLMC_HEADER;
  f->bytes = (uint64_t)(uint32_t)head[2] * (uint64_t)f->width;
  if (f->bytes == size - f->at) return LM_OK;
  return lm_fail(err, LM_EINVAL, "%s: has %" PRIu64 " bytes of ids, its header says %" PRIu64, f->bin, size - f->at,
                 f->bytes);
}

static lm_status open_foreign(struct foreign *f, const char *from, lm_foreign kind, lm_error *err)
{
  char idx[4096];
  uint64_t size;
  LM_TRY(find_index(f, from, idx, err));
  if (kind != LM_FOREIGN_AUTO) f->has_index = false;
  LM_TRY(open_bin(f, &size, err));
  if (f->has_index) {
    LM_TRY(lm_file_read(idx, &f->idx, err));
    lm_status s = lm_megatron_read(&f->megatron, f->idx.data, f->idx.size, size, err);
    return s == LM_OK ? LM_OK : lm_fail_in(err, s, "%s", idx);
  }
  if (kind == LM_FOREIGN_AUTO) return read_header(f, size, err);
  f->width = kind == LM_FOREIGN_RAW16 ? 2 : 4;
  f->bytes = size;
  if (size % (uint64_t)f->width == 0) return LM_OK;
  return lm_fail(err, LM_EINVAL, "%s: %" PRIu64 " bytes are no whole number of ids of %d", f->bin, size, f->width);
}

static lm_status pass(struct foreign *f, struct sink *s, lm_error *err)
{
  const lm_megatron *m = &f->megatron;
  if (!f->has_index) {
    LM_TRY(put_ids(s, f->fd, f->at, f->bytes, f->width, false, true, &f->chunk, err));
    LM_TRY(end_document(s, err));
    return flush(s, 0, err);
  }
  for (uint64_t k = 0; k < m->documents; k++) {
    for (uint64_t i = u64_at(m->ends + 8 * k); i < u64_at(m->ends + 8 * (k + 1)); i++)
      LM_TRY(put_ids(s, f->fd, u64_at(m->places + 8 * i), (uint64_t)length_at(m, i) * (uint64_t)m->width, m->width,
                     m->is_signed, false, &f->chunk, err));
    LM_TRY(end_document(s, err));
  }
  return flush(s, 0, err);
}

static void clear_sink(struct sink *s)
{
  if (s->fd >= 0) close(s->fd);
  lm_buffer_free(&s->document);
  lm_buffer_free(&s->ids);
  lm_buffer_free(&s->ends);
}

static lm_status write_part(struct foreign *f, const char *part, lm_token_info *info, lm_error *err)
{
  struct sink s = {.info = info, .from = f->bin, .part = part, .fd = open(part, O_WRONLY | O_CLOEXEC)};
  lm_status status =
      s.fd >= 0 ? pass(f, &s, err) : lm_fail(err, LM_EIO, "%s: cannot open for writing: %s", part, strerror(errno));
  if (status == LM_OK && (s.tokens != info->tokens || s.documents != info->documents))
    status = lm_fail(err, LM_EIO, "%s: changed while it was read", f->bin);
  info->checksum = s.checksum;
  clear_sink(&s);
  return status;
}

static lm_status import(const lm_comm *self, struct foreign *f, const char *to, lm_token_info *info, uint64_t *added,
                        lm_error *err)
{
  char part[4096];
  info->width = lm_token_width(info->vocab_size);
  struct sink count = {.info = info, .from = f->bin, .fd = -1};
  lm_status s = pass(f, &count, err);
  info->tokens = count.tokens;
  info->documents = count.documents;
  *added = count.added;
  clear_sink(&count);
  if (s == LM_OK) s = lm_token_file_create(self, to, info, part, err);
  LM_TRY(s);
  s = write_part(f, part, info, err);
  if (s != LM_OK) unlink(part);
  return s == LM_OK ? lm_token_file_commit(self, part, to, info, err) : s;
}

lm_status lm_import(const lm_comm *self, const char *from, lm_foreign kind, const char *to, lm_token_info *info,
                    uint64_t *added, lm_error *err)
{
  struct foreign f = {.fd = -1};
  snprintf(info->sources, sizeof info->sources, "%s", from);
  lm_status s = open_foreign(&f, from, kind, err);
  if (s == LM_OK) s = import(self, &f, to, info, added, err);
  if (f.fd >= 0) close(f.fd);
  lm_buffer_free(&f.idx);
  lm_buffer_free(&f.chunk);
  return s;
}
