/* tests/gradsync/host_fabric.h - a fabric on host memory, over MPI: what devices do, on a machine without. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TESTS_GRADSYNC_HOST_FABRIC_H
#define LM_TESTS_GRADSYNC_HOST_FABRIC_H

#include "comm/device.h"
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

/* Calls are carried out at once, which is one of the orders that a device may choose. */
static MPI_Comm fabric_world;
static int fabric_size, fabric_broken_rank = -1; /* which cannot join */
static int fabric_joined;                        /* groups of this rank */

static lm_status fabric_make_id(void *id, lm_error *err)
{
  memset(id, 'x', LM_FABRIC_ID);
  return fabric_broken_rank == -2 ? lm_fail(err, LM_EIO, "the fabric has no network") : LM_OK;
}

static lm_status fabric_join(void **out, const void *id, int rank, int size, int marks, double seconds, lm_error *err)
{
  *out = NULL;
  if (((const char *)id)[LM_FABRIC_ID - 1] != 'x' || marks < 1 || seconds <= 0) abort();
  if (rank == fabric_broken_rank) return lm_fail(err, LM_EIO, "rank %d has no device", rank);
  fabric_size = size;
  fabric_joined++;
  *out = &fabric_world;
  return LM_OK;
}

static void fabric_leave(void *group)
{
  fabric_joined -= group != NULL;
}

static lm_status fabric_poll(void *group, lm_error *err)
{
  (void)group;
  (void)err;
  return LM_OK;
}

static void fabric_nothing(void *group)
{
  (void)group;
}

static void fabric_mark(void *group, int i)
{
  (void)group;
  (void)i;
}

static void fabric_all_reduce(void *group, float *x, size_t n)
{
  (void)group;
  MPI_Allreduce(MPI_IN_PLACE, x, (int)n, MPI_FLOAT, MPI_SUM, fabric_world);
}

static void fabric_reduce_scatter(void *group, float *to, const float *from, size_t each)
{
  float *sum = malloc(each * sizeof *sum);
  (void)group;
  MPI_Reduce_scatter_block(from, sum, (int)each, MPI_FLOAT, MPI_SUM, fabric_world);
  memcpy(to, sum, each * sizeof *sum);
  free(sum);
}

static void fabric_all_gather(void *group, void *to, const void *from, size_t each)
{
  char *all = malloc((size_t)fabric_size * each);
  (void)group;
  MPI_Allgather(from, (int)each, MPI_BYTE, all, (int)each, MPI_BYTE, fabric_world);
  memcpy(to, all, (size_t)fabric_size * each);
  free(all);
}

static void fabric_add(void *group, float *x, const float *y, size_t n)
{
  (void)group;
  for (size_t i = 0; i < n; i++) x[i] += y[i];
}

static void fabric_copy(void *group, void *to, const void *from, size_t bytes)
{
  (void)group;
  if (bytes > 0) memcpy(to, from, bytes);
}

static const lm_fabric host_fabric = {
    .name = "host",
    .make_id = fabric_make_id,
    .join = fabric_join,
    .leave = fabric_leave,
    .abort = fabric_nothing,
    .poll = fabric_poll,
    .fork = fabric_nothing,
    .mark = fabric_mark,
    .await = fabric_mark,
    .all_reduce = fabric_all_reduce,
    .reduce_scatter = fabric_reduce_scatter,
    .all_gather = fabric_all_gather,
    .add = fabric_add,
    .copy = fabric_copy,
};

#endif
