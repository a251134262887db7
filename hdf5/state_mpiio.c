/* hdf5/state_mpiio.c - all ranks write their pieces of a state file in collective calls of MPI-IO. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "hdf5/state_layout.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a save is to ROMIO: every byte is written once, by one rank, so reading before writing (data sieving) costs
 * twice the bytes and needs locks; and whoever asks for this writer wants few ranks to write large runs. Others ignore
 * it. */
#define OUR_HINTS "romio_ds_write=disable,romio_ds_read=disable,romio_cb_write=enable"

/* ---- hints ---- */

/* The next "key=value" of a list; false at its end, or where it is none: then *list is where it stands. */
static bool next_hint(const char **list, char key[MPI_MAX_INFO_KEY + 1], char value[MPI_MAX_INFO_VAL + 1])
{
  size_t whole = strcspn(*list, ","), name = strcspn(*list, "=,");
  if (whole == 0 || name == 0 || name == whole || name > MPI_MAX_INFO_KEY || whole - name - 1 > MPI_MAX_INFO_VAL)
    return false;
  snprintf(key, MPI_MAX_INFO_KEY + 1, "%.*s", (int)name, *list);
  snprintf(value, MPI_MAX_INFO_VAL + 1, "%.*s", (int)(whole - name - 1), *list + name + 1);
  *list += whole + ((*list)[whole] == ',');
  return true;
}

lm_status lm_state_check_hints(const char *hints, lm_error *err)
{
  char key[MPI_MAX_INFO_KEY + 1], value[MPI_MAX_INFO_VAL + 1];
  const char *at = hints != NULL ? hints : "";
  while (next_hint(&at, key, value)) continue;
  if (*at == '\0') return LM_OK;
  return lm_fail(err, LM_EINVAL, "'%.*s' is no hint for MPI-IO; want key=value, separated by commas",
                 (int)strcspn(at, ","), at);
}

static void add_hints(MPI_Info info, const char *list)
{
  char key[MPI_MAX_INFO_KEY + 1], value[MPI_MAX_INFO_VAL + 1];
  while (next_hint(&list, key, value)) MPI_Info_set(info, key, value);
}

/* ---- one call ---- */

static lm_status fail_mpi(lm_error *err, int code, const char *what, const char *path)
{
  char text[MPI_MAX_ERROR_STRING];
  int n;
  if (code == MPI_SUCCESS) return LM_OK;
  MPI_Error_string(code, text, &n);
  return lm_fail(err, LM_EIO, "%s: MPI-IO cannot %s: %s", path, what, text);
}

/* Pieces as MPI sees them: where they are in memory and in the file. */
struct runs {
  int *lengths;
  MPI_Aint *in_memory, *in_file;
};

static lm_status runs_new(struct runs *r, size_t n, lm_error *err)
{
  *r = (struct runs){0};
  LM_TRY(lm_alloc(&r->lengths, n, sizeof *r->lengths, "the pieces of a save", err));
  LM_TRY(lm_alloc(&r->in_memory, n, sizeof *r->in_memory, "the pieces of a save", err));
  return lm_alloc(&r->in_file, n, sizeof *r->in_file, "the pieces of a save", err);
}

static void runs_free(struct runs *r)
{
  free(r->lengths);
  free(r->in_memory);
  free(r->in_file);
}

static MPI_Datatype type_of(size_t n, const int *lengths, const MPI_Aint *at)
{
  MPI_Datatype t;
  if (n == 0) MPI_Type_contiguous(0, MPI_BYTE, &t);
  if (n > 0) MPI_Type_create_hindexed((int)n, lengths, at, MPI_BYTE, &t);
  MPI_Type_commit(&t);
  return t;
}

/* Collective. A rank without pieces takes part with none. */
static lm_status write_some(MPI_File file, const char *path, struct runs *r, const lm_state_piece *pieces, size_t n,
                            lm_error *err)
{
  size_t bytes = 0;
  for (size_t i = 0; i < n; i++) {
    r->lengths[i] = (int)pieces[i].bytes;
    MPI_Get_address(pieces[i].data, &r->in_memory[i]);
    r->in_file[i] = (MPI_Aint)pieces[i].at;
    bytes += pieces[i].bytes;
  }
  MPI_Datatype memory = type_of(n, r->lengths, r->in_memory), view = type_of(n, r->lengths, r->in_file);
  MPI_Status status;
  MPI_Count written = 0;
  int code = MPI_File_set_view(file, 0, MPI_BYTE, n > 0 ? view : MPI_BYTE, "native", MPI_INFO_NULL);
  int wrote = MPI_File_write_all(file, MPI_BOTTOM, n > 0, memory, &status); /* whatever set_view said: all must come */
  if (code == MPI_SUCCESS) code = wrote;
  if (code == MPI_SUCCESS && n > 0) MPI_Get_elements_x(&status, MPI_BYTE, &written);
  MPI_Type_free(&memory);
  MPI_Type_free(&view);
  LM_TRY(fail_mpi(err, code, "write", path));
  if ((size_t)written == bytes) return LM_OK;
  return lm_fail(err, LM_EIO, "%s: MPI-IO wrote %lld of %zu bytes", path, (long long)written, bytes);
}

/* ---- all of them ---- */

/* How many pieces the next call takes: at least one, and as many as have `most` bytes together. */
static size_t share_of(const lm_state_piece *pieces, size_t n, size_t most)
{
  size_t k = 0, bytes = 0;
  while (k < n && k < INT_MAX && (k == 0 || bytes + pieces[k].bytes <= most)) bytes += pieces[k++].bytes;
  return k;
}

static lm_status write_rounds(const lm_comm *comm, MPI_File file, const char *path, const lm_state_piece *pieces,
                              size_t n, size_t most, lm_error *err)
{
  struct runs r;
  double rounds = 0;
  lm_status s = lm_agree(comm, runs_new(&r, n, err), err);
  for (size_t k = 0; k < n; k += share_of(pieces + k, n - k, most)) rounds++;
  lm_allreduce_max_f64(comm, &rounds, 1);
  for (; s == LM_OK && rounds > 0; rounds--) {
    size_t k = share_of(pieces, n, most);
    s = lm_agree(comm, write_some(file, path, &r, pieces, k, err), err);
    pieces += k;
    n -= k;
  }
  runs_free(&r);
  return s;
}

lm_status lm_state_write_together(const lm_comm *comm, const char *path, const char *hints,
                                  const lm_state_piece *pieces, size_t n, size_t most, lm_error *err)
{
  MPI_File file;
  MPI_Info info;
  LM_ASSERT(most > 0 && most <= INT_MAX);
  MPI_Info_create(&info);
  add_hints(info, OUR_HINTS);
  if (hints != NULL) add_hints(info, hints);
  int code = MPI_File_open(comm->mpi, path, MPI_MODE_WRONLY, info, &file);
  MPI_Info_free(&info);
  /* Where one rank alone could not open, the others' handles stay: to close them takes all ranks. */
  LM_TRY(lm_agree(comm, fail_mpi(err, code, "open", path), err));
  lm_status s = write_rounds(comm, file, path, pieces, n, most, err);
  code = MPI_File_close(&file);
  return s != LM_OK ? s : lm_agree(comm, fail_mpi(err, code, "close", path), err);
}
