/* src/base/file.c - files as a trainer needs them. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One call moves at most this much: Linux stops at 0x7ffff000 bytes, and a smaller piece lets errors show early. */
enum { TRANSFER_MAX = 64 << 20 };

static lm_status fail_errno(lm_error *err, const char *what, const char *path)
{
  int e = errno;
  lm_status s = e == ENOENT || e == EISDIR || e == ENOTDIR ? LM_EINVAL : LM_EIO;
  return lm_fail(err, s, "%s: cannot %s: %s", path, what, strerror(e));
}

lm_status lm_file_read(const char *path, lm_buffer *out, lm_error *err)
{
  bool is_stdin = strcmp(path, "-") == 0;
  int fd = is_stdin ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0) : open(path, O_RDONLY | O_CLOEXEC);
  if (is_stdin) path = "standard input";
  if (fd < 0) return fail_errno(err, "open for reading", path);
  lm_status s = LM_OK;
  for (;;) {
    s = lm_buffer_reserve(out, 1 << 16, err);
    if (s != LM_OK) break;
    ssize_t n = read(fd, out->data + out->size, out->capacity - out->size - 1);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) s = fail_errno(err, "read", path);
    if (n <= 0) break;
    out->size += (size_t)n;
  }
  if (out->data != NULL) out->data[out->size] = '\0';
  close(fd);
  return s;
}

lm_status lm_pwrite_all(int fd, const char *path, const void *bytes, size_t n, off_t at, lm_error *err)
{
  const char *p = bytes;
  while (n > 0) {
    ssize_t done = pwrite(fd, p, n < TRANSFER_MAX ? n : TRANSFER_MAX, at);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return fail_errno(err, "write", path);
    p += done;
    at += done;
    n -= (size_t)done;
  }
  return LM_OK;
}

lm_status lm_pread_all(int fd, const char *path, void *bytes, size_t n, off_t at, lm_error *err)
{
  char *p = bytes;
  while (n > 0) {
    ssize_t done = pread(fd, p, n < TRANSFER_MAX ? n : TRANSFER_MAX, at);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return fail_errno(err, "read", path);
    if (done == 0)
      return lm_fail(err, LM_EDAMAGED, "%s: ends at byte %lld, %zu bytes too early", path, (long long)at, n);
    p += done;
    at += done;
    n -= (size_t)done;
  }
  return LM_OK;
}

static lm_status sync_folder_of(const char *path, lm_error *err)
{
  char folder[PATH_MAX];
  snprintf(folder, sizeof folder, "%s", path);
  char *slash = strrchr(folder, '/');
  if (slash == NULL)
    strcpy(folder, ".");
  else
    slash[slash == folder] = '\0'; /* "/x" lies in "/" */
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return fail_errno(err, "open the folder", folder);
  /* Some network file systems refuse to fsync a folder; then the rename is as durable as they make it. */
  lm_status s = fsync(fd) != 0 && errno != EINVAL ? fail_errno(err, "fsync the folder", folder) : LM_OK;
  close(fd);
  return s;
}

lm_status lm_file_commit(const char *from, const char *to, lm_error *err)
{
  if (rename(from, to) != 0) return fail_errno(err, "rename to its final name", from);
  return sync_folder_of(to, err);
}

lm_status lm_file_replace(const char *path, const void *bytes, size_t n, lm_error *err)
{
  char part[PATH_MAX];
  if ((size_t)snprintf(part, sizeof part, "%s.part", path) >= sizeof part)
    return lm_fail(err, LM_EINVAL, "%s: the path is too long", path);
  int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return fail_errno(err, "open for writing", part);
  lm_status s = lm_pwrite_all(fd, part, bytes, n, 0, err);
  if (s == LM_OK && fsync(fd) != 0) s = fail_errno(err, "fsync", part);
  if (close(fd) != 0 && s == LM_OK) s = fail_errno(err, "close", part);
  if (s == LM_OK) s = lm_file_commit(part, path, err);
  if (s != LM_OK) unlink(part);
  return s;
}

lm_status lm_folder_make(const char *path, lm_error *err)
{
  char p[PATH_MAX];
  if (*path == '\0' || (size_t)snprintf(p, sizeof p, "%s", path) >= sizeof p)
    return lm_fail(err, LM_EINVAL, "'%s' cannot be a folder's path", path);
  for (char *c = p + 1;; c++) {
    if (*c != '/' && *c != '\0') continue;
    char keep = *c;
    *c = '\0';
    if (mkdir(p, 0777) != 0 && errno != EEXIST) return fail_errno(err, "make the folder", p);
    *c = keep;
    if (keep == '\0') break;
  }
  struct stat st;
  if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
    return lm_fail(err, LM_EINVAL, "%s: is not a folder, a folder was wanted", path);
  return LM_OK;
}

bool lm_file_exists(const char *path)
{
  return access(path, F_OK) == 0;
}
