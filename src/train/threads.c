/* src/train/threads.c - how many threads a rank computes with. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/threads.h"

#include "base/log.h"

#include <omp.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

/* The cores this process may run on. Where the launcher bound the ranks, they are its own; else the whole node's. */
static int own_cores(const lm_comm *comm)
{
  cpu_set_t set;
  int online = (int)sysconf(_SC_NPROCESSORS_ONLN);
  int allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : online;
  if (allowed < online) return allowed;
  return allowed / comm->local_size > 0 ? allowed / comm->local_size : 1;
}

void lm_threads_set(const lm_comm *comm, int64_t wanted)
{
  int cores = own_cores(comm);
  if (wanted > 0)
    omp_set_num_threads((int)wanted);
  else if (getenv("OMP_NUM_THREADS") == NULL)
    omp_set_num_threads(cores);
  if (lm_threads() > cores)
    lm_warn("%d threads a rank, but %d core%s: they wait for each other (run.threads, OMP_NUM_THREADS)", lm_threads(),
            cores, cores > 1 ? "s" : "");
}

void lm_threads_report(const lm_comm *comm)
{
  int level, cores = lm_node_cores(comm), wanted = comm->local_size * lm_threads();
  double who = wanted > cores ? -comm->rank : -comm->size; /* the lowest rank that sees it speaks */
  lm_allreduce_max_f64(comm, &who, 1);
  MPI_Query_thread(&level);
  lm_verbose("MPI grants %s; the %d ranks of the first node run on %d cores", lm_thread_level_name(level),
             comm->local_size, cores);
  if (comm->size > 1 && who == -comm->rank)
    lm_warn_all("%d ranks x %d thread%s of this node run on %d core%s: they wait for each other (mpirun --bind-to, "
                "--map-by; fewer ranks; OMP_WAIT_POLICY=passive)",
                comm->local_size, lm_threads(), lm_threads() > 1 ? "s" : "", cores, cores > 1 ? "s" : "");
}

int lm_threads(void)
{
  return omp_get_max_threads();
}
