/* hdf5/state_read.c - slices of tensors out of a state file, every byte of it compared with its hash. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/file.h"
#include "base/hash.h"
#include "hdf5/state_layout.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One file being read by one rank. */
struct reader {
  const char *path;
  const lm_state_layout *layout;
  int fd;
  char *slab;      /* room for the longest slab: what does not go straight to its place */
  char *converted; /* and as the program wants it, where its place is on a device */
};

/* A slab longer than LM_STATE_SLAB_BYTES comes from a program that cuts otherwise; none of ours does. */
static lm_status longest_slab(const char *path, const lm_state_layout *layout, size_t *bytes, lm_error *err)
{
  *bytes = 0;
  for (size_t k = 0; k < layout->n_slabs; k++) {
    const lm_state_slab *s = &layout->slabs[k];
    size_t width = lm_dtype_size(layout->tensors[s->tensor].entry.dtype);
    if (s->count > LM_STATE_SLAB_BYTES / width)
      return lm_fail(err, LM_EDAMAGED, "%s: a slab has %" PRIu64 " elements, at most %zu are allowed", path, s->count,
                     LM_STATE_SLAB_BYTES / width);
    if (s->count * width > *bytes) *bytes = s->count * width;
  }
  return LM_OK;
}

static lm_status reader_open(struct reader *r, const char *path, const lm_state_layout *layout, lm_error *err)
{
  size_t bytes;
  *r = (struct reader){.path = path, .layout = layout, .fd = open(path, O_RDONLY | O_CLOEXEC)};
  if (r->fd < 0) return lm_fail(err, LM_EIO, "%s: cannot open for reading: %s", path, strerror(errno));
  LM_TRY(longest_slab(path, layout, &bytes, err));
  LM_TRY(lm_alloc(&r->converted, 2 * bytes, 1, "a slab of the state", err));
  return lm_alloc(&r->slab, bytes, 1, "a slab of the state", err);
}

static void reader_close(struct reader *r)
{
  if (r->fd >= 0) close(r->fd);
  free(r->slab);
  free(r->converted);
}

/* One slab, from the disk to `to`, compared with its hash. */
static lm_status read_slab(const struct reader *r, const lm_state_slab *slab, void *to, lm_error *err)
{
  const lm_state_place *p = &r->layout->tensors[slab->tensor];
  size_t width = lm_dtype_size(p->entry.dtype), bytes = slab->count * width;
  LM_TRY(lm_pread_all(r->fd, r->path, to, bytes, (off_t)(p->offset + slab->begin * width), err));
  uint64_t hash = lm_hash(to, bytes);
  if (hash == slab->hash) return LM_OK;
  char name[256];
  lm_state_slab_name(r->layout, slab, name);
  return lm_fail(err, LM_EDAMAGED, "%s: %s: damaged: its hash is %016" PRIx64 ", %016" PRIx64 " was written", r->path,
                 name, hash, slab->hash);
}

/* ---- slices ---- */

static void copy_elements(void *to, lm_dtype to_type, const void *from, lm_dtype from_type, size_t n)
{
  if (to_type == from_type)
    memcpy(to, from, n * lm_dtype_size(to_type));
  else
    for (size_t i = 0; i < n; i++) {
      float x = from_type == LM_F32 ? ((const float *)from)[i] : lm_half_to_f32(from_type, ((const uint16_t *)from)[i]);
      if (to_type == LM_F32)
        ((float *)to)[i] = x;
      else
        ((uint16_t *)to)[i] = lm_half_from_f32(to_type, x);
    }
}

/* What slice and slab have in common. */
static lm_status read_common(const struct reader *r, const lm_state_slab *slab, const lm_state_slice *s, lm_error *err)
{
  lm_dtype stored = r->layout->tensors[slab->tensor].entry.dtype;
  size_t width = lm_dtype_size(s->dtype), end = slab->begin + slab->count, slice_end = s->begin + s->count;
  size_t from = slab->begin > s->begin ? slab->begin : s->begin, to = end < slice_end ? end : slice_end;
  char *place = (char *)s->data + (from - s->begin) * width;
  if (to - from == slab->count && stored == s->dtype && s->put == NULL) return read_slab(r, slab, place, err);
  LM_TRY(read_slab(r, slab, r->slab, err));
  const char *elements = r->slab + (from - slab->begin) * lm_dtype_size(stored);
  copy_elements(s->put != NULL ? r->converted : place, s->dtype, elements, stored, to - from);
  if (s->put != NULL) s->put(place, r->converted, (to - from) * width);
  return LM_OK;
}

/* The first slab of `tensor` that ends beyond element `at`: slabs are in order and without gaps. */
static size_t find_slab(const lm_state_layout *layout, size_t tensor, size_t at)
{
  size_t low = 0, high = layout->n_slabs;
  while (low < high) {
    size_t mid = low + (high - low) / 2;
    const lm_state_slab *s = &layout->slabs[mid];
    if (s->tensor < tensor || (s->tensor == tensor && s->begin + s->count <= at))
      low = mid + 1;
    else
      high = mid;
  }
  return low;
}

/* ---- what is asked for, and what there is ---- */

static int by_name(const void *a, const void *b)
{
  const lm_state_place *const *x = a, *const *y = b;
  return strcmp((*x)->entry.name, (*y)->entry.name);
}

static void print_shape(int ndim, const size_t *shape, char out[128])
{
  int n = snprintf(out, 128, "[");
  for (int i = 0; i < ndim; i++) n += snprintf(out + n, 128 - (size_t)n, "%s%zu", i > 0 ? ", " : "", shape[i]);
  snprintf(out + n, 128 - (size_t)n, "]");
}

static bool is_float(lm_dtype t)
{
  return t == LM_F32 || t == LM_BF16 || t == LM_F16;
}

static bool converts(lm_dtype a, lm_dtype b)
{
  return a == b || (is_float(a) && is_float(b));
}

static lm_status check_fit(const char *path, const lm_state_entry *e, const lm_state_slice *s, lm_error *err)
{
  bool same = e->ndim == s->ndim;
  for (int i = 0; same && i < s->ndim; i++) same = e->shape[i] == s->shape[i];
  char theirs[128], ours[128];
  print_shape(e->ndim, e->shape, theirs);
  print_shape(s->ndim, s->shape, ours);
  if (!same) return lm_fail(err, LM_EINVAL, "%s: %s has shape %s, this run wants %s", path, e->name, theirs, ours);
  if (converts(e->dtype, s->dtype)) return LM_OK;
  return lm_fail(err, LM_EINVAL, "%s: %s has type %s, this run wants %s", path, e->name, lm_dtype_name(e->dtype),
                 lm_dtype_name(s->dtype));
}

#define NO_TENSOR SIZE_MAX /* of an optional slice */

static const lm_state_place *const *find(const lm_state_place **sorted, size_t n, const char *name)
{
  lm_state_place wanted = {0};
  const lm_state_place *key = &wanted;
  snprintf(wanted.entry.name, sizeof wanted.entry.name, "%s", name);
  return bsearch(&key, sorted, n, sizeof *sorted, by_name);
}

/* tensors[i] becomes the tensor of slices[i]. */
static lm_status match(const char *path, const lm_state_layout *layout, const lm_state_slice *slices, size_t n,
                       size_t *tensors, lm_error *err)
{
  const lm_state_place **sorted;
  lm_status s = lm_alloc(&sorted, layout->n, sizeof *sorted, "the names of tensors", err);
  for (size_t i = 0; s == LM_OK && i < layout->n; i++) sorted[i] = &layout->tensors[i];
  if (s == LM_OK) qsort(sorted, layout->n, sizeof *sorted, by_name);
  for (size_t i = 0; s == LM_OK && i < n; i++) {
    LM_ASSERT(slices[i].begin + slices[i].count <= lm_state_elements(slices[i].ndim, slices[i].shape));
    const lm_state_place *const *found = find(sorted, layout->n, slices[i].name);
    if (found == NULL && slices[i].instead[0] != '\0') found = find(sorted, layout->n, slices[i].instead);
    tensors[i] = NO_TENSOR;
    if (found != NULL)
      s = check_fit(path, &(*found)->entry, &slices[i], err);
    else if (!slices[i].optional)
      s = lm_fail(err, LM_EINVAL, "%s: has no %s, which this run wants", path, slices[i].name);
    if (s == LM_OK && found != NULL) tensors[i] = (size_t)(*found - layout->tensors);
  }
  free(sorted);
  return s;
}

/* A slab that a slice has something of. */
struct piece {
  const lm_state_slab *slab;
  const lm_state_slice *slice;
};

/* Of all slices, in their order. @param[out] out  NULL: they are counted only @return how many */
static size_t list_pieces(const lm_state_layout *l, const lm_state_slice *slices, size_t n, const size_t *tensors,
                          struct piece *out)
{
  size_t count = 0;
  for (size_t i = 0; i < n; i++) {
    const lm_state_slice *s = &slices[i];
    if (tensors[i] == NO_TENSOR || s->count == 0) continue;
    for (size_t k = find_slab(l, tensors[i], s->begin); k < l->n_slabs; k++) {
      if (l->slabs[k].tensor != tensors[i] || l->slabs[k].begin >= s->begin + s->count) break;
      if (out != NULL) out[count] = (struct piece){&l->slabs[k], s};
      count++;
    }
  }
  return count;
}

/* By one thread of several: the pieces that no other has taken. *first_bad is the lowest that failed until now; what
 * comes after it need not be read. */
static void read_pieces(const char *path, const lm_state_layout *layout, const struct piece *pieces, size_t n,
                        size_t *next, size_t *first_bad, lm_error *why)
{
  struct reader r;
  lm_error mine;
  lm_status s = reader_open(&r, path, layout, &mine);
  for (size_t i = 0;;) {
    size_t bad;
#pragma omp atomic capture
    i = (*next)++;
#pragma omp atomic read
    bad = *first_bad;
    if (i >= n || i > bad) break;
    if (s == LM_OK) s = read_common(&r, pieces[i].slab, pieces[i].slice, &mine);
    if (s == LM_OK) continue;
#pragma omp critical(lm_state_read)
    if (i < *first_bad) {
#pragma omp atomic write
      *first_bad = i;
      *why = mine;
    }
    break;
  }
  reader_close(&r);
}

static bool to_devices(const lm_state_slice *slices, size_t n)
{
  for (size_t i = 0; i < n; i++)
    if (slices[i].put != NULL) return true;
  return false;
}

/* All threads of the rank read, convert and hash: one alone does not keep a disk busy. */
static lm_status read_all(const char *path, const lm_state_layout *layout, const lm_state_slice *slices, size_t n,
                          const size_t *tensors, lm_error *err)
{
  struct piece *pieces;
  size_t count = list_pieces(layout, slices, n, tensors, NULL), next = 0, first_bad = SIZE_MAX;
  lm_error why;
  LM_TRY(lm_alloc(&pieces, count, sizeof *pieces, "the list of slabs", err));
  list_pieces(layout, slices, n, tensors, pieces);
#pragma omp parallel if (!to_devices(slices, n))
  read_pieces(path, layout, pieces, count, &next, &first_bad, &why);
  free(pieces);
  if (first_bad == SIZE_MAX) return LM_OK;
  if (err != NULL) *err = why;
  return why.status;
}

/* Rank 0 alone opens the file with HDF5; the others get what it found. */
static lm_status load_shared(const lm_comm *comm, const char *path, lm_state_layout *layout, lm_error *err)
{
  *layout = (lm_state_layout){0};
  LM_TRY(lm_agree(comm, comm->rank == 0 ? lm_state_layout_load(path, layout, err) : LM_OK, err));
  lm_state_layout mine = *layout;
  lm_bcast(comm, layout, sizeof *layout, 0);
  layout->tensors = mine.tensors;
  layout->slabs = mine.slabs;
  layout->between = mine.between;
  lm_status s = LM_OK;
  if (comm->rank != 0) {
    s = lm_alloc(&layout->tensors, layout->n, sizeof *layout->tensors, "the list of tensors", err);
    if (s == LM_OK) s = lm_alloc(&layout->slabs, layout->n_slabs, sizeof *layout->slabs, "the list of slabs", err);
  }
  s = lm_agree(comm, s, err);
  if (s != LM_OK) return s;
  lm_bcast(comm, layout->tensors, layout->n * sizeof *layout->tensors, 0);
  lm_bcast(comm, layout->slabs, layout->n_slabs * sizeof *layout->slabs, 0);
  return LM_OK;
}

lm_status lm_state_read(const lm_comm *comm, const char *path, const lm_state_slice *slices, size_t n, lm_error *err)
{
  lm_state_layout layout;
  size_t *tensors = NULL;
  lm_status s = load_shared(comm, path, &layout, err);
  if (s == LM_OK) {
    lm_status mine = lm_alloc(&tensors, n, sizeof *tensors, "the slices of a state", err);
    if (mine == LM_OK) mine = match(path, &layout, slices, n, tensors, err);
    s = lm_agree(comm, mine, err);
  }
  if (s == LM_OK) s = lm_agree(comm, read_all(path, &layout, slices, n, tensors, err), err);
  free(tensors);
  lm_state_layout_free(&layout);
  return s;
}

/* ---- one rank alone ---- */

lm_status lm_state_list(const char *path, lm_state_entry **entries, size_t *n, lm_error *err)
{
  lm_state_layout layout;
  *entries = NULL;
  *n = 0;
  LM_TRY(lm_state_layout_load(path, &layout, err));
  lm_status s = lm_alloc(entries, layout.n, sizeof **entries, "the list of tensors", err);
  for (size_t i = 0; s == LM_OK && i < layout.n; i++) (*entries)[i] = layout.tensors[i].entry;
  if (s == LM_OK) *n = layout.n;
  lm_state_layout_free(&layout);
  return s;
}

lm_status lm_state_ranks(const char *path, uint64_t *ranks, lm_error *err)
{
  lm_state_layout layout;
  LM_TRY(lm_state_layout_load(path, &layout, err));
  *ranks = layout.ranks;
  lm_state_layout_free(&layout);
  return LM_OK;
}

lm_status lm_state_verify(const char *path, lm_error *err)
{
  lm_state_layout layout;
  struct reader r;
  LM_TRY(lm_state_layout_load(path, &layout, err));
  lm_status s = reader_open(&r, path, &layout, err);
  for (size_t k = 0; s == LM_OK && k < layout.n_slabs; k++) s = read_slab(&r, &layout.slabs[k], r.slab, err);
  reader_close(&r);
  lm_state_layout_free(&layout);
  return s;
}
