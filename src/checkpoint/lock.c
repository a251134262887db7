/* src/checkpoint/lock.c - a run folder is owned by one job at a time. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/lock.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "slurm/job.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_BYTES = 512 }; /* the file's whole content, so that one write replaces it */

/* Who owns a run folder. All zeros: nobody. */
struct owner {
  char host[64], job[64]; /* job "none": outside of Slurm */
  int64_t pid, start;     /* start: of the process, in ticks since the host's boot: a pid alone comes again */
  int64_t restarts;       /* of the job */
  int64_t beat;
};

struct lm_run_lock {
  char path[PATH_MAX];
  int fd;
  double timeout;
  struct owner me;
  pthread_t heart;
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  bool beats, ends;
};

/* ---- processes ---- */

static struct owner myself(void)
{
  struct owner o = {.pid = getpid(), .restarts = lm_slurm_restarts()};
  const char *job = lm_slurm_job_id();
  gethostname(o.host, sizeof o.host - 1);
  o.start = lm_process_start(o.pid);
  snprintf(o.job, sizeof o.job, "%s", job != NULL ? job : "none");
  return o;
}

static bool same_process(const struct owner *a, const struct owner *b)
{
  return strcmp(a->host, b->host) == 0 && a->pid == b->pid && a->start == b->start;
}

/* ---- the file ---- */

static void say_owner(const struct owner *o, char out[256])
{
  snprintf(out, 256, "host %s, process %" PRId64 ", Slurm job %s", o->host, o->pid, o->job);
}

static lm_status write_owner(int fd, const char *path, const struct owner *o, lm_error *err)
{
  char text[LOCK_BYTES + 1];
  int n =
      snprintf(text, sizeof text,
               "host: %s\npid: %" PRId64 "\nstart: %" PRId64 "\njob: %s\nrestarts: %" PRId64 "\nbeat: %" PRId64 "\n",
               o->host, o->pid, o->start, o->job, o->restarts, o->beat);
  memset(text + n, '\n', (size_t)(LOCK_BYTES - n));
  return lm_pwrite_all(fd, path, text, LOCK_BYTES, 0, err);
}

/* Opened again each time: network file systems look for news when a file is opened. What is not ours is nobody's. */
static struct owner read_owner(const char *path)
{
  lm_buffer text = {0};
  struct owner o = {0};
  if (lm_file_read(path, &text, NULL) != LM_OK || text.size == 0 ||
      sscanf(text.data, "host: %63s pid: %" SCNd64 " start: %" SCNd64 " job: %63s restarts: %" SCNd64 " beat: %" SCNd64,
             o.host, &o.pid, &o.start, o.job, &o.restarts, &o.beat) != 6)
    o = (struct owner){0};
  lm_buffer_free(&text);
  return o;
}

/* ---- is the owner gone? ---- */

static void sleep_for(double seconds)
{
  struct timespec t = {.tv_sec = (time_t)seconds, .tv_nsec = (long)(1e9 * (seconds - (double)(time_t)seconds))};
  nanosleep(&t, NULL);
}

/* Does the count of an owner on another host stand still? Clocks of two hosts may differ; that something changes is
 * seen by any clock. */
static bool stands_still(const lm_run_lock *l, const struct owner *o)
{
  char who[256];
  say_owner(o, who);
  lm_info("%s: belongs to %s: waiting up to %g s for a sign of life", l->path, who, l->timeout);
  for (double end = lm_clock() + l->timeout; lm_clock() < end;) {
    sleep_for(l->timeout / 20);
    struct owner now = read_owner(l->path);
    if (memcmp(&now, o, sizeof now) != 0) return now.pid == 0;
  }
  return true;
}

/* Slurm requeues a job when its processes, or its nodes, are gone. */
static bool was_requeued(const lm_run_lock *l, const struct owner *o)
{
  return strcmp(o->job, "none") != 0 && strcmp(o->job, l->me.job) == 0 && o->restarts < l->me.restarts;
}

static bool is_gone(const lm_run_lock *l, const struct owner *o)
{
  if (strcmp(o->host, l->me.host) == 0) return lm_process_start(o->pid) != o->start;
  return was_requeued(l, o) || stands_still(l, o);
}

/* ---- taking it ---- */

/* @return false: another process has the file system's lock; *works false: this file system has none */
static bool lock_file(int fd, bool *works)
{
  struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  *works = true;
  if (fcntl(fd, F_OFD_SETLK, &whole) == 0) return true;
  *works = errno == EAGAIN || errno == EACCES;
  return !*works;
}

/* A process that is being ended gives its locks back a moment later than its name. */
static bool lock_soon(const lm_run_lock *l, bool *works)
{
  for (int i = 0; i < 40; i++) {
    if (lock_file(l->fd, works)) return true;
    struct owner o = read_owner(l->path);
    if (o.pid == 0 || strcmp(o.host, l->me.host) != 0 || lm_process_start(o.pid) == o.start) return false;
    sleep_for(0.1);
  }
  return false;
}

static lm_status refuse(const lm_run_lock *l, const struct owner *o, lm_error *err)
{
  char who[256];
  say_owner(o, who);
  return lm_fail(err, LM_EINVAL, "%s: the run folder is in use by %s; want a folder of its own for each job", l->path,
                 o->pid != 0 ? who : "another process");
}

static lm_status take(lm_run_lock *l, lm_error *err)
{
  bool works;
  char who[256];
  bool locked = lock_soon(l, &works);
  struct owner o = read_owner(l->path);
  bool other = o.pid != 0 && !same_process(&o, &l->me);
  say_owner(&o, who);
  /* A lock that is held says that the owner lives, but for one that a lost node of this very job left behind. */
  if (!locked && (strcmp(o.host, l->me.host) == 0 || !was_requeued(l, &o))) return refuse(l, &o, err);
  if (other && !is_gone(l, &o)) return refuse(l, &o, err);
  if (other) lm_warn("%s: left by %s, which is gone: taken over", l->path, who);
  LM_TRY(write_owner(l->fd, l->path, &l->me, err));
  if (works && locked) return LM_OK;
  sleep_for(1); /* two that begin at once: the later one has it */
  return lm_run_lock_check(l, err);
}

/* ---- the sign of life ---- */

static void *beat(void *lock)
{
  lm_run_lock *l = lock;
  pthread_mutex_lock(&l->mutex);
  while (!l->ends) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += (time_t)(l->timeout / 3);
    at.tv_nsec += (long)(1e9 * (l->timeout / 3 - (double)(time_t)(l->timeout / 3)));
    if (at.tv_nsec >= 1000000000) at.tv_sec++, at.tv_nsec -= 1000000000;
    if (pthread_cond_timedwait(&l->wake, &l->mutex, &at) != ETIMEDOUT) continue;
    struct owner now = read_owner(l->path);
    l->me.beat++;
    lm_error ignored; /* a beat that is missed is made up for by the next */
    if (same_process(&now, &l->me) && write_owner(l->fd, l->path, &l->me, &ignored) != LM_OK) continue;
  }
  pthread_mutex_unlock(&l->mutex);
  return NULL;
}

static void start_heart(lm_run_lock *l)
{
  pthread_condattr_t monotonic;
  sigset_t all, before;
  pthread_mutex_init(&l->mutex, NULL);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&l->wake, &monotonic);
  pthread_condattr_destroy(&monotonic);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  l->beats = pthread_create(&l->heart, NULL, beat, l) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void stop_heart(lm_run_lock *l)
{
  if (l->beats) {
    pthread_mutex_lock(&l->mutex);
    l->ends = true;
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->mutex);
    pthread_join(l->heart, NULL);
  }
  pthread_cond_destroy(&l->wake);
  pthread_mutex_destroy(&l->mutex);
}

lm_status lm_run_lock_take(lm_run_lock **out, const char *run, double timeout, lm_error *err)
{
  lm_run_lock *l;
  *out = NULL;
  LM_TRY(lm_alloc(&l, 1, sizeof *l, "the lock of the run folder", err));
  l->timeout = timeout;
  l->me = myself();
  snprintf(l->path, sizeof l->path, "%s/.lock", run);
  l->fd = open(l->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  lm_status s =
      l->fd >= 0 ? take(l, err) : lm_fail(err, LM_EINVAL, "%s: cannot open for writing: %s", l->path, strerror(errno));
  if (s != LM_OK) {
    if (l->fd >= 0) close(l->fd);
    free(l);
    return s;
  }
  start_heart(l);
  *out = l;
  return LM_OK;
}

lm_status lm_run_lock_check(lm_run_lock *l, lm_error *err)
{
  char who[256];
  struct owner now = read_owner(l->path);
  if (same_process(&now, &l->me)) return LM_OK;
  say_owner(&now, who);
  return lm_fail(err, LM_EPEER, "%s: the run folder was taken over by %s: nothing more is written", l->path,
                 now.pid != 0 ? who : "somebody who left no name");
}

/* The file stays, empty: removing it could remove the lock of who comes next. */
void lm_run_lock_release(lm_run_lock *l)
{
  lm_error why;
  if (l == NULL) return;
  stop_heart(l);
  if (lm_run_lock_check(l, &why) == LM_OK && ftruncate(l->fd, 0) != 0)
    lm_warn("%s: cannot be emptied: %s", l->path, strerror(errno));
  close(l->fd);
  free(l);
}
