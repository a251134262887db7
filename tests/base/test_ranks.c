/* tests/base/test_ranks.c - thread levels of MPI; the cores of a node's ranks. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/tap.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
  lm_comm comm, self;
  lm_error err;
  cpu_set_t all, one;
  tap_begin(&comm, argc, argv);

  tap_ok(lm_thread_level(MPI_THREAD_MULTIPLE, MPI_THREAD_FUNNELED, &err) == LM_EINVAL &&
             strstr(err.text, "grants MPI_THREAD_FUNNELED, MPI_THREAD_MULTIPLE is needed"),
         "less than is needed is refused, with both names");
  tap_ok(lm_thread_level(MPI_THREAD_FUNNELED, MPI_THREAD_MULTIPLE, &err) == LM_OK, "more than is needed is fine");
  tap_ok(lm_thread_level(MPI_THREAD_SERIALIZED, MPI_THREAD_SERIALIZED, &err) == LM_OK, "as much is fine");
  tap_ok(lm_thread_level(MPI_THREAD_FUNNELED, MPI_THREAD_SINGLE, &err) == LM_EINVAL, "none is refused");

  sched_getaffinity(0, sizeof all, &all);
  int cores = CPU_COUNT(&all), first = 0;
  tap_ok(lm_node_cores(&comm) == cores, "ranks that are not bound have all cores");
  while (!CPU_ISSET(first, &all)) first++;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  sched_setaffinity(0, sizeof one, &one);
  tap_ok(lm_node_cores(&comm) == 1, "ranks that are bound to the same core have one");
  if (comm.rank == 0) sched_setaffinity(0, sizeof all, &all);
  tap_ok(lm_node_cores(&comm) == cores, "one that is not bound has the others");
  lm_comm_self(&self);
  tap_ok(lm_node_cores(&self) == (comm.rank == 0 ? cores : 1), "a rank alone has its own");
  return tap_end();
}
