/* src/comm/comm.h - ranks, agreement, and collectives on host buffers (MPI). */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_COMM_COMM_H
#define LM_COMM_COMM_H

#include "base/status.h"
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

/** The ranks that work together. Plain data to read; one is made by lm_comm_world() or lm_comm_self(). */
typedef struct lm_comm {
  MPI_Comm mpi; /* ours alone: errors are fatal, no message of a library gets into it */
  int rank, size;
  int local_rank, local_size; /* among the ranks that share this node's memory */
  MPI_Datatype tally;         /* of one lm_tally */
  MPI_Op add_tally;
  char host[64];
} lm_comm;

/* Tags of point-to-point messages, all of them. */
enum lm_tag {
  LM_TAG_TOKENS = 1,
  LM_TAG_PIECES,
  LM_TAG_PARTIALS,
  LM_TAG_SUMS,
  LM_TAG_WEIGHTS,
  LM_TAG_PROBE,
  LM_TAG_NEIGHBOUR
};

/** Start MPI and describe the world. Collective over all started processes.
 *  @return LM_EINVAL where a launcher started several tasks that do not know each other (N singletons) */
lm_status lm_comm_world(lm_comm *out, int *argc, char ***argv, lm_error *err) LM_NODISCARD;

/** Does MPI grant what is needed? Local. The levels are ordered: MPI 4.0, section 11.6.2.
 *  @param wanted, granted  MPI_THREAD_...; LM_EINVAL names both where `granted` is the lower one */
lm_status lm_thread_level(int wanted, int granted, lm_error *err) LM_NODISCARD;

/** "MPI_THREAD_FUNNELED". Local. */
const char *lm_thread_level_name(int level);

/** On how many cores the ranks of this node run, together. Collective. A launcher that binds all ranks to one core
 * shows here. */
int lm_node_cores(const lm_comm *comm);

/** One rank alone, without MPI: for subcommands that are not parallel. Local. */
void lm_comm_self(lm_comm *out);

/** End MPI if lm_comm_world() began it. Collective. */
void lm_comm_end(lm_comm *comm);

/** All ranks learn whether one of them failed. Collective.
 *  @param mine  this rank's own result
 *  @param err   in: this rank's sentence where mine is a failure; out: that of the lowest failing rank, on all ranks
 *  @return LM_OK where every rank passed LM_OK, else the status of the lowest failing rank */
lm_status lm_agree(const lm_comm *comm, lm_status mine, lm_error *err) LM_NODISCARD;
#ifdef __clang_analyzer__ /* tell an analyser what the words above say: who failed does not hear LM_OK */
static inline lm_status lm_agreed(lm_status mine, lm_status all)
{
  if (mine != LM_OK && all == LM_OK) __builtin_unreachable();
  return all;
}
#define lm_agree(comm, mine, err)                                                                                      \
  __extension__({                                                                                                      \
    lm_status mine_ = (mine);                                                                                          \
    lm_agreed(mine_, lm_agree(comm, mine_, err));                                                                      \
  })
#endif

/** Zeroed memory on every rank, or on none. Collective.
 *  @param out    a pointer to the pointer that receives it; NULL on all ranks where one rank has none
 *  @param count  elements of this rank; ranks may differ
 *  @param what   the plural for the sentence: "no memory for <what> (<count> x <size> bytes)"
 *  @return LM_ENOMEM of the lowest rank without */
lm_status lm_alloc_agreed(const lm_comm *comm, void *out, size_t count, size_t size, const char *what,
                          lm_error *err) LM_NODISCARD;

/** End the job at once from one rank, saying why: for failures that can no longer be agreed on. Local. */
_Noreturn void lm_abort(const lm_comm *comm, const char *format, ...) LM_PRINTF(2, 3);

/** Sums over ranks, in place, the same bits on every rank. Collective. Any n: split below 2^30 elements. */
void lm_allreduce_sum_f32(const lm_comm *comm, float *x, size_t n);
void lm_allreduce_sum_f64(const lm_comm *comm, double *x, size_t n);
void lm_allreduce_max_f64(const lm_comm *comm, double *x, size_t n);
void lm_allreduce_sum_u64(const lm_comm *comm, uint64_t *x, size_t n);

/** What a step agrees on, in one small all-reduce: some numbers are added over ranks, of others the largest counts. */
typedef struct lm_tally {
  double sum[6], max[6];
} lm_tally;
void lm_allreduce_tally(const lm_comm *comm, lm_tally *tally);

/** Copy from rank `root` to all. Collective. Any n. */
void lm_bcast(const lm_comm *comm, void *bytes, size_t n, int root);

/** Gather n bytes of each rank to all: out is [size * n] in rank order. Collective. */
void lm_allgather(const lm_comm *comm, const void *mine, size_t n, void *out);

/** Hand n bytes from one rank to another: both call, with the same n. Any n. Blocking; n 0 sends nothing. */
void lm_send(const lm_comm *comm, const void *bytes, size_t n, int to, enum lm_tag tag);
void lm_receive(const lm_comm *comm, void *bytes, size_t n, int from, enum lm_tag tag);

/** Transfers under way. Make room once with lm_transfers_new(); they are then begun, tested and ended without
 * allocating. */
typedef struct lm_transfers {
  MPI_Request *items;
  int n, capacity;
} lm_transfers;

/** Requests that sending or receiving n bytes takes: 1, more for gigabytes, 0 for nothing. Local. */
int lm_transfer_pieces(size_t n);
lm_status lm_transfers_new(lm_transfers *out, int capacity, lm_error *err) LM_NODISCARD;
void lm_transfers_free(lm_transfers *t); /* none may be under way */

/** As lm_send() and lm_receive(), but only begun: the buffer is MPI's until lm_transfers_done() or lm_transfers_wait().
 *  Two messages between the same ranks with the same tag arrive in the order in which they were begun. */
void lm_send_begin(const lm_comm *comm, const void *bytes, size_t n, int to, enum lm_tag tag, lm_transfers *t);
void lm_receive_begin(const lm_comm *comm, void *bytes, size_t n, int from, enum lm_tag tag, lm_transfers *t);

/** Have all ended? Local; lets MPI make progress. */
bool lm_transfers_done(lm_transfers *t);
void lm_transfers_wait(lm_transfers *t);

void lm_barrier(const lm_comm *comm);

#endif
