/* src/text/decompress.c - a file as a stream of bytes, whether it is plain, gzip or zstd. */
/* SPDX-License-Identifier: BSD-3-Clause */
#define ZLIB_CONST 1 /* zlib does not write to its input */

#include "text/decompress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum { INPUT_SIZE = 1 << 17, MAGIC_MAX = 6 };

typedef enum source_kind { PLAIN, GZIP, ZSTD } source_kind;

struct lm_source {
  const char *path;
  int fd;
  source_kind kind;
  bool ended;  /* the file has no more bytes than those in `input` */
  bool inside; /* of a gzip member or zstd frame: the file must not end here */
  bool padded; /* zeros follow the last gzip member, nothing else may */
  char *input;
  size_t at, filled; /* input[at, filled) is not used yet */
  uint64_t offset;   /* in the file, of input[filled] */
  z_stream z;
  ZSTD_DStream *zstd;
};

uint64_t lm_source_position(const lm_source *s)
{
  return s->offset - (s->filled - s->at);
}

bool lm_source_is_plain(const lm_source *s)
{
  return s->kind == PLAIN;
}

lm_status lm_source_seek(lm_source *s, uint64_t at, lm_error *err)
{
  LM_ASSERT(s->kind == PLAIN);
  if (lseek(s->fd, (off_t)at, SEEK_SET) < 0)
    return lm_fail(err, LM_EIO, "%s: cannot go to byte %llu: %s", s->path, (unsigned long long)at, strerror(errno));
  s->offset = at;
  s->at = s->filled = 0;
  s->ended = false;
  return LM_OK;
}

void lm_source_close(lm_source *s)
{
  if (s == NULL) return;
  if (s->kind == GZIP) inflateEnd(&s->z);
  ZSTD_freeDStream(s->zstd);
  if (s->fd > STDIN_FILENO) close(s->fd);
  free(s->input);
  free(s);
}

static lm_status read_some(lm_source *s, char *bytes, size_t room, size_t *n, lm_error *err)
{
  ssize_t got;
  do got = read(s->fd, bytes, room);
  while (got < 0 && errno == EINTR);
  if (got < 0)
    return lm_fail(err, LM_EIO, "%s: cannot read at byte %llu: %s", s->path, (unsigned long long)s->offset,
                   strerror(errno));
  s->offset += (uint64_t)got;
  *n = (size_t)got;
  return LM_OK;
}

/* Some unused input, or `ended`. */
static lm_status fill(lm_source *s, lm_error *err)
{
  if (s->at < s->filled || s->ended) return LM_OK;
  s->at = 0;
  LM_TRY(read_some(s, s->input, INPUT_SIZE, &s->filled, err));
  s->ended = s->filled == 0;
  return LM_OK;
}

/* ---- what is it? ---- */

static bool has_magic(const lm_source *s, const char *magic, size_t n)
{
  return s->filled >= n && memcmp(s->input, magic, n) == 0;
}

static bool ends_in(const char *path, const char *ending)
{
  size_t n = strlen(path), m = strlen(ending);
  return n >= m && strcasecmp(path + n - m, ending) == 0;
}

static const char *foreign_format(const lm_source *s)
{
  if (has_magic(s,
                "\xfd"
                "7zXZ\0",
                6))
    return "xz";
  if (has_magic(s, "BZh", 3) && s->filled >= 5 && s->input[4] == '1') return "bzip2";
  if (has_magic(s, "\x04\x22\x4d\x18", 4)) return "lz4";
  if (has_magic(s, "PK\x03\x04", 4)) return "zip";
  return NULL;
}

static lm_status tell_kind(lm_source *s, source_kind *kind, lm_error *err)
{
  while (s->filled < MAGIC_MAX && !s->ended) { /* a pipe may give a byte at a time */
    size_t n;
    LM_TRY(read_some(s, s->input + s->filled, INPUT_SIZE - s->filled, &n, err));
    s->filled += n;
    s->ended = n == 0;
  }
  bool skippable = s->filled >= 4 && (s->input[0] & 0xf0) == 0x50 && memcmp(s->input + 1, "\x2a\x4d\x18", 3) == 0;
  *kind = has_magic(s, "\x1f\x8b", 2) ? GZIP : has_magic(s, "\x28\xb5\x2f\xfd", 4) || skippable ? ZSTD : PLAIN;
  if (*kind != PLAIN) return LM_OK;
  const char *foreign = foreign_format(s);
  if (foreign != NULL)
    return lm_fail(err, LM_EINVAL, "%s: is %s data; plain, gzip and zstd are read: unpack it first", s->path, foreign);
  if (!ends_in(s->path, ".gz") && !ends_in(s->path, ".dz") && !ends_in(s->path, ".zst") && !ends_in(s->path, ".zstd"))
    return LM_OK;
  if (s->filled < 4)
    return lm_fail(err, LM_EINVAL, "%s: unexpected end of compressed data at byte %zu", s->path, s->filled);
  return lm_fail(err, LM_EINVAL, "%s: is neither gzip nor zstd data, as its name says", s->path);
}

static lm_status start_decoder(lm_source *s, source_kind kind, lm_error *err)
{
  if (kind == GZIP) {
    enum { GZIP_WINDOW = 15 + 16 }; /* 32 KiB, and the gzip wrapper with its checksum */
    if (inflateInit2(&s->z, GZIP_WINDOW) != Z_OK) return lm_fail(err, LM_ENOMEM, "%s: no memory for zlib", s->path);
  } else if (kind == ZSTD) {
    s->zstd = ZSTD_createDStream();
    /* Files made with --long=31 need a window of 2 GiB; others are charged for what they need. */
    if (s->zstd == NULL || ZSTD_isError(ZSTD_DCtx_setParameter(s->zstd, ZSTD_d_windowLogMax, 31)))
      return lm_fail(err, LM_ENOMEM, "%s: no memory for zstd", s->path);
  }
  s->kind = kind;
  return LM_OK;
}

static lm_status open_file(lm_source *s, lm_error *err)
{
  if (strcmp(s->path, "-") == 0) {
    s->path = "stdin";
    s->fd = STDIN_FILENO;
    return LM_OK;
  }
  struct stat st;
  s->fd = open(s->path, O_RDONLY | O_CLOEXEC);
  if (s->fd < 0)
    return lm_fail(err, errno == ENOENT || errno == ENOTDIR || errno == EACCES ? LM_EINVAL : LM_EIO,
                   "%s: cannot open for reading: %s", s->path, strerror(errno));
  if (fstat(s->fd, &st) == 0 && S_ISDIR(st.st_mode))
    return lm_fail(err, LM_EINVAL, "%s: is a folder, a file was wanted", s->path);
  return LM_OK;
}

static lm_status open_local(lm_source *s, lm_error *err)
{
  source_kind kind;
  LM_TRY(open_file(s, err));
  s->input = malloc(INPUT_SIZE);
  if (s->input == NULL) return lm_fail(err, LM_ENOMEM, "%s: no memory to read it", s->path);
  LM_TRY(tell_kind(s, &kind, err));
  return start_decoder(s, kind, err);
}

lm_status lm_source_open(lm_source **out, const char *path, lm_error *err)
{
  lm_source *s = *out = calloc(1, sizeof *s);
  if (s == NULL) return lm_fail(err, LM_ENOMEM, "%s: no memory to open it", path);
  s->path = path;
  s->fd = -1;
  lm_status status = open_local(s, err);
  if (status != LM_OK) {
    lm_source_close(s);
    *out = NULL;
  }
  return status;
}

/* ---- reading ---- */

static lm_status fail_damaged(const lm_source *s, const char *why, lm_error *err)
{
  return lm_fail(err, LM_EINVAL, "%s: damaged compressed data at byte %llu: %s", s->path,
                 (unsigned long long)lm_source_position(s), why);
}

/* The decoder wants more and there is no more. It is asked first: it may still hold output. */
static lm_status fail_cut(const lm_source *s, lm_error *err)
{
  return lm_fail(err, LM_EINVAL, "%s: unexpected end of compressed data at byte %llu", s->path,
                 (unsigned long long)lm_source_position(s));
}

static lm_status read_plain(lm_source *s, char *bytes, size_t room, size_t *n, lm_error *err)
{
  if (s->at == s->filled) return s->ended ? LM_OK : read_some(s, bytes, room, n, err);
  *n = s->filled - s->at < room ? s->filled - s->at : room;
  memcpy(bytes, s->input + s->at, *n);
  s->at += *n;
  return LM_OK;
}

static lm_status inflate_some(lm_source *s, char *bytes, size_t room, size_t *n, lm_error *err)
{
  uInt space = room < 1u << 30 ? (uInt)room : 1u << 30;
  s->z.next_in = (const Bytef *)s->input + s->at;
  s->z.avail_in = (uInt)(s->filled - s->at);
  s->z.next_out = (Bytef *)bytes;
  s->z.avail_out = space;
  s->inside = true;
  int r = inflate(&s->z, Z_NO_FLUSH);
  s->at = s->filled - s->z.avail_in;
  *n = space - s->z.avail_out;
  if (r == Z_STREAM_END) {
    s->inside = false;
    return inflateReset(&s->z) == Z_OK ? LM_OK : fail_damaged(s, "zlib cannot go on", err);
  }
  if (r == Z_MEM_ERROR) return lm_fail(err, LM_ENOMEM, "%s: no memory for zlib", s->path);
  if (r != Z_OK && r != Z_BUF_ERROR) return fail_damaged(s, s->z.msg != NULL ? s->z.msg : "not gzip", err);
  return *n == 0 && s->ended ? fail_cut(s, err) : LM_OK;
}

/* Tapes and some file systems round a gzip file up with zeros. */
static lm_status skip_padding(lm_source *s, lm_error *err)
{
  s->padded = true;
  while (s->at < s->filled) {
    if (s->input[s->at] != '\0') return fail_damaged(s, "data after the zeros that follow the last member", err);
    s->at++;
  }
  return LM_OK;
}

static lm_status read_gzip(lm_source *s, char *bytes, size_t room, size_t *n, lm_error *err)
{
  while (*n == 0) {
    LM_TRY(fill(s, err));
    if (s->ended && s->at == s->filled && !s->inside) return LM_OK;
    if (s->padded || (!s->inside && lm_source_position(s) > 0 && s->input[s->at] == '\0'))
      LM_TRY(skip_padding(s, err));
    else
      LM_TRY(inflate_some(s, bytes, room, n, err));
  }
  return LM_OK;
}

static lm_status read_zstd(lm_source *s, char *bytes, size_t room, size_t *n, lm_error *err)
{
  while (*n == 0) {
    LM_TRY(fill(s, err));
    if (s->ended && s->at == s->filled && !s->inside) return LM_OK;
    ZSTD_inBuffer in = {s->input, s->filled, s->at};
    ZSTD_outBuffer out = {bytes, room, 0};
    size_t r = ZSTD_decompressStream(s->zstd, &out, &in);
    s->at = in.pos;
    *n = out.pos;
    if (ZSTD_isError(r)) return fail_damaged(s, ZSTD_getErrorName(r), err);
    s->inside = r != 0;
    if (s->inside && *n == 0 && s->ended) return fail_cut(s, err);
  }
  return LM_OK;
}

lm_status lm_source_read(lm_source *s, char *bytes, size_t room, size_t *n, lm_error *err)
{
  *n = 0;
  LM_ASSERT(room > 0);
  switch (s->kind) {
  case GZIP: return read_gzip(s, bytes, room, n, err);
  case ZSTD: return read_zstd(s, bytes, room, n, err);
  case PLAIN: break;
  }
  return read_plain(s, bytes, room, n, err);
}
