/* src/comm/comm.c - ranks, agreement, and collectives on host buffers (MPI). */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/comm.h"
#include "base/memory.h"
#include "slurm/job.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* MPI counts are int, and several libraries multiply them by the element size in int: stay far below. */
enum { PIECE = 1 << 28 };

static int piece(size_t n)
{
  return (int)(n < PIECE ? n : PIECE);
}

/* N programs that each believe to be rank 0 of 1 would all write the same files. */
static lm_status refuse_singletons(int size, lm_error *err)
{
  int lost = lm_slurm_lost_tasks(size);
  if (lost == 0 || getenv("MPILM_ALLOW_SINGLETONS") != NULL) return LM_OK;
  return lm_fail(err, LM_EINVAL,
                 "MPI has 1 rank but Slurm started %d tasks that do not know each other: use srun --mpi=pmix, or "
                 "mpirun (MPILM_ALLOW_SINGLETONS=1 runs them apart all the same)",
                 lost);
}

static void add_tallies(void *in, void *inout, int *n, MPI_Datatype *type)
{
  (void)type;
  const lm_tally *a = in;
  lm_tally *b = inout;
  for (int i = 0; i < *n; i++) {
    for (size_t j = 0; j < sizeof a->sum / sizeof a->sum[0]; j++) b[i].sum[j] += a[i].sum[j];
    for (size_t j = 0; j < sizeof a->max / sizeof a->max[0]; j++)
      if (a[i].max[j] > b[i].max[j]) b[i].max[j] = a[i].max[j];
  }
}

/* One element is one whole tally, so MPI never cuts it in two. */
static void make_tally(lm_comm *comm)
{
  MPI_Type_contiguous(sizeof(lm_tally) / sizeof(double), MPI_DOUBLE, &comm->tally);
  MPI_Type_commit(&comm->tally);
  MPI_Op_create(add_tallies, 1, &comm->add_tally);
}

const char *lm_thread_level_name(int level)
{
  static const struct {
    int level;
    const char *name;
  } names[] = {{MPI_THREAD_SINGLE, "MPI_THREAD_SINGLE"},
               {MPI_THREAD_FUNNELED, "MPI_THREAD_FUNNELED"},
               {MPI_THREAD_SERIALIZED, "MPI_THREAD_SERIALIZED"},
               {MPI_THREAD_MULTIPLE, "MPI_THREAD_MULTIPLE"}};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (names[i].level == level) return names[i].name;
  return "an unknown level";
}

lm_status lm_thread_level(int wanted, int granted, lm_error *err)
{
  if (granted >= wanted) return LM_OK;
  return lm_fail(err, LM_EINVAL, "MPI grants %s, %s is needed: another MPI, or one built with threads",
                 lm_thread_level_name(granted), lm_thread_level_name(wanted));
}

int lm_node_cores(const lm_comm *comm)
{
  cpu_set_t set;
  MPI_Comm node;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) CPU_SET(0, &set);
  if (comm->size == 1) return CPU_COUNT(&set);
  MPI_Comm_split_type(comm->mpi, MPI_COMM_TYPE_SHARED, comm->rank, MPI_INFO_NULL, &node);
  MPI_Allreduce(MPI_IN_PLACE, &set, (int)sizeof set, MPI_BYTE, MPI_BOR, node);
  MPI_Comm_free(&node);
  return CPU_COUNT(&set);
}

lm_status lm_comm_world(lm_comm *out, int *argc, char ***argv, lm_error *err)
{
  int provided;
  /* FUNNELED is all we need: helper threads never call MPI. */
  MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided);
  *out = (lm_comm){.mpi = MPI_COMM_NULL};
  MPI_Comm_dup(MPI_COMM_WORLD, &out->mpi);
  MPI_Comm_rank(out->mpi, &out->rank);
  MPI_Comm_size(out->mpi, &out->size);
  MPI_Comm node;
  MPI_Comm_split_type(out->mpi, MPI_COMM_TYPE_SHARED, out->rank, MPI_INFO_NULL, &node);
  MPI_Comm_rank(node, &out->local_rank);
  MPI_Comm_size(node, &out->local_size);
  MPI_Comm_free(&node);
  make_tally(out);
  gethostname(out->host, sizeof out->host - 1);
  lm_status mine = lm_thread_level(MPI_THREAD_FUNNELED, provided, err);
  if (mine == LM_OK) mine = refuse_singletons(out->size, err);
  return lm_agree(out, mine, err);
}

void lm_comm_self(lm_comm *out)
{
  *out = (lm_comm){.mpi = MPI_COMM_NULL, .rank = 0, .size = 1, .local_rank = 0, .local_size = 1};
  gethostname(out->host, sizeof out->host - 1);
}

void lm_comm_end(lm_comm *comm)
{
  if (comm->mpi == MPI_COMM_NULL) return;
  MPI_Op_free(&comm->add_tally);
  MPI_Type_free(&comm->tally);
  MPI_Comm_free(&comm->mpi);
  MPI_Finalize();
}

lm_status(lm_agree)(const lm_comm *comm, lm_status mine, lm_error *err)
{
  int who = mine == LM_OK ? comm->size : comm->rank; /* the lowest failing rank speaks for all */
  lm_error e = {.status = mine, .rank = comm->rank};

  if (comm->size > 1) MPI_Allreduce(MPI_IN_PLACE, &who, 1, MPI_INT, MPI_MIN, comm->mpi);
  if (who == comm->size) return LM_OK; /* the usual case costs one small all-reduce */
  if (who == comm->rank) {
    if (err != NULL) e = *err;
    e.status = mine;
    e.rank = comm->rank;
    snprintf(e.host, sizeof e.host, "%s", comm->host);
  }
  lm_bcast(comm, &e, sizeof e, who);
  if (err != NULL) *err = e;
  return e.status;
}

lm_status lm_alloc_agreed(const lm_comm *comm, void *out, size_t count, size_t size, const char *what, lm_error *err)
{
  lm_status s = lm_agree(comm, lm_alloc(out, count, size, what, err), err);
  if (s == LM_OK) return LM_OK;
  free(*(void **)out); /* of a rank that had it while another had none */
  *(void **)out = NULL;
  return s;
}

void lm_abort(const lm_comm *comm, const char *format, ...)
{
  char text[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  fprintf(stderr, "mpilm: [rank %d %s] %s\n", comm->rank, comm->host, text);
  if (comm->mpi != MPI_COMM_NULL) MPI_Abort(comm->mpi, 1);
  _exit(1);
}

static void allreduce(const lm_comm *comm, void *x, size_t n, size_t width, MPI_Datatype type, MPI_Op op)
{
  if (comm->size == 1) return;
  for (char *p = x; n > 0;) {
    int now = piece(n);
    MPI_Allreduce(MPI_IN_PLACE, p, now, type, op, comm->mpi);
    p += (size_t)now * width;
    n -= (size_t)now;
  }
}

void lm_allreduce_sum_f32(const lm_comm *comm, float *x, size_t n)
{
  allreduce(comm, x, n, sizeof *x, MPI_FLOAT, MPI_SUM);
}

void lm_allreduce_sum_f64(const lm_comm *comm, double *x, size_t n)
{
  allreduce(comm, x, n, sizeof *x, MPI_DOUBLE, MPI_SUM);
}

void lm_allreduce_max_f64(const lm_comm *comm, double *x, size_t n)
{
  allreduce(comm, x, n, sizeof *x, MPI_DOUBLE, MPI_MAX);
}

void lm_allreduce_sum_u64(const lm_comm *comm, uint64_t *x, size_t n)
{
  allreduce(comm, x, n, sizeof *x, MPI_UINT64_T, MPI_SUM);
}

void lm_allreduce_tally(const lm_comm *comm, lm_tally *tally)
{
  if (comm->size > 1) MPI_Allreduce(MPI_IN_PLACE, tally, 1, comm->tally, comm->add_tally, comm->mpi);
}

void lm_bcast(const lm_comm *comm, void *bytes, size_t n, int root)
{
  if (comm->size == 1) return;
  for (char *p = bytes; n > 0;) {
    int now = piece(n);
    MPI_Bcast(p, now, MPI_BYTE, root, comm->mpi);
    p += now;
    n -= (size_t)now;
  }
}

void lm_allgather(const lm_comm *comm, const void *mine, size_t n, void *out)
{
  LM_ASSERT(n <= PIECE);
  if (comm->size == 1)
    memcpy(out, mine, n);
  else
    MPI_Allgather(mine, (int)n, MPI_BYTE, out, (int)n, MPI_BYTE, comm->mpi);
}

void lm_send(const lm_comm *comm, const void *bytes, size_t n, int to, enum lm_tag tag)
{
  for (const char *p = bytes; n > 0;) {
    int now = piece(n);
    MPI_Send(p, now, MPI_BYTE, to, tag, comm->mpi);
    p += now;
    n -= (size_t)now;
  }
}

void lm_receive(const lm_comm *comm, void *bytes, size_t n, int from, enum lm_tag tag)
{
  for (char *p = bytes; n > 0;) {
    int now = piece(n);
    MPI_Recv(p, now, MPI_BYTE, from, tag, comm->mpi, MPI_STATUS_IGNORE);
    p += now;
    n -= (size_t)now;
  }
}

int lm_transfer_pieces(size_t n)
{
  size_t pieces = (n + PIECE - 1) / PIECE;
  LM_ASSERT(pieces <= INT_MAX);
  return (int)pieces;
}

lm_status lm_transfers_new(lm_transfers *out, int capacity, lm_error *err)
{
  *out = (lm_transfers){.capacity = capacity};
  return lm_alloc(&out->items, (size_t)capacity, sizeof *out->items, "requests", err);
}

void lm_transfers_free(lm_transfers *t)
{
  free(t->items);
  *t = (lm_transfers){0};
}

static MPI_Request *next_request(lm_transfers *t)
{
  LM_ASSERT(t->n < t->capacity);
  return &t->items[t->n++];
}

void lm_send_begin(const lm_comm *comm, const void *bytes, size_t n, int to, enum lm_tag tag, lm_transfers *t)
{
  for (const char *p = bytes; n > 0;) {
    int now = piece(n);
    MPI_Isend(p, now, MPI_BYTE, to, tag, comm->mpi, next_request(t));
    p += now;
    n -= (size_t)now;
  }
}

void lm_receive_begin(const lm_comm *comm, void *bytes, size_t n, int from, enum lm_tag tag, lm_transfers *t)
{
  for (char *p = bytes; n > 0;) {
    int now = piece(n);
    MPI_Irecv(p, now, MPI_BYTE, from, tag, comm->mpi, next_request(t));
    p += now;
    n -= (size_t)now;
  }
}

bool lm_transfers_done(lm_transfers *t)
{
  int done = 1;
  if (t->n > 0) MPI_Testall(t->n, t->items, &done, MPI_STATUSES_IGNORE);
  if (done) t->n = 0;
  return done;
}

void lm_transfers_wait(lm_transfers *t)
{
  if (t->n > 0) MPI_Waitall(t->n, t->items, MPI_STATUSES_IGNORE);
  t->n = 0;
}

void lm_barrier(const lm_comm *comm)
{
  if (comm->size > 1) MPI_Barrier(comm->mpi);
}
