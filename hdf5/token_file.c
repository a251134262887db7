/* hdf5/token_file.c - a token dataset on disk. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "hdf5/token_file.h"
#include "base/file.h"
#include "hdf5/library.h"
#include "hdf5/state_layout.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define FORMAT "mpilm tokens"
enum { VERSION = 1, PART_PATH = 4096, AROUND = 1 << 14 }; /* AROUND: HDF5's own bytes, generously */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "ids are written as they lie in memory, little-endian");

static lm_status fail_hdf5(lm_error *err, lm_status s, const char *path, const char *what)
{
  char reason[256];
  lm_hdf5_reason(reason, sizeof reason);
  return lm_fail(err, s, "%s: %s (HDF5: %s)", path, what, reason);
}

/* Locks are ours to check (being_written()): HDF5's own would keep readers out of file systems without flock(). */
static hid_t unlocked_access(void)
{
  hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_file_locking(access, false, true);
  return access;
}

/* ---- writing ---- */

static bool put(hid_t file, const char *name, hid_t stored, hid_t given, const void *value)
{
  hid_t space = H5Screate(H5S_SCALAR);
  hid_t attribute = H5Acreate2(file, name, stored, space, H5P_DEFAULT, H5P_DEFAULT);
  bool good = attribute >= 0 && H5Awrite(attribute, given, value) >= 0;
  if (attribute >= 0) good = H5Aclose(attribute) >= 0 && good;
  H5Sclose(space);
  return good;
}

static bool put_u64(hid_t file, const char *name, uint64_t value)
{
  return put(file, name, H5T_STD_U64LE, H5T_NATIVE_UINT64, &value);
}

static bool put_text(hid_t file, const char *name, const char *text)
{
  hid_t type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, strlen(text) + 1);
  H5Tset_cset(type, H5T_CSET_UTF8);
  bool good = put(file, name, type, type, text);
  H5Tclose(type);
  return good;
}

/* Contiguous, allocated at once and not filled: its place in the file is known before a value is written. */
static bool make_dataset(hid_t file, const char *name, hid_t type, uint64_t n, off_t *offset)
{
  hsize_t count = n;
  hid_t space = H5Screate_simple(1, &count, NULL), plist = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_layout(plist, H5D_CONTIGUOUS);
  H5Pset_alloc_time(plist, H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(plist, H5D_FILL_TIME_NEVER);
  H5Pset_obj_track_times(plist, false); /* the same input gives the same bytes */
  hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
  haddr_t at = dataset >= 0 ? H5Dget_offset(dataset) : HADDR_UNDEF;
  bool good = at != HADDR_UNDEF;
  if (dataset >= 0) good = H5Dclose(dataset) >= 0 && good;
  *offset = (off_t)at;
  H5Pclose(plist);
  H5Sclose(space);
  return good;
}

static bool describe(hid_t file, const lm_token_info *info)
{
  return put_text(file, "format", FORMAT) && put_u64(file, "version", VERSION) &&
         put_u64(file, "vocab_size", info->vocab_size) && put_u64(file, "end_of_text", info->end_of_text) &&
         put_u64(file, "vocab_fingerprint", info->vocab_fingerprint) && put_text(file, "sources", info->sources) &&
         put_u64(file, "tokens", info->tokens) && put_u64(file, "documents", info->documents) &&
         (!info->begins_documents || put_u64(file, "begin_of_text", info->begin_of_text)) &&
         put_u64(file, "checksum", 0) && put_u64(file, "complete", 0);
}

static lm_status lay_out(const char *part, lm_token_info *info, lm_error *err)
{
  lm_hdf5_quiet();
  hid_t access = unlocked_access(), create = H5Pcreate(H5P_FILE_CREATE);
  H5Pset_obj_track_times(create, false);
  hid_t file = H5Fcreate(part, H5F_ACC_TRUNC, create, access);
  hid_t id = info->width == 2 ? H5T_STD_U16LE : H5T_STD_U32LE;
  bool good = file >= 0 && describe(file, info) && make_dataset(file, "tokens", id, info->tokens, &info->offset) &&
              make_dataset(file, "document_end", H5T_STD_U64LE, info->documents, &info->document_offset);
  lm_status s = good ? LM_OK : fail_hdf5(err, LM_EIO, part, "cannot lay out the token dataset");
  if (file >= 0 && H5Fclose(file) < 0 && s == LM_OK) s = fail_hdf5(err, LM_EIO, part, "cannot close");
  H5Pclose(create);
  H5Pclose(access);
  if (s != LM_OK) unlink(part);
  return s;
}

/* HDF5 says "unable to open file"; the system says why. */
static lm_status probe_writable(const char *part, lm_error *err)
{
  int fd = open(part, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) {
    int e = errno;
    return lm_fail(err, e == ENOENT || e == ENOTDIR || e == EISDIR ? LM_EINVAL : LM_EIO,
                   "%s: cannot open for writing: %s", part, strerror(e));
  }
  close(fd);
  return LM_OK;
}

/* Blocks for all that will be written: a full disk is found before, and ranks write at once into blocks that are there.
 */
static lm_status take_room(const char *part, lm_error *err)
{
  struct stat st;
  int fd = open(part, O_WRONLY | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &st) != 0) {
    int e = errno;
    if (fd >= 0) close(fd);
    return lm_fail(err, LM_EIO, "%s: cannot open for writing: %s", part, strerror(e));
  }
  lm_status s = lm_state_room_take(fd, part, (uint64_t)st.st_size, err);
  close(fd);
  if (s != LM_OK) unlink(part);
  return s;
}

static lm_status create_local(bool lays_out, const char *path, lm_token_info *info, char part[PART_PATH], lm_error *err)
{
  if ((size_t)snprintf(part, PART_PATH, "%s.part", path) >= PART_PATH)
    return lm_fail(err, LM_EINVAL, "%.64s...: the path is too long", path);
  if (info->tokens == 0 || info->documents == 0)
    return lm_fail(err, LM_EINVAL, "%s: %" PRIu64 " tokens in %" PRIu64 " documents; want at least one of each", path,
                   info->tokens, info->documents);
  info->width = lm_token_width(info->vocab_size);
  if (!lays_out) return LM_OK;
  LM_TRY(probe_writable(part, err));
  /* Asked first: where HDF5 cannot close a file for want of room, it crashes at the end of the program. */
  lm_status s = lm_state_room_ask(part, info->tokens * (uint64_t)info->width + info->documents * 8 + AROUND, err);
  if (s != LM_OK) unlink(part);
  LM_TRY(s);
  LM_TRY(lay_out(part, info, err));
  return take_room(part, err);
}

lm_status lm_token_file_create(const lm_comm *comm, const char *path, lm_token_info *info, char part[4096],
                               lm_error *err)
{
  lm_status mine = create_local(comm->rank == 0, path, info, part, err);
  lm_status s = lm_agree(comm, mine, err);
  if (s != LM_OK) {
    if (comm->rank == 0 && mine == LM_OK) unlink(part);
    return s;
  }
  off_t at[2] = {info->offset, info->document_offset};
  lm_bcast(comm, at, sizeof at, 0);
  info->offset = at[0];
  info->document_offset = at[1];
  return LM_OK;
}

static bool overwrite_u64(hid_t file, const char *name, uint64_t value)
{
  hid_t attribute = H5Aopen(file, name, H5P_DEFAULT);
  bool good = attribute >= 0 && H5Awrite(attribute, H5T_NATIVE_UINT64, &value) >= 0;
  if (attribute >= 0) good = H5Aclose(attribute) >= 0 && good;
  return good;
}

static lm_status mark_complete(const char *part, uint64_t checksum, lm_error *err)
{
  lm_hdf5_quiet();
  hid_t access = unlocked_access(), file = H5Fopen(part, H5F_ACC_RDWR, access);
  bool good = file >= 0 && overwrite_u64(file, "checksum", checksum) && overwrite_u64(file, "complete", 1);
  lm_status s = good ? LM_OK : fail_hdf5(err, LM_EIO, part, "cannot be marked complete");
  if (file >= 0 && H5Fclose(file) < 0 && s == LM_OK) s = fail_hdf5(err, LM_EIO, part, "cannot close");
  H5Pclose(access);
  return s;
}

static lm_status sync_file(const char *path, lm_error *err)
{
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return lm_fail(err, LM_EIO, "%s: cannot open: %s", path, strerror(errno));
  lm_status s = fsync(fd) == 0 ? LM_OK : lm_fail(err, LM_EIO, "%s: cannot fsync: %s", path, strerror(errno));
  close(fd);
  return s;
}

static lm_status commit_local(const char *part, const char *path, uint64_t checksum, lm_error *err)
{
  LM_TRY(sync_file(part, err)); /* data first: the mark must not be on disk before what it vouches for */
  LM_TRY(mark_complete(part, checksum, err));
  LM_TRY(sync_file(part, err));
  return lm_file_commit(part, path, err);
}

lm_status lm_token_file_commit(const lm_comm *comm, const char *part, const char *path, const lm_token_info *info,
                               lm_error *err)
{
  lm_status mine = comm->rank == 0 ? commit_local(part, path, info->checksum, err) : LM_OK;
  if (mine != LM_OK) unlink(part);
  return lm_agree(comm, mine, err);
}

/* ---- reading ---- */

/* Another program holds the lock that HDF5 takes for writing, unless the user says that locks mean nothing here. */
static bool being_written(int fd)
{
  const char *use = getenv("HDF5_USE_FILE_LOCKING");
  if (use != NULL && (strcmp(use, "FALSE") == 0 || strcmp(use, "0") == 0)) return false;
  return flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

static lm_status check_signature(int fd, const char *path, off_t size, lm_error *err)
{
  static const char signature[8] = "\211HDF\r\n\032\n";
  char head[sizeof signature] = {0};
  if (size == 0) return lm_fail(err, LM_EDAMAGED, "%s: is empty: a truncated or never written token dataset", path);
  LM_TRY(lm_pread_all(fd, path, head, size < (off_t)sizeof head ? (size_t)size : sizeof head, 0, err));
  if (memcmp(head, signature, sizeof head) == 0) return LM_OK;
  return lm_fail(err, LM_EINVAL, "%s: is not an HDF5 file; a token dataset that mpilm tokenize wrote was wanted", path);
}

static lm_status check_before_hdf5(const char *path, off_t *size, lm_error *err)
{
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat st;
  if (fd < 0 || fstat(fd, &st) != 0) {
    int e = errno;
    if (fd >= 0) close(fd);
    return lm_fail(err, e == ENOENT || e == ENOTDIR ? LM_EINVAL : LM_EIO, "%s: cannot open for reading: %s", path,
                   strerror(e));
  }
  lm_status s = LM_OK;
  *size = st.st_size;
  if (!S_ISREG(st.st_mode))
    s = lm_fail(err, LM_EINVAL, "%s: is %s; a token dataset (.h5) was wanted", path,
                S_ISDIR(st.st_mode) ? "a folder" : "not a regular file");
  else if (being_written(fd))
    s = lm_fail(err, LM_EINVAL,
                "%s: is open for writing in another program; wait for it, or set HDF5_USE_FILE_LOCKING=FALSE to read "
                "all the same",
                path);
  else
    s = check_signature(fd, path, st.st_size, err);
  close(fd);
  return s;
}

static bool get_u64(hid_t file, const char *name, uint64_t *value)
{
  if (H5Aexists(file, name) <= 0) return false;
  hid_t attribute = H5Aopen(file, name, H5P_DEFAULT);
  if (attribute < 0) return false;
  hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
  bool good = H5Tget_class(type) == H5T_INTEGER && H5Sget_simple_extent_npoints(space) == 1 &&
              H5Aread(attribute, H5T_NATIVE_UINT64, value) >= 0;
  H5Sclose(space);
  H5Tclose(type);
  H5Aclose(attribute);
  return good;
}

/* A string of fixed length below n; read as it is stored, so that no conversion of character sets gets in the way. */
static bool get_text(hid_t file, const char *name, char *out, size_t n)
{
  if (H5Aexists(file, name) <= 0) return false;
  hid_t attribute = H5Aopen(file, name, H5P_DEFAULT);
  if (attribute < 0) return false;
  hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
  memset(out, 0, n);
  bool good = H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0 && H5Tget_size(type) <= n &&
              H5Sget_simple_extent_npoints(space) == 1 && H5Aread(attribute, type, out) >= 0;
  out[n - 1] = '\0';
  H5Sclose(space);
  H5Tclose(type);
  H5Aclose(attribute);
  return good;
}

/* Length, bytes of an element and place of a 1-D, contiguous, unsigned, little-endian dataset. */
static bool get_dataset(hid_t file, const char *name, uint64_t *count, size_t *width, off_t *offset)
{
  if (H5Lexists(file, name, H5P_DEFAULT) <= 0) return false;
  hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
  if (dataset < 0) return false;
  hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset), plist = H5Dget_create_plist(dataset);
  haddr_t at = H5Dget_offset(dataset);
  hsize_t n = 0;
  bool good = H5Tget_class(type) == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_NONE &&
              H5Tget_order(type) == H5T_ORDER_LE && H5Sget_simple_extent_ndims(space) == 1 &&
              H5Sget_simple_extent_dims(space, &n, NULL) == 1 && H5Pget_layout(plist) == H5D_CONTIGUOUS &&
              at != HADDR_UNDEF;
  *count = n;
  *width = H5Tget_size(type);
  *offset = (off_t)at;
  H5Pclose(plist);
  H5Sclose(space);
  H5Tclose(type);
  H5Dclose(dataset);
  return good;
}

static lm_status read_format(hid_t file, const char *path, lm_error *err)
{
  char format[64];
  uint64_t version, complete;
  if (!get_text(file, "format", format, sizeof format))
    return lm_fail(err, LM_EINVAL, "%s: is an HDF5 file without the attribute format = \"%s\": not a token dataset",
                   path, FORMAT);
  if (strcmp(format, FORMAT) != 0)
    return lm_fail(err, LM_EINVAL, "%s: has the format \"%s\"; a token dataset, \"%s\", was wanted", path, format,
                   FORMAT);
  if (!get_u64(file, "version", &version))
    return lm_fail(err, LM_EINVAL, "%s: has no attribute version: not a token dataset of this program", path);
  if (version != VERSION)
    return lm_fail(err, LM_EINVAL, "%s: has version %" PRIu64 " of the token format; this program reads version %d",
                   path, version, VERSION);
  if (!get_u64(file, "complete", &complete) || complete != 1)
    return lm_fail(err, LM_EINVAL, "%s: is not complete: its writing was interrupted; run mpilm tokenize again", path);
  return LM_OK;
}

static lm_status read_description(hid_t file, const char *path, lm_token_info *out, lm_error *err)
{
  static const struct {
    const char *name;
    size_t offset;
  } numbers[] = {
      {"tokens", offsetof(lm_token_info, tokens)},
      {"documents", offsetof(lm_token_info, documents)},
      {"vocab_size", offsetof(lm_token_info, vocab_size)},
      {"end_of_text", offsetof(lm_token_info, end_of_text)},
      {"checksum", offsetof(lm_token_info, checksum)},
      {"vocab_fingerprint", offsetof(lm_token_info, vocab_fingerprint)},
  };
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
    if (!get_u64(file, numbers[i].name, (uint64_t *)(void *)((char *)out + numbers[i].offset)))
      return lm_fail(err, LM_EDAMAGED, "%s: has no attribute %s, which every token dataset has", path, numbers[i].name);
  out->begins_documents = get_u64(file, "begin_of_text", &out->begin_of_text);
  if (!get_text(file, "sources", out->sources, sizeof out->sources))
    return lm_fail(err, LM_EDAMAGED, "%s: has no attribute sources, which every token dataset has", path);
  return LM_OK;
}

static lm_status read_places(hid_t file, const char *path, off_t size, lm_token_info *out, lm_error *err)
{
  uint64_t tokens, documents;
  size_t width, end_width;
  if (!get_dataset(file, "tokens", &tokens, &width, &out->offset) ||
      !get_dataset(file, "document_end", &documents, &end_width, &out->document_offset))
    return lm_fail(err, LM_EDAMAGED, "%s: /tokens and /document_end must be there, 1-D, unsigned, contiguous", path);
  out->width = lm_token_width(out->vocab_size);
  if (tokens != out->tokens || documents != out->documents || width != (size_t)out->width || end_width != 8)
    return lm_fail(err, LM_EDAMAGED,
                   "%s: holds %" PRIu64 " ids of %zu bytes and %" PRIu64 " document ends; its attributes say %" PRIu64
                   " of %d and %" PRIu64,
                   path, tokens, width, documents, out->tokens, out->width, out->documents);
  if (out->end_of_text >= out->vocab_size)
    return lm_fail(err, LM_EDAMAGED, "%s: end_of_text %" PRIu64 " is not below vocab_size %" PRIu64, path,
                   out->end_of_text, out->vocab_size);
  uint64_t end = (uint64_t)out->offset + tokens * width, ends = (uint64_t)out->document_offset + documents * end_width;
  if (end > (uint64_t)size || ends > (uint64_t)size)
    return lm_fail(err, LM_EDAMAGED, "%s: is truncated: %lld bytes, want at least %" PRIu64, path, (long long)size,
                   end > ends ? end : ends);
  return LM_OK;
}

lm_status lm_token_file_info(const char *path, lm_token_info *out, lm_error *err)
{
  off_t size;
  *out = (lm_token_info){0};
  LM_TRY(check_before_hdf5(path, &size, err));
  lm_hdf5_quiet();
  hid_t access = unlocked_access(), file = H5Fopen(path, H5F_ACC_RDONLY, access);
  lm_status s = file >= 0 ? read_format(file, path, err)
                          : fail_hdf5(err, LM_EDAMAGED, path, "is a truncated or damaged HDF5 file");
  if (s == LM_OK) s = read_description(file, path, out, err);
  if (s == LM_OK) s = read_places(file, path, size, out, err);
  if (file >= 0) H5Fclose(file);
  H5Pclose(access);
  return s;
}
