/* benchmarks/allreduce.c - bus bandwidth of collectives over sizes, by the formulas of nccl-tests. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/clock.h"
#include "base/log.h"
#include "base/options.h"
#include "comm/device.h"
#include "train/backend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* usage: mpirun -n 4 allreduce [--path=mpi|nccl --least=8 --most=268435456 --factor=4 --rounds=5 --json]
 *
 * For S bytes, those that each rank has before an all-reduce or a reduce-scatter and after an all-gather, and n ranks:
 * algbw = S / t, busbw = algbw 2 (n - 1) / n for all-reduce and algbw (n - 1) / n for the other two: what each rank
 * must send at the least, whatever the algorithm, so that busbw compares with the rate of a link at any n (nccl-tests,
 * doc/PERFORMANCE.md). t is the least of some rounds, each that of the slowest rank; GB is 10^9 bytes. */

typedef enum op { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, OPS } op;
static const struct {
  const char *name;
  int passes; /* over the wire: times (n - 1) / n */
} ops[OPS] = {{"all-reduce", 2}, {"reduce-scatter", 1}, {"all-gather", 1}};

/* A way to move floats between ranks. One that works on a device brings its own memory. */
typedef struct path {
  const char *name;
  lm_status (*start)(const lm_comm *comm, lm_error *err); /* Collective; NULL: nothing is to be done */
  void (*end)(void);
  float *(*make)(size_t n);
  void (*release)(float *x);
  void (*write)(float *x, const float *host, size_t n); /* from host memory, and back */
  void (*read)(float *host, const float *x, size_t n);
  /* [n] of x, and n / size of it at rank * n / size: all-reduce is in place; reduce-scatter sums x into part;
   * all-gather joins the parts in x. Returns when it is over. */
  void (*run)(const lm_comm *comm, op what, float *x, float *part, size_t n);
} path;

/* ---- host memory, MPI ---- */

static float *host_make(size_t n)
{
  return calloc(n, sizeof(float));
}

static void host_release(float *x)
{
  free(x);
}

static void host_write(float *x, const float *host, size_t n)
{
  memcpy(x, host, n * sizeof *x);
}

static void host_run(const lm_comm *comm, op what, float *x, float *part, size_t n)
{
  int each = (int)(n / (size_t)comm->size);
  if (what == ALL_REDUCE)
    lm_allreduce_sum_f32(comm, x, n);
  else if (what == REDUCE_SCATTER)
    MPI_Reduce_scatter_block(x, part, each, MPI_FLOAT, MPI_SUM, comm->mpi);
  else
    MPI_Allgather(part, each, MPI_FLOAT, x, each, MPI_FLOAT, comm->mpi);
}

/* ---- memory of GPUs, NCCL ---- */

static const lm_kernels *gpu;
static lm_device_comm *joined;

static lm_status gpu_start(const lm_comm *comm, lm_error *err)
{
  LM_TRY(lm_agree(comm, lm_backend_start(&gpu, comm, LM_BACKEND_CUDA, err), err));
  return lm_device_comm_new(&joined, comm, gpu->fabric, 1, 60, err);
}

static void gpu_end(void)
{
  lm_device_comm_free(joined);
}

static float *gpu_make(size_t n)
{
  void *x;
  lm_error err;
  return gpu->alloc(&x, n * sizeof(float), "a buffer", &err) == LM_OK ? x : NULL;
}

static void gpu_release(float *x)
{
  gpu->release(x);
}

static void gpu_write(float *x, const float *host, size_t n)
{
  gpu->to_device(x, host, n * sizeof *x);
}

static void gpu_read(float *host, const float *x, size_t n)
{
  gpu->to_host(host, x, n * sizeof *x);
}

static void gpu_run(const lm_comm *comm, op what, float *x, float *part, size_t n)
{
  const lm_fabric *f = joined->fabric;
  size_t each = n / (size_t)comm->size;
  f->fork(joined->group);
  if (what == ALL_REDUCE)
    f->all_reduce(joined->group, x, n);
  else if (what == REDUCE_SCATTER)
    f->reduce_scatter(joined->group, part, x, each);
  else
    f->all_gather(joined->group, x, part, each * sizeof *x);
  f->mark(joined->group, 0);
  f->await(joined->group, 0);
  gpu->to_host(NULL, NULL, 0); /* until it is over */
}

static const path paths[] = {
    {"mpi", NULL, NULL, host_make, host_release, host_write, host_write, host_run},
    {"nccl", gpu_start, gpu_end, gpu_make, gpu_release, gpu_write, gpu_read, gpu_run},
};
#define PATH_WORDS "mpi|nccl" /* in the order of the table */

/* ---- measuring ---- */

typedef struct settings {
  int64_t least, most, factor, rounds;
  int path;
  bool json;
} settings;

static const lm_option table[] = {
    {"least", LM_OPT_INT, offsetof(settings, least), "8", "[4, 1073741824]", "bytes", "the smallest size"},
    {"most", LM_OPT_INT, offsetof(settings, most), "268435456", "[4, 1073741824]", "bytes", "the largest size"},
    {"factor", LM_OPT_INT, offsetof(settings, factor), "4", "[2, 1024]", NULL, "from one size to the next"},
    {"rounds", LM_OPT_INT, offsetof(settings, rounds), "5", "[1, 1000]", NULL, "the least time of so many counts"},
    {"path", LM_OPT_CHOICE, offsetof(settings, path), "mpi", PATH_WORDS, NULL, "how it is sent"},
    {"json", LM_OPT_BOOL, offsetof(settings, json), "false", NULL, NULL, "one JSON object instead of a table"},
    {NULL},
};

/* What a rank begins with: small whole numbers, so that sums are exact in any order. */
static float value(size_t i, int rank)
{
  return (float)((i + (size_t)rank * 7) % 13);
}

static bool right(const lm_comm *comm, op what, const float *x, const float *part, size_t n)
{
  size_t each = n / (size_t)comm->size, from = what == REDUCE_SCATTER ? (size_t)comm->rank * each : 0;
  const float *got = what == REDUCE_SCATTER ? part : x;
  for (size_t i = 0; i < (what == REDUCE_SCATTER ? each : n); i++) {
    float want = 0;
    for (int r = 0; r < comm->size && what != ALL_GATHER; r++) want += value(from + i, r);
    if (what == ALL_GATHER) want = value(i % each, (int)(i / each));
    if (got[i] != want) return false;
  }
  return true;
}

typedef struct buffers {
  float *host, *x, *part;
} buffers;

/* One call on known numbers. Collective. */
static bool check(const lm_comm *comm, const path *p, op what, buffers *b, size_t n)
{
  for (size_t i = 0; i < n; i++) b->host[i] = value(i, comm->rank);
  p->write(b->x, b->host, n);
  p->write(b->part, b->host, n / (size_t)comm->size);
  p->run(comm, what, b->x, b->part, n);
  float *part = malloc(n / (size_t)comm->size * sizeof *part);
  double wrong = part == NULL;
  p->read(b->host, b->x, n);
  if (part != NULL) p->read(part, b->part, n / (size_t)comm->size);
  if (part != NULL) wrong = !right(comm, what, b->host, part, n);
  free(part);
  lm_allreduce_max_f64(comm, &wrong, 1);
  return wrong == 0;
}

/* Seconds of a call; small ones are too short for the clock, so a round has many. Collective. */
static double seconds(const lm_comm *comm, const settings *s, op what, buffers *b, size_t n)
{
  const path *p = &paths[s->path];
  size_t bytes = n * sizeof(float);
  int calls = bytes <= 1 << 16 ? 100 : bytes <= 1 << 22 ? 10 : 1;
  double best = INFINITY;
  memset(b->host, 0, n * sizeof(float)); /* sums of sums would leave the range of a float */
  p->write(b->x, b->host, n);
  p->write(b->part, b->host, n / (size_t)comm->size);
  for (int64_t round = 0; round <= s->rounds; round++) {
    lm_barrier(comm);
    double begin = lm_clock();
    for (int i = 0; i < calls; i++) p->run(comm, what, b->x, b->part, n);
    double each = (lm_clock() - begin) / calls;
    lm_allreduce_max_f64(comm, &each, 1);
    if (round > 0 && each < best) best = each; /* the first warms up */
  }
  return best;
}

static void print_row(const lm_comm *comm, const settings *s, op what, size_t bytes, double t, bool right, bool first)
{
  double alg = (double)bytes / t * 1e-9, bus = alg * ops[what].passes * (comm->size - 1) / comm->size;
  if (comm->rank != 0) return;
  if (s->json)
    printf("%s\n  {\"op\": \"%s\", \"bytes\": %zu, \"seconds\": %.9g, \"algbw\": %.6g, \"busbw\": %.6g, \"right\": %s}",
           first ? "" : ",", ops[what].name, bytes, t, alg, bus, right ? "true" : "false");
  else
    printf("%-15s %12zu %12.1f %10.3f %10.3f%s\n", ops[what].name, bytes, 1e6 * t, alg, bus, right ? "" : "  WRONG");
  fflush(stdout);
}

static bool measure(const lm_comm *comm, const settings *s, buffers *b)
{
  bool all_right = true, first = true;
  for (op what = 0; what < OPS; what++)
    for (size_t bytes = (size_t)s->least; bytes <= (size_t)s->most; bytes *= (size_t)s->factor) {
      size_t n = bytes / sizeof(float) / (size_t)comm->size * (size_t)comm->size; /* every rank has as much */
      if (n == 0) continue;
      bool right = check(comm, &paths[s->path], what, b, n);
      double t = seconds(comm, s, what, b, n);
      print_row(comm, s, what, n * sizeof(float), t, right, first);
      first = false;
      all_right = all_right && right;
    }
  if (comm->rank == 0 && s->json) printf("\n]}\n");
  return all_right;
}

static lm_status bench(const lm_comm *comm, const settings *s, lm_error *err)
{
  const path *p = &paths[s->path];
  if (p->start != NULL) LM_TRY(p->start(comm, err));
  size_t n = (size_t)s->most / sizeof(float), each = n / (size_t)comm->size + 1;
  buffers b = {malloc(n * sizeof(float)), p->make(n), p->make(each)};
  bool there = b.host != NULL && b.x != NULL && b.part != NULL;
  lm_status mine = there ? LM_OK : lm_fail(err, LM_ENOMEM, "no memory for buffers of %lld bytes", (long long)s->most);
  mine = lm_agree(comm, mine, err);
  if (mine == LM_OK && comm->rank == 0) {
    if (s->json)
      printf("{\"path\": \"%s\", \"ranks\": %d, \"ranks_a_node\": %d, \"results\": [", p->name, comm->size,
             comm->local_size);
    else
      printf("path %s, %d ranks, %d on the first node; GB/s\n%-15s %12s %12s %10s %10s\n", p->name, comm->size,
             comm->local_size, "", "bytes", "us", "algbw", "busbw");
  }
  if (mine == LM_OK && !measure(comm, s, &b)) mine = lm_fail(err, LM_ENUMERIC, "a collective gave wrong sums");
  free(b.host);
  p->release(b.x);
  p->release(b.part);
  if (p->end != NULL) p->end();
  return mine;
}

int main(int argc, char **argv)
{
  lm_comm comm;
  settings s;
  lm_options *o = NULL;
  lm_error err;
  lm_status status = lm_comm_world(&comm, &argc, &argv, &err);
  if (status == LM_OK) status = lm_options_new(&o, table, lm_options_count(table), &s, &err);
  if (status == LM_OK) status = lm_options_parse(o, argc - 1, argv + 1, &err);
  if (status == LM_OK) status = bench(&comm, &s, &err);
  if (status != LM_OK) lm_log_error(&err);
  lm_options_free(o);
  lm_comm_end(&comm);
  return lm_exit_code(status);
}
