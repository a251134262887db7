/* src/checkpoint/folder.c - a run folder: names, what is in it, taking it into use. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/folder.h"

#include "base/file.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- names ---- */

lm_status lm_checkpoint_path(char *out, const char *run, const char *name, lm_error *err)
{
  if ((size_t)snprintf(out, PATH_MAX, "%s/checkpoints%s%s", run, *name != '\0' ? "/" : "", name) < PATH_MAX)
    return LM_OK;
  return lm_fail(err, LM_EINVAL, "%s: the path is too long for a run folder", run);
}

void lm_checkpoint_name(char out[64], uint64_t step)
{
  snprintf(out, 64, "step-%08" PRIu64 ".h5", step);
}

/* The number in "step-00001000.h5"; a name that we would not write is not a checkpoint's. */
static bool step_of(const char *name, uint64_t *step)
{
  char ours[64];
  if (sscanf(name, "step-%" SCNu64, step) != 1) return false;
  lm_checkpoint_name(ours, *step);
  return strcmp(ours, name) == 0;
}

static bool is_leftover(const char *name)
{
  size_t n = strlen(name);
  return strncmp(name, ".step-", 6) == 0 && n > 5 && strcmp(name + n - 5, ".part") == 0;
}

lm_status lm_checkpoint_fail(lm_error *err, lm_status s, const char *what, const char *path)
{
  return lm_fail(err, s, "%s: cannot %s: %s", path, what, strerror(errno));
}

/* ---- what there is ---- */

static int by_step(const void *a, const void *b)
{
  const lm_checkpoint *x = a, *y = b;
  return (x->step > y->step) - (x->step < y->step);
}

lm_status lm_checkpoint_find(const char *run, lm_checkpoint **out, size_t *n, lm_error *err)
{
  char folder[PATH_MAX];
  lm_buffer found = {0};
  struct dirent *d;
  uint64_t step;
  *out = NULL;
  *n = 0;
  LM_TRY(lm_checkpoint_path(folder, run, "", err));
  DIR *dir = opendir(folder);
  if (dir == NULL && errno == ENOENT) return LM_OK;
  if (dir == NULL) return lm_checkpoint_fail(err, LM_EIO, "read the folder", folder);
  lm_status s = LM_OK;
  while (s == LM_OK && (errno = 0, d = readdir(dir)) != NULL) {
    if (!step_of(d->d_name, &step)) continue;
    lm_checkpoint c = {.step = step};
    struct stat st;
    s = lm_checkpoint_path(c.path, run, d->d_name, err);
    if (stat(c.path, &st) == 0) c.bytes = (uint64_t)st.st_size;
    if (s == LM_OK) s = lm_buffer_append(&found, &c, sizeof c, err);
  }
  if (s == LM_OK && errno != 0) s = lm_checkpoint_fail(err, LM_EIO, "read the folder", folder);
  closedir(dir);
  if (s != LM_OK) {
    lm_buffer_free(&found);
    return s;
  }
  *out = (lm_checkpoint *)(void *)found.data;
  *n = found.size / sizeof **out;
  if (*n > 0) qsort(*out, *n, sizeof **out, by_step);
  return LM_OK;
}

void lm_checkpoint_inspect(lm_checkpoint *c)
{
  lm_state_entry *entries;
  size_t n;
  lm_error why;
  c->complete = lm_state_list(c->path, &entries, &n, &why) == LM_OK;
  free(entries);
  if (!c->complete) snprintf(c->reason, sizeof c->reason, "%.*s", (int)sizeof c->reason - 1, why.text);
}

lm_status lm_checkpoint_scan(const char *run, lm_checkpoint **out, size_t *n, lm_error *err)
{
  LM_TRY(lm_checkpoint_find(run, out, n, err));
  for (size_t i = 0; i < *n; i++) lm_checkpoint_inspect(&(*out)[i]);
  return LM_OK;
}

/* ---- taking a run folder into use ---- */

static lm_status remove_leftovers(const char *folder, lm_error *err)
{
  struct dirent *d;
  char path[PATH_MAX + 256];
  DIR *dir = opendir(folder);
  if (dir == NULL) return lm_checkpoint_fail(err, LM_EINVAL, "read the folder", folder);
  while ((d = readdir(dir)) != NULL) {
    if (!is_leftover(d->d_name)) continue;
    snprintf(path, sizeof path, "%s/%s", folder, d->d_name);
    if (unlink(path) == 0)
      lm_info("removed %s, left by a save that was killed", path);
    else
      lm_warn("%s: cannot remove what a killed save left: %s", path, strerror(errno));
  }
  closedir(dir);
  return LM_OK;
}

/* The parent of an absolute path must be there: where it is not, a file system is not mounted or the path is wrong, and
 * making it would fill the wrong disk. */
static lm_status make_folders(const char *run, const char *folder, lm_error *err)
{
  char parent[PATH_MAX];
  struct stat st;
  snprintf(parent, sizeof parent, "%s", run);
  size_t n = strlen(parent);
  while (n > 1 && parent[n - 1] == '/') parent[--n] = '\0';
  char *slash = strrchr(parent, '/');
  if (run[0] == '/' && slash != parent) {
    *slash = '\0';
    if (stat(parent, &st) != 0)
      return lm_checkpoint_fail(err, LM_EINVAL, "find the folder that the run folder goes into", parent);
  }
  return lm_folder_make(folder, err);
}

lm_status lm_checkpoint_make_run(const char *run, lm_error *err)
{
  return make_folders(run, run, err);
}

/* Run a program, its words to nowhere. @return its exit code; 126, 127: there is none of that name for us */
static int run_program(char *const words[])
{
  extern char **environ;
  pid_t pid;
  int status;
  posix_spawn_file_actions_t files;
  if (posix_spawn_file_actions_init(&files) != 0) return 127;
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  int failed = posix_spawnp(&pid, words[0], &files, NULL, words, environ);
  posix_spawn_file_actions_destroy(&files);
  if (failed != 0) return 127;
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return 127;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* Files inherit what their folder has, so this is before the first of them. A file system that is not Lustre refuses.
 */
static void stripe(const char *folder, int stripes)
{
  char count[16], path[PATH_MAX];
  snprintf(count, sizeof count, "%d", stripes);
  snprintf(path, sizeof path, "%s", folder);
  int code = run_program((char *[]){"timeout", "30", "lfs", "setstripe", "-c", count, path, NULL});
  if (code == 0) lm_info("%s: files get %d stripes (lfs setstripe)", folder, stripes);
  if (code != 0 && code != 126 && code != 127)
    lm_info("%s: lfs setstripe -c %d fails: files get what is inherited", folder, stripes);
}

static lm_status prepare_rank0(const char *run, const char *folder, const char *probe, double lock_timeout, int stripes,
                               lm_run_lock **lock, lm_error *err)
{
  bool is_new = !lm_file_exists(folder);
  LM_TRY(make_folders(run, folder, err));
  if (is_new && stripes != 0) stripe(folder, stripes);
  LM_TRY(lm_run_lock_take(lock, run, lock_timeout, err));
  LM_TRY(remove_leftovers(folder, err));
  int fd = open(probe, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return lm_checkpoint_fail(err, LM_EINVAL, "make a file in the folder for checkpoints", probe);
  lm_status s = lm_pwrite_all(fd, probe, "test\n", 5, 0, err);
  if (close(fd) != 0 && s == LM_OK) s = lm_checkpoint_fail(err, LM_EINVAL, "close", probe);
  return s;
}

/* Every rank writes to the file that rank 0 makes. */
static lm_status open_probe(const char *folder, const char *probe, lm_error *err)
{
  int fd = open(probe, O_WRONLY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT)
    return lm_fail(err, LM_EINVAL,
                   "%s: is not the folder that rank 0 sees: it must be on a file system that all nodes share", folder);
  if (fd < 0) return lm_checkpoint_fail(err, LM_EINVAL, "open a file of rank 0 for writing", probe);
  close(fd);
  return LM_OK;
}

lm_status lm_checkpoint_prepare(const lm_comm *comm, const char *run, double lock_timeout, int stripes,
                                lm_run_lock **lock, lm_error *err)
{
  *lock = NULL;
  char folder[PATH_MAX], probe[PATH_MAX] = "";
  lm_status s = lm_checkpoint_path(folder, run, "", err);
  if (s == LM_OK) s = lm_checkpoint_path(probe, run, ".step-test.part", err);
  if (s == LM_OK && comm->rank == 0 && prepare_rank0(run, folder, probe, lock_timeout, stripes, lock, err) != LM_OK) {
    s = LM_EINVAL; /* the user's to mend, whatever the system says: no step has been made yet */
    if (err != NULL) err->status = s;
  }
  s = lm_agree(comm, s, err);
  if (s == LM_OK) s = lm_agree(comm, open_probe(folder, probe, err), err);
  if (*lock != NULL) unlink(probe);
  if (s != LM_OK) {
    lm_run_lock_release(*lock);
    *lock = NULL;
  }
  return s;
}
