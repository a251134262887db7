/* hdf5/state_room.c - how many bytes a state takes, and whether there is room for them. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "hdf5/state_layout.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <linux/quota.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* HDF5's own bytes, generously: an object header, a link and a name for each tensor. The lists of tensors and slabs may
 * be aligned as tensors are. */
uint64_t lm_state_bytes_around(uint64_t sum, size_t n, uint64_t n_slabs, size_t align)
{
  return sum + 2 * align + n_slabs * sizeof(lm_state_slab) + n * (LM_STATE_NAME + 1024) + (1 << 14);
}

size_t lm_state_aligned_from(size_t align)
{
  return align > 1 ? 4 * align : SIZE_MAX; /* so that what is left free is a fraction of the tensor */
}

uint64_t lm_state_bytes_of(lm_dtype dtype, int ndim, const size_t *shape, size_t align)
{
  uint64_t bytes = lm_state_elements(ndim, shape) * lm_dtype_size(dtype);
  return bytes >= lm_state_aligned_from(align) ? bytes + align - 1 : bytes;
}

uint64_t lm_state_bytes(const lm_state_slice *slices, size_t n, int ranks, size_t align)
{
  uint64_t sum = 0, slabs = 0;
  for (size_t i = 0; i < n; i++) {
    uint64_t bytes = lm_state_bytes_of(slices[i].dtype, slices[i].ndim, slices[i].shape, align);
    sum += bytes;
    slabs += bytes / LM_STATE_SLAB_BYTES + 1;
  }
  return lm_state_bytes_around(sum, n, slabs + (uint64_t)ranks * n, align);
}

static lm_status fail_errno(lm_error *err, const char *what, const char *path)
{
  return lm_fail(err, LM_EIO, "%s: cannot %s: %s", path, what, strerror(errno));
}

lm_status lm_state_room_limit(const char *path, uint64_t bytes, lm_error *err)
{
  struct rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes) return LM_OK;
  return lm_fail(err, LM_EIO, "%s: %s: up to %" PRIu64 " bytes are needed, ulimit -f allows %" PRIu64, path,
                 strerror(EFBIG), bytes, (uint64_t)limit.rlim_cur);
}

/* Bytes that the quota of a user or group leaves in a folder; UINT64_MAX where there is none, or nobody who tells. */
static uint64_t quota_left(int folder, int type, unsigned id)
{
#ifdef SYS_quotactl_fd
  struct if_dqblk q = {0};
  unsigned get = (unsigned)Q_GETQUOTA << SUBCMDSHIFT | (unsigned)type;
  if (syscall(SYS_quotactl_fd, folder, get, id, &q) != 0) return UINT64_MAX;
  uint64_t hard = q.dqb_bhardlimit * QIF_DQBLKSIZE, soft = q.dqb_bsoftlimit * QIF_DQBLKSIZE;
  bool late = soft > 0 && q.dqb_curspace > soft && q.dqb_btime > 0 && (time_t)q.dqb_btime <= time(NULL);
  uint64_t limit = late ? soft : hard; /* after its grace period the soft limit is a hard one */
  if (limit == 0) return UINT64_MAX;
  return limit > q.dqb_curspace ? limit - q.dqb_curspace : 0;
#else
  (void)folder, (void)type, (void)id;
  return UINT64_MAX;
#endif
}

static lm_status ask_quota(const char *path, const char *folder, uint64_t bytes, lm_error *err)
{
  struct stat st;
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &st) != 0) { /* who may write there may not always read: the reservation will tell */
    if (fd >= 0) close(fd);
    return LM_OK;
  }
  unsigned ids[2] = {geteuid(), st.st_mode & S_ISGID ? st.st_gid : getegid()};
  uint64_t user = quota_left(fd, USRQUOTA, ids[0]), group = quota_left(fd, GRPQUOTA, ids[1]);
  close(fd);
  bool of_user = user <= group;
  uint64_t left = of_user ? user : group;
  if (left >= bytes) return LM_OK;
  return lm_fail(err, LM_EIO, "%s: %s: %" PRIu64 " bytes are needed, the quota of %s %u leaves %" PRIu64, path,
                 strerror(EDQUOT), bytes, of_user ? "user" : "group", ids[!of_user], left);
}

/* Root is above quotas and what is kept free for it. */
lm_status lm_state_room_ask(const char *path, uint64_t bytes, lm_error *err)
{
  char copy[PATH_MAX];
  struct statvfs v;
  bool root = geteuid() == 0;
  LM_TRY(lm_state_room_limit(path, bytes, err));
  snprintf(copy, sizeof copy, "%s", path);
  const char *folder = dirname(copy);
  if (statvfs(folder, &v) != 0) return fail_errno(err, "ask for the free space", path);
  uint64_t have = (uint64_t)(root ? v.f_bfree : v.f_bavail) * v.f_frsize;
  if (v.f_blocks > 0 && have < bytes) /* some file systems do not tell: 0 of 0 */
    return lm_fail(err, LM_EIO, "%s: %s: %" PRIu64 " bytes are needed, %" PRIu64 " are free", path, strerror(ENOSPC),
                   bytes, have);
  return root ? LM_OK : ask_quota(path, folder, bytes, err);
}

lm_status lm_state_room_take(int fd, const char *path, uint64_t bytes, lm_error *err)
{
  int done;
  if (ftruncate(fd, (off_t)bytes) != 0) return fail_errno(err, "make it as long as needed", path);
  do done = fallocate(fd, 0, 0, (off_t)bytes);
  while (done != 0 && errno == EINTR);
  if (done != 0 && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)
    return fail_errno(err, "reserve its space", path);
  return LM_OK;
}

static lm_status new_file(const char *path, int *fd, lm_error *err)
{
  *fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  int e = errno;
  if (*fd >= 0) return LM_OK;
  return lm_fail(err, e == ENOENT || e == ENOTDIR ? LM_EINVAL : LM_EIO, "%s: cannot open for writing: %s", path,
                 strerror(e));
}

lm_status lm_state_room_new(const char *path, uint64_t bytes, lm_error *err)
{
  int fd;
  LM_TRY(new_file(path, &fd, err));
  if (close(fd) != 0) return fail_errno(err, "close", path);
  return lm_state_room_ask(path, bytes, err);
}

lm_status lm_state_room(const char *path, uint64_t bytes, lm_error *err)
{
  int fd;
  LM_TRY(lm_state_room_ask(path, bytes, err));
  LM_TRY(new_file(path, &fd, err));
  lm_status s = lm_state_room_take(fd, path, bytes, err);
  close(fd);
  unlink(path);
  return s;
}
