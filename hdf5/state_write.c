/* hdf5/state_write.c - a state file is laid out by rank 0, and written by all ranks, each its slices. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/fault.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "hdf5/state_layout.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a layout depends on, and the layout. */
struct lm_state_kept {
  uint64_t list; /* hash of names, types, shapes */
  lm_state_layout layout;
};

/* One save under way. write_slices(), which may run in a thread of its own, calls neither MPI nor HDF5; HDF5 is called
 * by begin() alone. */
struct lm_state_save {
  const lm_comm *comm;
  char path[PATH_MAX], part[PATH_MAX];
  const lm_state_slice *slices;
  size_t n;
  lm_state_how how;
  uint64_t list; /* hash of what is saved */
  lm_state_layout layout;
  bool laid_out, refused; /* refused: by how.may */
  lm_state_slab *mine;    /* [n_mine]: the slabs of this rank, by tensor and begin */
  size_t n_mine;
  bool fails; /* a test wants a write to fail */
  bool threaded;
  pthread_t thread;
  atomic_bool done; /* set last: who sees it sees status and why */
  lm_status status; /* of this rank's share */
  lm_error why;
};

/* Where the slab that begins at `at` ends. */
static size_t slab_end(size_t at, size_t end, lm_dtype dtype)
{
  size_t elements = LM_STATE_SLAB_BYTES / lm_dtype_size(dtype), cut = (at / elements + 1) * elements;
  return cut < end ? cut : end;
}

/* ---- before anything is written ---- */

static lm_status part_name(const char *path, char out[PATH_MAX], lm_error *err)
{
  const char *slash = strrchr(path, '/');
  int folder = slash == NULL ? 0 : (int)(slash - path) + 1;
  int n = snprintf(out, PATH_MAX, "%.*s.%s.part", folder, path, path + folder);
  if (n > 0 && n < PATH_MAX && path[folder] != '\0') return LM_OK;
  out[0] = '\0';
  return lm_fail(err, LM_EINVAL, "'%s' cannot be a file's path", path);
}

static void check_slice(const lm_state_slice *s)
{
  LM_ASSERT(memchr(s->name, '\0', sizeof s->name) != NULL && s->name[0] == '/');
  LM_ASSERT(strcmp(s->name, "/integrity") != 0 && strncmp(s->name, "/integrity/", 11) != 0);
  LM_ASSERT(s->ndim >= 0 && s->ndim <= LM_STATE_DIMS && (s->dtype != LM_TEXT || s->ndim == 1));
  LM_ASSERT(s->begin + s->count <= lm_state_elements(s->ndim, s->shape));
  LM_ASSERT(s->count == 0 || (s->data != NULL && !s->on_device));
}

/* The slabs of this rank, or how many: out may be NULL. */
static size_t cut_slabs(const lm_state_save *w, lm_state_slab *out)
{
  size_t k = 0;
  for (size_t i = 0; i < w->n; i++) {
    const lm_state_slice *s = &w->slices[i];
    for (size_t at = s->begin, end; at < s->begin + s->count; at = end, k++) {
      end = slab_end(at, s->begin + s->count, s->dtype);
      if (out != NULL) out[k] = (lm_state_slab){.tensor = i, .begin = at, .count = end - at};
    }
  }
  return k;
}

static lm_status list_tensors(lm_state_save *w, lm_error *err)
{
  LM_TRY(part_name(w->path, w->part, err));
  if (w->how.kept != NULL && *w->how.kept == NULL)
    LM_TRY(lm_alloc(w->how.kept, 1, sizeof **w->how.kept, "the layout of a checkpoint", err));
  LM_TRY(lm_alloc(&w->layout.tensors, w->n, sizeof *w->layout.tensors, "the list of tensors", err));
  w->layout.n = w->n;
  w->layout.ranks = (uint64_t)w->comm->size;
  w->layout.align = w->how.align;
  for (size_t i = 0; i < w->n; i++) {
    const lm_state_slice *s = &w->slices[i];
    lm_state_entry *e = &w->layout.tensors[i].entry;
    check_slice(s);
    strcpy(e->name, s->name);
    e->dtype = s->dtype;
    e->ndim = s->ndim;
    for (int d = 0; d < s->ndim; d++) e->shape[d] = s->shape[d];
  }
  w->list = lm_hash(w->layout.tensors, w->n * sizeof *w->layout.tensors);
  w->n_mine = cut_slabs(w, NULL);
  LM_TRY(lm_alloc(&w->mine, w->n_mine, sizeof *w->mine, "the hashes of a save", err));
  cut_slabs(w, w->mine);
  return LM_OK;
}

/* Ranks that save different things must find out here, not by overwriting each other. */
static lm_status compare_lists(const lm_state_save *w, lm_error *err)
{
  uint64_t mine = w->list, first = mine;
  lm_bcast(w->comm, &first, sizeof first, 0);
  lm_status s = first == mine ? LM_OK
                              : lm_fail(err, LM_EINVAL,
                                        "%s: the list of tensors differs between rank 0 and rank %d: names, types and "
                                        "shapes must be the same",
                                        w->path, w->comm->rank);
  return lm_agree(w->comm, s, err);
}

/* ---- the layout, kept from save to save ---- */

/* Take what the last save kept, if it fits. */
static bool recall(lm_state_save *w)
{
  lm_state_kept *kept = w->how.kept != NULL ? *w->how.kept : NULL;
  const lm_state_layout *mine = &w->layout;
  if (kept == NULL || kept->layout.n == 0 || kept->list != w->list || kept->layout.n_slabs != mine->n_slabs ||
      kept->layout.ranks != mine->ranks || kept->layout.align != mine->align)
    return false;
  lm_state_layout_free(&w->layout);
  w->layout = kept->layout;
  kept->layout = (lm_state_layout){0};
  w->laid_out = true;
  return true;
}

static void keep(lm_state_save *w)
{
  if (w->how.kept == NULL || !w->laid_out) return;
  free(w->layout.slabs);
  w->layout.slabs = NULL;
  lm_state_layout_free(&(*w->how.kept)->layout);
  (*w->how.kept)->layout = w->layout;
  (*w->how.kept)->list = w->list;
  w->layout = (lm_state_layout){0};
}

void lm_state_kept_free(lm_state_kept *kept)
{
  if (kept == NULL) return;
  lm_state_layout_free(&kept->layout);
  free(kept);
}

/* Rank 0 has the file, and where all goes. */
static lm_status make_part(lm_state_save *w, bool recalled, lm_error *err)
{
  if (w->comm->rank != 0) return LM_OK;
  LM_TRY(lm_state_room_new(w->part, w->layout.bytes, err)); /* not known yet: 0 */
  if (recalled) return LM_OK;
  LM_TRY(lm_state_layout_make(w->part, &w->layout, err));
  return lm_state_room_ask(w->part, w->layout.bytes, err);
}

/* What is recalled is so on all ranks, which have compared all that it depends on. */
static lm_status lay_out(lm_state_save *w, lm_error *err)
{
  bool recalled = recall(w);
  LM_TRY(lm_agree(w->comm, make_part(w, recalled, err), err));
  if (recalled) return LM_OK;
  lm_bcast(w->comm, w->layout.tensors, w->n * sizeof *w->layout.tensors, 0);
  w->laid_out = true;
  return LM_OK;
}

static lm_status begin(lm_state_save *w, lm_error *err)
{
  LM_TRY(lm_agree(w->comm, list_tensors(w, err), err));
  LM_TRY(compare_lists(w, err));
  uint64_t slabs = w->n_mine;
  lm_allreduce_sum_u64(w->comm, &slabs, 1);
  w->layout.n_slabs = slabs;
  return lay_out(w, err);
}

/* ---- the data ---- */

static lm_state_piece piece_of(const lm_state_save *w, const lm_state_slab *slab)
{
  const lm_state_slice *s = &w->slices[slab->tensor];
  size_t width = lm_dtype_size(s->dtype);
  return (lm_state_piece){.data = (const char *)s->data + (slab->begin - s->begin) * width,
                          .bytes = slab->count * width,
                          .at = w->layout.tensors[slab->tensor].offset + slab->begin * width};
}

/* What a test asks for happens half way through the rank's slabs. */
static lm_status faults(const lm_state_save *w, size_t k, lm_error *err)
{
  if (k != w->n_mine / 2) return LM_OK;
  lm_fault_pause(LM_FAULT_SLOW_SAVE);
  return w->fails ? lm_fail(err, LM_EIO, "%s: cannot write: %s (MPILM_FAULT)", w->part, strerror(EIO)) : LM_OK;
}

static lm_status write_all(lm_state_save *w, int fd, lm_error *err)
{
  for (size_t k = 0; k < w->n_mine; k++) {
    lm_state_piece p = piece_of(w, &w->mine[k]);
    LM_TRY(faults(w, k, err));
    w->mine[k].hash = lm_hash(p.data, p.bytes);
    LM_TRY(lm_pwrite_all(fd, w->part, p.data, p.bytes, (off_t)p.at, err));
  }
  return w->n_mine == 0 ? faults(w, 0, err) : LM_OK;
}

/* Each rank makes its own writes durable: they may sit in the page cache of another node than rank 0's. */
static lm_status make_durable(const lm_state_save *w, int fd, lm_error *err)
{
  return fsync(fd) == 0 ? LM_OK : lm_fail(err, LM_EIO, "%s: cannot fsync: %s", w->part, strerror(errno));
}

/* What was written, read again and compared: from the disk where the kernel lets go of its pages, which it does on
 * local file systems once they are durable. */
static lm_status read_back(const lm_state_save *w, int fd, lm_error *err)
{
  char *bytes, name[256];
  LM_TRY(lm_alloc(&bytes, LM_STATE_SLAB_BYTES, 1, "a slab of the state", err));
  posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  lm_status s = LM_OK;
  for (size_t k = 0; s == LM_OK && k < w->n_mine; k++) {
    lm_state_piece p = piece_of(w, &w->mine[k]);
    s = lm_pread_all(fd, w->part, bytes, p.bytes, (off_t)p.at, err);
    if (s != LM_OK || lm_hash(bytes, p.bytes) == w->mine[k].hash) continue;
    lm_state_slab_name(&w->layout, &w->mine[k], name);
    s = lm_fail(err, LM_EIO, "%s: %s: what is read back is not what was written", w->part, name);
  }
  free(bytes);
  return s;
}

/* Open the file that rank 0 made, which rank 0 gives its length and its blocks. *fd is -1 after a failure to open. */
static lm_status open_part(const lm_state_save *w, int *fd, lm_error *err)
{
  *fd = open(w->part, O_RDWR | O_CLOEXEC);
  if (*fd < 0) return lm_fail(err, LM_EIO, "%s: cannot open for writing: %s", w->part, strerror(errno));
  return w->comm->rank == 0 ? lm_state_room_take(*fd, w->part, w->layout.bytes, err) : LM_OK;
}

static lm_status close_part(const lm_state_save *w, int fd, lm_status s, lm_error *err)
{
  if (fd < 0 || close(fd) == 0 || s != LM_OK) return s;
  return lm_fail(err, LM_EIO, "%s: cannot close: %s", w->part, strerror(errno));
}

/* The data may still be on their way out of a device. */
static void wait_for_data(const lm_state_save *w)
{
  lm_fault_pause(LM_FAULT_LATE_SAVE);
  if (w->how.wait != NULL) w->how.wait();
}

static lm_status write_slices(lm_state_save *w, lm_error *err)
{
  int fd;
  wait_for_data(w);
  lm_status s = open_part(w, &fd, err);
  if (s == LM_OK) s = write_all(w, fd, err);
  if (s == LM_OK) s = make_durable(w, fd, err);
  if (s == LM_OK && w->how.read_back) s = read_back(w, fd, err);
  return close_part(w, fd, s, err);
}

static void *write_in_thread(void *save)
{
  lm_state_save *w = save;
  w->status = write_slices(w, &w->why);
  atomic_store(&w->done, true);
  return NULL;
}

/* Signals are for the thread that trains: it is the one that looks at them. */
static bool start_thread(lm_state_save *w)
{
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = pthread_create(&w->thread, NULL, write_in_thread, w) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return started;
}

/* ---- the data, by all ranks at once ---- */

static int by_place(const void *a, const void *b)
{
  const lm_state_piece *x = a, *y = b;
  return (x->at > y->at) - (x->at < y->at);
}

/* What this rank has to write, hashed and in the order of the file. */
static lm_status make_pieces(lm_state_save *w, lm_state_piece **out, lm_error *err)
{
  LM_TRY(lm_alloc(out, w->n_mine, sizeof **out, "the pieces of a save", err));
  for (size_t k = 0; k < w->n_mine; k++) {
    (*out)[k] = piece_of(w, &w->mine[k]);
    w->mine[k].hash = lm_hash((*out)[k].data, (*out)[k].bytes);
  }
  LM_TRY(faults(w, w->n_mine / 2, err));
  if (w->n_mine > 0) qsort(*out, w->n_mine, sizeof **out, by_place);
  return LM_OK;
}

/* A rank that cannot go on must say so before the others wait for it in a collective call. What MPI-IO says of a write
 * is not enough: Open MPI 4.1's ompio prints that a write failed, and returns success. So all is read back, after every
 * rank's fsync, since another rank may have written this one's bytes. */
static lm_status write_together(lm_state_save *w, lm_error *err)
{
  enum { MOST = 1 << 30 };
  int fd;
  lm_state_piece *pieces = NULL;
  wait_for_data(w);
  lm_status s = open_part(w, &fd, err);
  if (s == LM_OK) s = make_pieces(w, &pieces, err);
  s = lm_agree(w->comm, s, err);
  if (s == LM_OK) s = lm_state_write_together(w->comm, w->part, w->how.hints, pieces, w->n_mine, MOST, err);
  if (s == LM_OK) s = lm_agree(w->comm, make_durable(w, fd, err), err);
  if (s == LM_OK) s = lm_agree(w->comm, read_back(w, fd, err), err);
  free(pieces);
  lm_status closed = close_part(w, fd, s, err);
  return s == LM_OK ? lm_agree(w->comm, closed, err) : s; /* what was agreed on keeps the name of its rank */
}

static void write_now(lm_state_save *w)
{
  if (!w->how.together) {
    write_in_thread(w);
    return;
  }
  w->status = write_together(w, &w->why);
  atomic_store(&w->done, true);
}

/* ---- the end ---- */

/* The slabs of all ranks, in order, on every rank. */
static lm_status gather_slabs(lm_state_save *w, lm_error *err)
{
  double most = (double)w->n_mine;
  lm_state_slab *padded = NULL, *all = NULL, *out = NULL;
  lm_allreduce_max_f64(w->comm, &most, 1);
  size_t rows = (size_t)most, size = (size_t)w->comm->size;
  lm_status s = lm_alloc(&padded, rows, sizeof *padded, "the hashes of a save", err);
  if (s == LM_OK) s = lm_alloc(&all, rows * size, sizeof *all, "the hashes of all ranks", err);
  if (s == LM_OK) s = lm_alloc(&out, w->layout.n_slabs, sizeof *out, "the hashes of all ranks", err);
  s = lm_agree(w->comm, s, err);
  if (s == LM_OK) {
    if (w->n_mine > 0) memcpy(padded, w->mine, w->n_mine * sizeof *padded);
    lm_allgather(w->comm, padded, rows * sizeof *padded, all);
    size_t k = 0;
    for (size_t i = 0; i < rows * size; i++)
      if (all[i].count > 0) out[k++] = all[i]; /* a row of padding counts nothing */
    LM_ASSERT(k == w->layout.n_slabs);
    qsort(out, k, sizeof *out, lm_state_slab_order);
  }
  free(padded);
  free(all);
  w->layout.slabs = out;
  return s;
}

static lm_status commit(lm_state_save *w, lm_error *err)
{
  LM_TRY(lm_state_layout_check(w->path, &w->layout, LM_EINVAL, err));
  w->refused = w->how.may != NULL && w->how.may(w->how.context, err) != LM_OK;
  if (w->refused) return LM_EPEER;
  LM_TRY(lm_state_layout_seal(w->part, &w->layout, err));
  return lm_file_commit(w->part, w->path, err);
}

static void release(lm_state_save *w)
{
  keep(w);
  lm_state_layout_free(&w->layout);
  free(w->mine);
  free(w);
}

lm_status lm_state_write_begin(lm_state_save **out, const lm_comm *comm, const char *path, const lm_state_slice *slices,
                               size_t n, const lm_state_how *how, lm_error *err)
{
  static uint64_t saves; /* of this process: fail_write@ckpt2 means the second */
  lm_state_save *w;
  *out = NULL;
  LM_TRY(lm_alloc_agreed(comm, &w, 1, sizeof *w, "a save", err));
  w->comm = comm;
  w->slices = slices;
  w->n = n;
  w->how = *how;
  w->how.background = how->background && !how->together; /* only the main thread calls MPI */
  w->fails = lm_fault(LM_FAULT_FAIL_WRITE, ++saves);
  snprintf(w->path, sizeof w->path, "%s", path);
  lm_status s = begin(w, err);
  if (s != LM_OK) {
    if (comm->rank == 0) unlink(w->part);
    release(w);
    return s;
  }
  w->threaded = w->how.background && start_thread(w);
  if (w->how.background && !w->threaded)
    lm_warn_all("%s: no thread for this save: it is written between two steps", path);
  if (!w->threaded) write_now(w); /* slower, not less safe */
  *out = w;
  return LM_OK;
}

bool lm_state_write_done(const lm_state_save *save)
{
  return atomic_load(&save->done);
}

lm_status lm_state_write_end(lm_state_save *w, lm_error *err)
{
  if (w->threaded) pthread_join(w->thread, NULL);
  if (w->status != LM_OK && err != NULL) *err = w->why;
  lm_status s = w->how.together ? w->status : lm_agree(w->comm, w->status, err);
  if (s == LM_OK) s = gather_slabs(w, err);
  if (s == LM_OK) s = lm_agree(w->comm, w->comm->rank == 0 ? commit(w, err) : LM_OK, err);
  /* After lm_agree(): no rank writes to it any more. */
  if (s != LM_OK && w->comm->rank == 0 && !w->refused) unlink(w->part);
  release(w);
  return s;
}
