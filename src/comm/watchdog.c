/* src/comm/watchdog.c - a rank that never arrives is named, and the job ends instead of waiting for ever. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/watchdog.h"

#include "base/memory.h"
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A rank, as its neighbour on the node knows it. */
struct neighbour {
  char host[64];
  int rank;
  int64_t pid, start; /* lm_process_start(); 0: nobody is looked after */
};

struct lm_watchdog {
  int rank, size;
  char host[64];
  char folder[PATH_MAX - 64];
  double timeout, interval; /* seconds; between two looks */
  pthread_t thread;
  pthread_mutex_t lock; /* of all below */
  pthread_cond_t ended;
  bool end;
  uint64_t step;
  const char *phase;
  double age; /* seconds that this process was running in the phase */
  bool noted;
  struct neighbour next;
  int missed;                   /* looks in a row at which it was not there */
  const lm_device_comm *device; /* NULL: none */
};

static const double LOOKS = 0.1; /* seconds from one look to the next: launchers kill a second after they saw a death */

static void path_of_note(const lm_watchdog *w, int rank, char out[PATH_MAX])
{
  snprintf(out, PATH_MAX, "%s/.watchdog-%d", w->folder, rank);
}

static void path_of_verdict(const lm_watchdog *w, char out[PATH_MAX])
{
  snprintf(out, PATH_MAX, "%s/.watchdog-verdict", w->folder);
}

/* What another rank left: "host step phase". @return false: no note, so it is neither stuck nor waiting, or is stopped
 */
static bool read_note(const lm_watchdog *w, int rank, char host[64], uint64_t *step, char phase[64])
{
  char path[PATH_MAX];
  path_of_note(w, rank, path);
  FILE *f = fopen(path, "r");
  if (f == NULL) return false;
  bool whole = fscanf(f, "%63s %" SCNu64 " %63[^\n]", host, step, phase) == 3;
  fclose(f);
  return whole;
}

/* A failure to write it is not told: the verdict then says that this rank gave no sign, which is true. */
static void write_note(const lm_watchdog *w)
{
  char path[PATH_MAX], text[256];
  path_of_note(w, w->rank, path);
  int n = snprintf(text, sizeof text, "%s %" PRIu64 " %s\n", w->host, w->step, w->phase);
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return;
  if (write(fd, text, (size_t)n) != n) unlink(path);
  close(fd);
}

static void remove_note(const lm_watchdog *w)
{
  char path[PATH_MAX];
  path_of_note(w, w->rank, path);
  unlink(path);
}

/* The ranks that are not where this one is: they are what it waits for. At most a few are named. */
static int name_others(const lm_watchdog *w, char *out, size_t n)
{
  int others = 0;
  size_t used = 0;
  out[0] = '\0';
  for (int rank = 0; rank < w->size; rank++) {
    char host[64] = "", phase[64] = "";
    uint64_t step = 0;
    bool noted = read_note(w, rank, host, &step, phase);
    if (rank == w->rank || (noted && step == w->step && strcmp(phase, w->phase) == 0)) continue;
    if (others++ >= 8 || used + 1 >= n) continue;
    int m = noted ? snprintf(out + used, n - used, "%srank %d on %s is in '%s' of step %" PRIu64,
                             others > 1 ? ", " : "", rank, host, phase, step)
                  : snprintf(out + used, n - used, "%srank %d gives no sign", others > 1 ? ", " : "", rank);
    used = m < 0 ? used : used + (size_t)m;
  }
  return others;
}

/* One rank speaks for all: whoever makes the file. */
static bool speaks(const lm_watchdog *w)
{
  char path[PATH_MAX];
  path_of_verdict(w, path);
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return errno != EEXIST;
  close(fd);
  return true;
}

/* The launcher ends the job when it sees a death; a second later this rank helps it. */
static _Noreturn void mourn(const lm_watchdog *w)
{
  if (speaks(w)) {
    fprintf(stderr,
            "mpilm: [rank %d %s] step %" PRIu64 ", '%s': rank %d on %s, process %" PRId64
            ", has died; ending the job\n",
            w->rank, w->host, w->step, w->phase, w->next.rank, w->next.host, w->next.pid);
    fflush(stderr);
  }
  nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
  _exit(1);
}

/* Two looks: whatever went wrong with the first is not held against it. */
static void look_after(lm_watchdog *w)
{
  if (w->next.start == 0) return;
  w->missed = lm_process_start(w->next.pid) == w->next.start ? 0 : w->missed + 1;
  if (w->missed == 2) mourn(w);
}

/* The others leave the one that speaks the time to do so. */
static _Noreturn void give_up(const lm_watchdog *w)
{
  char others[768];
  if (speaks(w)) {
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL); /* notes that are being written now */
    int n = name_others(w, others, sizeof others);
    fprintf(
        stderr,
        "mpilm: [rank %d %s] step %" PRIu64 ", '%s': no end after %.0f s (run.hang_timeout); %s%s; ending the job\n",
        w->rank, w->host, w->step, w->phase, w->age, n > 0 ? others : "all ranks are in it", n > 8 ? ", and more" : "");
    fflush(stderr);
  } else {
    nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
  }
  _exit(1);
}

/* A collective on devices has failed: nobody would hear of it but by waiting. */
static void look_at_device(const lm_watchdog *w)
{
  lm_error err;
  if (w->device == NULL || w->device->fabric->poll(w->device->group, &err) == LM_OK) return;
  fprintf(stderr, "mpilm: [rank %d %s] step %" PRIu64 ", '%s': %s; ending the job\n", w->rank, w->host, w->step,
          w->phase, err.text);
  fflush(stderr);
  _exit(1);
}

static void *watch(void *arg)
{
  lm_watchdog *w = arg;
  pthread_mutex_lock(&w->lock);
  while (!w->end) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    double at = (double)until.tv_nsec * 1e-9 + w->interval;
    until.tv_sec += (time_t)at;
    until.tv_nsec = (long)((at - (double)(time_t)at) * 1e9);
    if (pthread_cond_timedwait(&w->ended, &w->lock, &until) != ETIMEDOUT) continue;
    w->age += w->interval; /* not the clock's difference: a stopped process does not age */
    if (w->age >= w->timeout / 2 && !w->noted) {
      write_note(w);
      w->noted = true;
    }
    if (w->age >= w->timeout) give_up(w);
    look_after(w);
    look_at_device(w);
  }
  pthread_mutex_unlock(&w->lock);
  return NULL;
}

lm_status lm_watchdog_start(lm_watchdog **out, const lm_comm *comm, const char *folder, double timeout, lm_error *err)
{
  *out = NULL;
  if (timeout <= 0) return LM_OK;
  if (strlen(folder) >= sizeof(*out)->folder)
    return lm_fail(err, LM_EINVAL, "%.64s...: the path of the run folder is too long", folder);
  LM_TRY(lm_alloc(out, 1, sizeof **out, "the watchdog", err));
  lm_watchdog *w = *out;
  *w = (lm_watchdog){.rank = comm->rank, .size = comm->size, .timeout = timeout, .phase = "start"};
  w->interval = timeout / 10 < LOOKS ? timeout / 10 : LOOKS;
  snprintf(w->host, sizeof w->host, "%s", comm->host);
  snprintf(w->folder, sizeof w->folder, "%s", folder);
  pthread_mutex_init(&w->lock, NULL);
  pthread_cond_init(&w->ended, NULL);
  remove_note(w);
  if (comm->rank == 0) {
    char path[PATH_MAX];
    path_of_verdict(w, path);
    unlink(path);
  }
  int failed = pthread_create(&w->thread, NULL, watch, w);
  if (failed == 0) return LM_OK;
  free(w);
  *out = NULL;
  return lm_fail(err, LM_ENOMEM, "the watchdog's thread cannot be made: %s", strerror(failed));
}

void lm_watchdog_neighbour(lm_watchdog *w, const lm_comm *comm)
{
  MPI_Comm node;
  if (w == NULL || comm->size == 1) return;
  struct neighbour me = {.rank = comm->rank, .pid = getpid(), .start = lm_process_start(getpid())}, next;
  snprintf(me.host, sizeof me.host, "%s", comm->host);
  MPI_Comm_split_type(comm->mpi, MPI_COMM_TYPE_SHARED, comm->rank, MPI_INFO_NULL, &node);
  int rank = comm->local_rank, size = comm->local_size;
  MPI_Sendrecv(&me, sizeof me, MPI_BYTE, (rank + size - 1) % size, LM_TAG_NEIGHBOUR, &next, sizeof next, MPI_BYTE,
               (rank + 1) % size, LM_TAG_NEIGHBOUR, node, MPI_STATUS_IGNORE);
  MPI_Comm_free(&node);
  pthread_mutex_lock(&w->lock);
  if (size > 1 && lm_process_start(next.pid) == next.start) w->next = next;
  pthread_mutex_unlock(&w->lock);
}

void lm_watchdog_phase(lm_watchdog *w, uint64_t step, const char *phase)
{
  if (w == NULL) return;
  pthread_mutex_lock(&w->lock);
  w->step = step;
  w->phase = phase;
  w->age = 0;
  if (w->noted) remove_note(w);
  w->noted = false;
  pthread_mutex_unlock(&w->lock);
}

void lm_watchdog_device(lm_watchdog *w, const lm_device_comm *d)
{
  if (w == NULL) return;
  pthread_mutex_lock(&w->lock);
  w->device = d;
  pthread_mutex_unlock(&w->lock);
}

void lm_watchdog_stop(lm_watchdog *w)
{
  if (w == NULL) return;
  pthread_mutex_lock(&w->lock);
  w->end = true;
  pthread_cond_signal(&w->ended);
  pthread_mutex_unlock(&w->lock);
  pthread_join(w->thread, NULL);
  remove_note(w);
  pthread_cond_destroy(&w->ended);
  pthread_mutex_destroy(&w->lock);
  free(w);
}
