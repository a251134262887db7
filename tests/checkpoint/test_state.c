/* tests/checkpoint/test_state.c - state files: what is written comes back, by any ranks, or nothing is written. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/fault.h"
#include "base/file.h"
#include "hdf5/library.h"
#include "tests/checkpoint/state.h"
#include "tests/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static lm_comm world;
static lm_error err;
static char path[256], part[256]; /* the same on all ranks, apart from other tests */

static void name_files(void)
{
  int id = (int)getpid();
  lm_bcast(&world, &id, sizeof id, 0);
  snprintf(path, sizeof path, "state-%d.h5", id);
  snprintf(part, sizeof part, ".state-%d.h5.part", id);
}

static bool write_state(const lm_comm *comm, unsigned cut, unsigned version)
{
  lm_state_slice s[STATE_TENSORS];
  state_new(s, comm, cut, version);
  lm_status status = lm_state_write(comm, path, s, STATE_TENSORS, &err);
  if (status != LM_OK) fprintf(stderr, "# %s\n", err.text);
  state_free(s);
  return status == LM_OK;
}

static bool read_state(const lm_comm *comm, unsigned cut, unsigned version)
{
  lm_state_slice s[STATE_TENSORS];
  state_new(s, comm, cut, version);
  state_clear(s);
  lm_status status = lm_state_read(comm, path, s, STATE_TENSORS, &err);
  if (status != LM_OK) fprintf(stderr, "# %s\n", err.text);
  bool good = status == LM_OK && state_is(s, version);
  state_free(s);
  return good;
}

/* Saved on n ranks, read on m, each with its own cuts. */
static void round_trips(void)
{
  for (int n = 1; n <= world.size; n++)
    for (int m = 1; m <= world.size; m++) {
      bool good = true;
      lm_comm writers, readers;
      bool write = state_ranks(&world, n, &writers), read = state_ranks(&world, m, &readers);
      for (unsigned cut = 0; cut < 6; cut++) {
        if (write) good = write_state(&writers, cut, cut) && good;
        lm_barrier(&world);
        if (read) good = read_state(&readers, cut + 1, cut) && good;
        lm_barrier(&world);
      }
      if (write) MPI_Comm_free(&writers.mpi);
      if (read) MPI_Comm_free(&readers.mpi);
      tap_ok(good, "written by %d ranks, read by %d, cut anywhere", n, m);
    }
  uint64_t ranks = 0;
  tap_ok(lm_state_verify(path, &err) == LM_OK, "and it verifies");
  tap_ok(lm_state_ranks(path, &ranks, &err) == LM_OK && ranks == (uint64_t)world.size,
         "it knows how many ranks wrote it");
  tap_ok(!lm_file_exists(part), "no temporary file is left");
}

static void lists(void)
{
  lm_state_slice s[STATE_TENSORS];
  lm_state_entry *e;
  size_t n;
  state_new(s, &world, 0, 0);
  bool good = lm_state_list(path, &e, &n, &err) == LM_OK && n == STATE_TENSORS;
  for (size_t i = 0; good && i < n; i++) {
    good = strcmp(e[i].name, s[i].name) == 0 && e[i].dtype == s[i].dtype && e[i].ndim == s[i].ndim;
    for (int d = 0; good && d < e[i].ndim; d++) good = e[i].shape[d] == s[i].shape[d];
  }
  tap_ok(good, "names, types and shapes are listed in the order written");
  free(e);
  state_free(s);
}

int main(int argc, char **argv)
{
  tap_begin(&world, argc, argv);
  name_files();
  round_trips();
  lists();
  lm_barrier(&world);
  if (world.rank == 0) unlink(path);
  return tap_end();
}
