/* tests/checkpoint/fault_shim.c - preloaded: the Nth call that touches a checkpoint file fails. */
/* SPDX-License-Identifier: BSD-3-Clause */
/* FAULT_CALL names write, fsync, rename, unlink, close, link or fallocate; FAULT_N counts from 1; FAULT_ERRNO is a
 * number. FAULT_SHORT=1 lets a write do half of its bytes instead, again and again. FAULT_COUNT names a file that gets
 * a byte for each call that was counted: so the test knows how many there are. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/quota.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static long calls;

/* Only what happens to files in a folder named checkpoints. */
static bool is_ours(const char *path)
{
  return path != NULL && strstr(path, "checkpoints") != NULL;
}

static bool is_open_on_ours(int fd)
{
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 1);
  if (n < 0) return false;
  path[n] = '\0';
  return is_ours(path);
}

static void count(void)
{
  const char *path = getenv("FAULT_COUNT");
  if (path == NULL) return;
  FILE *f = fopen(path, "a");
  if (f != NULL) fputc('x', f), fclose(f);
}

static bool fails(const char *call)
{
  const char *wanted = getenv("FAULT_CALL"), *n = getenv("FAULT_N"), *number = getenv("FAULT_ERRNO");
  if (wanted == NULL || strcmp(wanted, call) != 0) return false;
  long now = __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
  count();
  if (n == NULL || now != atol(n)) return false;
  errno = number != NULL ? atoi(number) : EIO;
  return true;
}

#define REAL(result, name, ...) ((result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
  if (is_open_on_ours(fd) && fails("write")) return -1;
  if (getenv("FAULT_SHORT") != NULL && n > 1 && is_open_on_ours(fd)) n /= 2;
  return REAL(ssize_t, "pwrite", int, const void *, size_t, off_t)(fd, bytes, n, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t n, off_t at)
{
  return pwrite(fd, bytes, n, at);
}

/* FAULT_CORRUPT=1: what is read of a checkpoint file is not what is there. */
ssize_t pread(int fd, void *bytes, size_t n, off_t at)
{
  ssize_t got = REAL(ssize_t, "pread", int, void *, size_t, off_t)(fd, bytes, n, at);
  if (got > 0 && getenv("FAULT_CORRUPT") != NULL && is_open_on_ours(fd)) ((char *)bytes)[got - 1] ^= 1;
  return got;
}

ssize_t pread64(int fd, void *bytes, size_t n, off_t at)
{
  return pread(fd, bytes, n, at);
}

/* MPI-IO writes so. */
ssize_t pwritev(int fd, const struct iovec *runs, int n, off_t at)
{
  if (is_open_on_ours(fd) && fails("write")) return -1;
  return REAL(ssize_t, "pwritev", int, const struct iovec *, int, off_t)(fd, runs, n, at);
}

ssize_t writev(int fd, const struct iovec *runs, int n)
{
  if (is_open_on_ours(fd) && fails("write")) return -1;
  return REAL(ssize_t, "writev", int, const struct iovec *, int)(fd, runs, n);
}

int fsync(int fd)
{
  if (is_open_on_ours(fd) && fails("fsync")) return -1;
  return REAL(int, "fsync", int)(fd);
}

/* What was only read loses nothing when its close fails; HDF5 1.10 crashes at exit then. */
int close(int fd)
{
  bool written = (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY,
       failing = written && is_open_on_ours(fd) && fails("close");
  int error = errno, done = REAL(int, "close", int)(fd); /* the descriptor is gone all the same, as on Linux */
  if (!failing) return done;
  errno = error;
  return -1;
}

int fallocate(int fd, int mode, off_t at, off_t n)
{
  if (is_open_on_ours(fd) && fails("fallocate")) return -1;
  return REAL(int, "fallocate", int, int, off_t, off_t)(fd, mode, at, n);
}

/* FAULT_QUOTA=KIB: the user has a quota of so much, and a tenth of it is used; FAULT_GROUP: it is the group's. */
long syscall(long number, ...)
{
  va_list args;
  long a[6];
  va_start(args, number);
  for (int i = 0; i < 6; i++) a[i] = va_arg(args, long);
  va_end(args);
  const char *kib = getenv("FAULT_QUOTA");
  if (number != SYS_quotactl_fd || kib == NULL)
    return REAL(long, "syscall", long, ...)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  unsigned type = getenv("FAULT_GROUP") != NULL ? GRPQUOTA : USRQUOTA;
  errno = ESRCH;
  if ((unsigned)a[1] != ((unsigned)Q_GETQUOTA << SUBCMDSHIFT | type) ||
      (unsigned)a[2] != (type == USRQUOTA ? geteuid() : getegid()))
    return -1;
  uint64_t limit = strtoull(kib, NULL, 10);
  *(struct if_dqblk *)a[3] = (struct if_dqblk){.dqb_bhardlimit = limit, .dqb_curspace = limit * 1024 / 10};
  return 0;
}

int rename(const char *from, const char *to)
{
  if (is_ours(to) && fails("rename")) return -1;
  return REAL(int, "rename", const char *, const char *)(from, to);
}

int unlink(const char *path)
{
  if (is_ours(path) && fails("unlink")) return -1;
  return REAL(int, "unlink", const char *)(path);
}

int link(const char *from, const char *to)
{
  if (is_ours(to) && fails("link")) return -1;
  return REAL(int, "link", const char *, const char *)(from, to);
}
