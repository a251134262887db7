/* tests/checkpoint/test_state.c - state files: what is written comes back, by any ranks, or nothing is written. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/file.h"
#include "hdf5/state_layout.h"
#include "tests/checkpoint/state.h"
#include "tests/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
  lm_status status = state_write(comm, path, s, STATE_TENSORS, &err);
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

/* Several slabs a tensor, cut where no slab ends. */
static void large_tensor(void)
{
  enum { N = 11000003 };
  size_t a = (size_t)N * (size_t)world.rank / (size_t)world.size,
         b = (size_t)N * (size_t)(world.rank + 1) / (size_t)world.size;
  lm_state_slice s = {.name = "/large", .dtype = LM_BF16, .ndim = 1, .shape = {N}, .begin = a, .count = b - a};
  uint16_t *x = calloc(b - a + 1, sizeof *x);
  for (size_t i = a; i < b; i++) x[i - a] = (uint16_t)(i * 2654435761u >> 13);
  s.data = x;
  tap_ok(state_write(&world, path, &s, 1, &err) == LM_OK, "a tensor of 22 MB");
  free(x);
  s.begin = world.rank == 0 ? 3 : 4194304 * (size_t)world.rank - 1; /* next to where slabs of 8 MiB end */
  s.count = world.rank == 0 ? N - 3 : N - s.begin < 4194306 ? N - s.begin : 4194306;
  if (s.begin >= N) s.begin = s.count = 0;
  s.data = x = calloc(s.count + 1, sizeof *x);
  bool good = lm_state_read(&world, path, &s, 1, &err) == LM_OK;
  for (size_t i = 0; good && i < s.count; i++) good = x[i] == (uint16_t)((i + s.begin) * 2654435761u >> 13);
  tap_ok(good, "read by other slices, that overlap");
  free(x);
}

/* 1 + 2^-8 lies half way between two bf16: ties go to the even one. */
static void conversions(void)
{
  float f[4] = {1.0f, 1.00390625f, -2.5f, 1.01171875f};
  lm_bf16 b[4] = {0x3f80, 0x3f81, 0xc020, 0x7f80}, back[4] = {0};
  size_t mine = world.rank == 0 ? 4 : 0;
  lm_state_slice s[2] = {
      {.name = "/f", .dtype = LM_F32, .ndim = 1, .shape = {4}, .count = mine, .data = f},
      {.name = "/b", .dtype = LM_BF16, .ndim = 2, .shape = {2, 2}, .count = mine, .data = b},
  };
  tap_ok(state_write(&world, path, s, 2, &err) == LM_OK, "f32 and bf16");
  s[0].dtype = LM_BF16;
  s[0].data = back;
  s[1].dtype = LM_F32;
  s[1].data = f;
  s[0].begin = s[1].begin = 1;
  s[0].count = s[1].count = 3; /* every rank reads the last three */
  bool good = lm_state_read(&world, path, s, 2, &err) == LM_OK;
  tap_ok(good && back[0] == 0x3f80 && back[1] == 0xc020 && back[2] == 0x3f82, "f32 is rounded to bf16, ties to even");
  tap_ok(good && f[0] == 1.0078125f && f[1] == -2.5f && f[2] == __builtin_inff(), "bf16 is widened to f32");
}

/* The same state gives the same file: but for the hashes' rows, whoever writes it. */
static void same_bytes(void)
{
  lm_buffer first = {0}, second = {0};
  lm_comm one;
  bool good = write_state(&world, 0, 1) && lm_file_read(path, &first, &err) == LM_OK;
  sleep(1); /* HDF5's times are in seconds */
  lm_barrier(&world);
  good = write_state(&world, 0, 1) && lm_file_read(path, &second, &err) == LM_OK && good;
  good = good && first.size == second.size && memcmp(first.data, second.data, first.size) == 0;
  tap_ok(good, "written twice, a file has the same bytes");
  lm_state_layout many = {0}, single = {0};
  good = lm_state_layout_load(path, &many, &err) == LM_OK;
  lm_barrier(&world);
  bool writes = state_ranks(&world, 1, &one);
  if (writes) good = write_state(&one, 0, 1) && good;
  lm_barrier(&world);
  good = good && lm_state_layout_load(path, &single, &err) == LM_OK;
  for (size_t i = 0; good && i < single.n; i++)
    good = memcmp(&many.tensors[i], &single.tensors[i], sizeof single.tensors[i]) == 0;
  tap_ok(good, "one rank and %d put every tensor in the same place", world.size);
  if (writes) MPI_Comm_free(&one.mpi);
  lm_state_layout_free(&many);
  lm_state_layout_free(&single);
  lm_buffer_free(&first);
  lm_buffer_free(&second);
}

int main(int argc, char **argv)
{
  tap_begin(&world, argc, argv);
  name_files();
  round_trips();
  lists();
  lm_barrier(&world);
  large_tensor();
  conversions();
  same_bytes();
  lm_barrier(&world);
  if (world.rank == 0) unlink(path);
  return tap_end();
}
