/* src/train/preflight.c - are the nodes fit for a run: measured and compared in seconds, before training. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/preflight.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "batch/sources.h"
#include "checkpoint/checkpoint.h"
#include "slurm/hosts.h"
#include "slurm/job.h"
#include "train/backend.h"
#include "train/threads.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE = 4 << 20, ROUNDS = 4 };
static const double SLOW = 0.7, SKEW = 2.0; /* of the median; seconds */

/* ---- a rank by itself ---- */

static lm_status hash_program(uint64_t *out, lm_error *err)
{
  lm_buffer program = {0};
  LM_TRY(lm_file_read("/proc/self/exe", &program, err));
  *out = lm_hash(program.data, program.size);
  lm_buffer_free(&program);
  return LM_OK;
}

static lm_status hash_config(uint64_t *out, const lm_options *options, lm_error *err)
{
  lm_buffer text = {0};
  LM_TRY(lm_options_write_yaml(options, &text, err));
  *out = lm_hash(text.data, text.size);
  lm_buffer_free(&text);
  return LM_OK;
}

static double available_memory(void)
{
  char line[256];
  double kib = 0;
  FILE *f = fopen("/proc/meminfo", "r");
  if (f == NULL) return 0;
  while (fgets(line, sizeof line, f) != NULL && sscanf(line, "MemAvailable: %lf", &kib) != 1) continue;
  fclose(f);
  return kib * 1024;
}

/* Weights, gradients and the optimizer's state, were nothing shared between ranks; activations come on top. */
static lm_status state_size(double *out, const lm_config *cfg, lm_error *err)
{
  lm_model_config shape = cfg->model.shape;
  lm_param_table table;
  lm_sources sources;
  *out = 0;
  LM_TRY(lm_sources_open(&sources, &cfg->data.train, (int)shape.n_ctx, err));
  if (shape.vocab_size == 0) shape.vocab_size = (int64_t)lm_sources_vocab(&sources)->vocab_size;
  lm_sources_close(&sources);
  LM_TRY(lm_param_table_new(&table, &shape, err));
  *out = 16.0 * (double)table.elements;
  lm_param_table_free(&table);
  return LM_OK;
}

static lm_status see_val(const lm_config *cfg, lm_error *err)
{
  lm_dataset *val;
  if (*cfg->data.val == '\0') return LM_OK;
  LM_TRY(lm_dataset_open(&val, cfg->data.val, err));
  lm_dataset_close(val);
  return LM_OK;
}

static lm_status look_local(lm_preflight_rank *me, const lm_kernels **out, double *need, const lm_comm *comm,
                            const lm_config *cfg, const lm_options *options, lm_error *err)
{
  *me = (lm_preflight_rank){.local_rank = comm->local_rank, .local_size = comm->local_size, .threads = lm_threads()};
  snprintf(me->host, sizeof me->host, "%s", comm->host);
  LM_TRY(lm_backend_start(out, comm, cfg != NULL ? (lm_backend)cfg->backend : LM_BACKEND_AUTO, err));
  LM_TRY(hash_program(&me->program, err));
  if (cfg != NULL) {
    LM_TRY(hash_config(&me->config, options, err));
    LM_TRY(state_size(need, cfg, err));
    LM_TRY(see_val(cfg, err));
  }
  const lm_kernels *k = *out;
  snprintf(me->backend, sizeof me->backend, "%s", k->name);
  me->on_device = k->on_device;
  me->memory = k->available != NULL ? (double)k->available() : available_memory();
  return LM_OK;
}

/* ---- ranks together ---- */

static double wall_clock(void)
{
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Rank 0 with each node's first rank in turn: the clock by the shortest of some round trips, then the link. */
static void probe_rank0(const lm_comm *comm, int peer, char *message, double out[2])
{
  double shortest = INFINITY, theirs, fastest = INFINITY;
  for (int i = 0; i < 2 * ROUNDS; i++) {
    double before = wall_clock();
    lm_send(comm, &before, sizeof before, peer, LM_TAG_PROBE);
    lm_receive(comm, &theirs, sizeof theirs, peer, LM_TAG_PROBE);
    double after = wall_clock();
    if (after - before >= shortest) continue;
    shortest = after - before;
    out[1] = theirs - (before + after) / 2;
  }
  for (int i = 0; i < ROUNDS; i++) {
    double before = lm_clock();
    lm_send(comm, message, MESSAGE, peer, LM_TAG_PROBE);
    lm_receive(comm, message, MESSAGE, peer, LM_TAG_PROBE);
    if (lm_clock() - before < fastest) fastest = lm_clock() - before;
  }
  out[0] = 2.0 * MESSAGE / fastest;
  lm_send(comm, out, 2 * sizeof *out, peer, LM_TAG_PROBE);
}

static void probe_peer(const lm_comm *comm, char *message, double out[2])
{
  double theirs;
  for (int i = 0; i < 2 * ROUNDS; i++) {
    lm_receive(comm, &theirs, sizeof theirs, 0, LM_TAG_PROBE);
    double now = wall_clock();
    lm_send(comm, &now, sizeof now, 0, LM_TAG_PROBE);
  }
  for (int i = 0; i < ROUNDS; i++) {
    lm_receive(comm, message, MESSAGE, 0, LM_TAG_PROBE);
    lm_send(comm, message, MESSAGE, 0, LM_TAG_PROBE);
  }
  lm_receive(comm, out, 2 * sizeof *out, 0, LM_TAG_PROBE);
}

static void probe_links(const lm_comm *comm, const lm_preflight_rank *all, lm_preflight_rank *me, char *message)
{
  double out[2] = {0, 0};
  if (comm->rank == 0) {
    for (int peer = 1; peer < comm->size; peer++)
      if (all[peer].local_rank == 0) probe_rank0(comm, peer, message, (double[2]){0, 0});
  } else if (me->local_rank == 0) {
    probe_peer(comm, message, out);
    me->link = out[0];
    me->clock_skew = out[1];
  }
}

static double allreduce_rate(const lm_comm *comm, char *message)
{
  double fastest = INFINITY, n = comm->size;
  if (comm->size == 1) return 0;
  memset(message, 0, MESSAGE);
  for (int i = 0; i < ROUNDS; i++) {
    lm_barrier(comm);
    double before = lm_clock();
    lm_allreduce_sum_f32(comm, (float *)(void *)message, MESSAGE / sizeof(float));
    double took = lm_clock() - before;
    lm_allreduce_max_f64(comm, &took, 1);
    if (took < fastest) fastest = took;
  }
  return MESSAGE * 2 * (n - 1) / n / fastest;
}

/* ---- the run folder ---- */

static lm_status make_probe(const char *folder, const char *path, lm_preflight *out, lm_error *err)
{
  struct statvfs fs;
  LM_TRY(lm_checkpoint_make_run(folder, err));
  LM_TRY(lm_file_replace(path, "probe\n", 6, err));
  if (statvfs(folder, &fs) != 0) return lm_fail(err, LM_EIO, "%s: statvfs: %s", folder, strerror(errno));
  out->free_space = (double)fs.f_bavail * (double)fs.f_frsize;
  if (out->free_space < out->need)
    return lm_fail(err, LM_EINVAL, "%s: has %.1f GB free; a checkpoint needs up to %.1f GB", folder,
                   out->free_space * 1e-9, out->need * 1e-9);
  return LM_OK;
}

static lm_status see_probe(const char *folder, const char *path, lm_error *err)
{
  if (access(path, R_OK | W_OK) == 0) return LM_OK;
  return lm_fail(err, LM_EINVAL, "%s: what rank 0 writes there cannot be opened (%s): all nodes must share it", folder,
                 strerror(errno));
}

/* Rank 0 holds a lock; each other node must be refused one. @return 1 where it is not */
static int lock_probe(const char *path, bool hold, int *fd)
{
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  *fd = open(path, O_RDWR | O_CLOEXEC);
  if (*fd < 0) return 0;
  bool got = fcntl(*fd, F_SETLK, &lock) == 0;
  return got != hold;
}

static lm_status check_folder(lm_preflight *out, const lm_comm *comm, const char *folder, lm_error *err)
{
  char path[PATH_MAX];
  int fd = -1, other = -1;
  if ((size_t)snprintf(path, sizeof path, "%s/.preflight", folder) >= sizeof path)
    return lm_fail(err, LM_EINVAL, "%s: the path is too long for a run folder", folder);
  lm_status s = lm_agree(comm, comm->rank == 0 ? make_probe(folder, path, out, err) : LM_OK, err);
  if (s == LM_OK) s = lm_agree(comm, see_probe(folder, path, err), err);
  if (s == LM_OK) {
    double blind = comm->rank == 0 ? lock_probe(path, true, &fd) : 0;
    lm_barrier(comm);
    if (comm->rank != 0 && comm->local_rank == 0) blind = lock_probe(path, false, &other);
    lm_allreduce_max_f64(comm, &blind, 1);
    if (blind > 0)
      lm_warn("%s: a lock of one node is not seen by the others (mount option flock?): two jobs could write it at once",
              folder);
  }
  if (fd >= 0) close(fd);
  if (other >= 0) close(other);
  if (comm->rank == 0) unlink(path);
  return s;
}

/* ---- comparing ---- */

static int by_value(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

size_t lm_preflight_slow(const double *x, size_t n, double share, double *sorted)
{
  size_t count = 0;
  for (size_t i = 0; i < n; i++)
    if (x[i] > 0) sorted[count++] = x[i];
  if (count == 0) return n;
  qsort(sorted, count, sizeof *sorted, by_value);
  for (size_t i = 0; i < n; i++)
    if (x[i] > 0 && x[i] < share * sorted[count / 2]) return i;
  return n;
}

static lm_status same_everywhere(const lm_preflight_rank *r, int size, lm_error *err)
{
  for (int i = 1; i < size; i++) {
    if (r[i].program != r[0].program)
      return lm_fail(err, LM_EINVAL,
                     "rank %d on %s runs another program (%016" PRIx64 ") than rank 0 on %s (%016" PRIx64 ")", i,
                     r[i].host, r[i].program, r[0].host, r[0].program);
    if (r[i].config != r[0].config)
      return lm_fail(err, LM_EINVAL,
                     "rank %d on %s has another config (%016" PRIx64 ") than rank 0 on %s (%016" PRIx64 ")", i,
                     r[i].host, r[i].config, r[0].host, r[0].config);
  }
  return LM_OK;
}

static lm_status enough_memory(const lm_preflight *p, int size, lm_error *err)
{
  for (int i = 0; i < size; i++) {
    const lm_preflight_rank *r = &p->ranks[i];
    if (r->on_device && p->need > r->memory)
      return lm_fail(err, LM_EINVAL,
                     "the device of rank %d on %s has %.1f GB of memory left; it needs at least %.1f GB", i, r->host,
                     r->memory * 1e-9, p->need * 1e-9);
    if (!r->on_device && r->memory > 0 && p->need * r->local_size > r->memory)
      return lm_fail(err, LM_EINVAL, "%s has %.1f GB of memory left; its %d ranks need at least %.1f GB each", r->host,
                     r->memory * 1e-9, r->local_size, p->need * 1e-9);
  }
  return LM_OK;
}

/* @param x  [2 size] values of ranks, and room */
static lm_status judge(const lm_preflight_rank *r, double *x, int size, double least, const char *what, lm_error *err)
{
  size_t n = (size_t)size, slow = lm_preflight_slow(x, n, least, x + n);
  if (slow < n)
    return lm_fail(err, LM_EPEER, "rank %zu on %s: its %s is below %g of the median of all", slow, r[slow].host, what,
                   least);
  slow = lm_preflight_slow(x, n, SLOW, x + n);
  if (slow < n)
    lm_warn("rank %zu on %s: its %s is below %g of the median: the other ranks wait for it", slow, r[slow].host, what,
            SLOW);
  return LM_OK;
}

static lm_status fast_enough(const lm_preflight *p, int size, double least, lm_error *err)
{
  double *x;
  LM_TRY(lm_alloc(&x, 2 * (size_t)size, sizeof *x, "the rates of ranks", err));
  for (int i = 0; i < size; i++) x[i] = p->ranks[i].rate;
  lm_status s = judge(p->ranks, x, size, least, "product rate", err);
  for (int i = 0; i < size; i++) x[i] = p->ranks[i].link;
  if (s == LM_OK) s = judge(p->ranks, x, size, least, "link to rank 0", err);
  free(x);
  for (int i = 0; i < size; i++)
    if (fabs(p->ranks[i].clock_skew) > SKEW)
      lm_warn("the clock of %s is %.1f s off that of %s: times of files and logs mislead", p->ranks[i].host,
              p->ranks[i].clock_skew, p->ranks[0].host);
  return s;
}

/* Does MPI have a rank for each task that Slurm started, on each node? Where Slurm's own words cannot be read, or
 * mpirun started the ranks, nothing follows. */
static void compare_with_slurm(const lm_comm *comm, const lm_preflight_rank *r)
{
  const char *nodes = lm_slurm_nodes(), *tasks = lm_slurm_tasks_per_node();
  lm_buffer names = {0};
  uint32_t *counts = NULL;
  size_t n_names = 0, n_counts = 0, at = 0;
  lm_error why;
  if (comm->rank != 0 || nodes == NULL || tasks == NULL) return;
  if (lm_hosts_expand(nodes, &names, &n_names, &why) != LM_OK ||
      lm_tasks_expand(tasks, &counts, &n_counts, &why) != LM_OK)
    lm_warn("%s", why.text);
  else if (n_names == n_counts)
    for (char *name = strtok(names.data, "\n"); name != NULL; name = strtok(NULL, "\n"), at++) {
      uint32_t here = 0;
      for (int i = 0; i < comm->size; i++) here += strcmp(r[i].host, name) == 0;
      if (here > 0 && here < counts[at])
        lm_warn("%s: Slurm started %u tasks, MPI has %u ranks there", name, counts[at], here);
    }
  lm_buffer_free(&names);
  free(counts);
}

lm_status lm_preflight_run(lm_preflight *out, const lm_comm *comm, const lm_config *cfg, const lm_options *options,
                           double least, lm_error *err)
{
  lm_preflight_rank me = {0};
  const lm_kernels *k = NULL;
  char *message = NULL;
  *out = (lm_preflight){0};
  lm_status s = look_local(&me, &k, &out->need, comm, cfg, options, err);
  if (s == LM_OK) s = lm_alloc(&out->ranks, (size_t)comm->size, sizeof *out->ranks, "the report", err);
  if (s == LM_OK) s = lm_alloc(&message, MESSAGE, 1, "a message", err);
  s = lm_agree(comm, s, err);
  if (s == LM_OK) {
    lm_allgather(comm, &me, sizeof me, out->ranks);
    s = same_everywhere(out->ranks, comm->size, err); /* the same on all ranks, as what follows is */
  }
  if (s == LM_OK) {
    lm_barrier(comm);
    me.rate = lm_backend_rate(k, k->on_device ? LM_BF16 : LM_F32);
    lm_barrier(comm);
    probe_links(comm, out->ranks, &me, message);
    out->allreduce = allreduce_rate(comm, message);
    lm_allgather(comm, &me, sizeof me, out->ranks);
    compare_with_slurm(comm, out->ranks);
    s = enough_memory(out, comm->size, err);
  }
  if (s == LM_OK && cfg != NULL) s = check_folder(out, comm, cfg->run.folder, err);
  if (s == LM_OK) s = lm_agree(comm, fast_enough(out, comm->size, least, err), err);
  free(message);
  return s;
}
