/* hdf5/state_layout.c - where things are in a state file: made and read with HDF5, on one rank. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "hdf5/state_layout.h"
#include "base/file.h"
#include "base/hash.h"
#include "hdf5/library.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensors are written as they are in memory, and the files are little-endian"
#endif

#define FORMAT_NAME "mpilm state"
enum { FORMAT_VERSION = 1 };

size_t lm_state_elements(int ndim, const size_t *shape)
{
  size_t n = 1;
  for (int i = 0; i < ndim; i++) n *= shape[i];
  return n;
}

int lm_state_slab_order(const void *a, const void *b)
{
  const lm_state_slab *x = a, *y = b;
  if (x->tensor != y->tensor) return x->tensor < y->tensor ? -1 : 1;
  return (x->begin > y->begin) - (x->begin < y->begin);
}

void lm_state_slab_name(const lm_state_layout *layout, const lm_state_slab *slab, char out[256])
{
  const lm_state_entry *e = &layout->tensors[slab->tensor].entry;
  if (slab->count == lm_state_elements(e->ndim, e->shape))
    snprintf(out, 256, "%s", e->name);
  else
    snprintf(out, 256, "%s, elements %" PRIu64 " to %" PRIu64, e->name, slab->begin, slab->begin + slab->count - 1);
}

void lm_state_layout_free(lm_state_layout *layout)
{
  free(layout->tensors);
  free(layout->slabs);
  lm_buffer_free(&layout->between);
  *layout = (lm_state_layout){0};
}

static lm_status fail_errno(lm_error *err, const char *what, const char *path)
{
  int e = errno;
  return lm_fail(err, e == ENOENT || e == ENOTDIR ? LM_EINVAL : LM_EIO, "%s: cannot %s: %s", path, what, strerror(e));
}

/* ---- types ---- */

/* The upper half of a binary32: sign, 8 exponent bits, 7 of fraction; h5dump prints its values. */
static hid_t bf16_type(void)
{
  hid_t t = H5Tcopy(H5T_IEEE_F32LE);
  if (H5Tset_fields(t, 15, 7, 8, 0, 7) < 0 || H5Tset_size(t, 2) < 0 || H5Tset_precision(t, 16) < 0 ||
      H5Tset_ebias(t, 127) < 0)
    return H5I_INVALID_HID;
  return t;
}

/* IEEE binary16: sign, 5 exponent bits, 10 of fraction. HDF5 names this type only from 1.14.4 on. */
static hid_t f16_type(void)
{
  hid_t t = H5Tcopy(H5T_IEEE_F32LE);
  if (H5Tset_fields(t, 15, 10, 5, 0, 10) < 0 || H5Tset_size(t, 2) < 0 || H5Tset_precision(t, 16) < 0 ||
      H5Tset_ebias(t, 15) < 0)
    return H5I_INVALID_HID;
  return t;
}

static hid_t text_type(size_t bytes)
{
  hid_t t = H5Tcopy(H5T_C_S1);
  if (H5Tset_size(t, bytes > 0 ? bytes : 1) < 0 || H5Tset_strpad(t, H5T_STR_NULLPAD) < 0 ||
      H5Tset_cset(t, H5T_CSET_UTF8) < 0)
    return H5I_INVALID_HID;
  return t;
}

/* The type of a dataset in the file; the caller's to close. */
static hid_t type_of(const lm_state_entry *e)
{
  switch (e->dtype) {
  case LM_F32: return H5Tcopy(H5T_IEEE_F32LE);
  case LM_BF16: return bf16_type();
  case LM_F16: return f16_type();
  case LM_U64: return H5Tcopy(H5T_STD_U64LE);
  case LM_TEXT: return text_type(e->shape[0]);
  }
  return H5I_INVALID_HID;
}

/* A text is one string, not an array of bytes. */
static hid_t space_of(const lm_state_entry *e)
{
  hsize_t dims[LM_STATE_DIMS];
  if (e->dtype == LM_TEXT) return H5Screate(e->shape[0] > 0 ? H5S_SCALAR : H5S_NULL);
  if (e->ndim == 0) return H5Screate(H5S_SCALAR);
  for (int i = 0; i < e->ndim; i++) dims[i] = e->shape[i];
  return H5Screate_simple(e->ndim, dims, NULL);
}

static hid_t slab_type(void)
{
  hid_t t = H5Tcreate(H5T_COMPOUND, sizeof(lm_state_slab));
  H5Tinsert(t, "tensor", offsetof(lm_state_slab, tensor), H5T_STD_U64LE);
  H5Tinsert(t, "begin", offsetof(lm_state_slab, begin), H5T_STD_U64LE);
  H5Tinsert(t, "count", offsetof(lm_state_slab, count), H5T_STD_U64LE);
  H5Tinsert(t, "hash", offsetof(lm_state_slab, hash), H5T_STD_U64LE);
  return t;
}

/* ---- opening ---- */

/* Every piece of metadata has a checksum from format 1.8 on, so HDF5 refuses damaged metadata instead of following it.
 * No locks: a .part has one writer, a finished file never changes, and not every file system has them. */
static hid_t access_properties(void)
{
  hid_t p = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_libver_bounds(p, H5F_LIBVER_V18, H5F_LIBVER_LATEST);
  H5Pset_fclose_degree(p, H5F_CLOSE_STRONG); /* closing the file closes what an error left open in it */
#if H5_VERSION_GE(1, 10, 7)
  H5Pset_file_locking(p, false, true);
#endif
  return p;
}

static hid_t open_file(const char *path, unsigned flags)
{
  lm_hdf5_quiet();
  hid_t access = access_properties(), file = H5Fopen(path, flags, access);
  hid_t reason = H5Eget_current_stack(); /* the next call would forget it */
  H5Pclose(access);
  H5Eset_current_stack(reason);
  return file;
}

/* From its second byte on the file is in `memory`, where writes do not fail: HDF5 1.10 crashes at exit after an
 * H5Fclose() that could not write. The default driver keeps a plain descriptor, so another file can be put under it.
 * The memory is sparse: nothing is written but HDF5's own bytes. */
static hid_t create_file(const char *path, int memory, size_t align)
{
  void *descriptor;
  lm_hdf5_quiet();
  hid_t access = access_properties(), creation = H5Pcreate(H5P_FILE_CREATE);
  if (align > 1) H5Pset_alignment(access, lm_state_aligned_from(align), align);
  H5Pset_obj_track_times(creation, false);
  hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, creation, access);
  hid_t reason = H5Eget_current_stack();
  H5Pclose(access);
  H5Pclose(creation);
  H5Eset_current_stack(reason);
  if (file < 0 || (H5Fget_vfd_handle(file, H5P_DEFAULT, &descriptor) >= 0 && dup2(memory, *(int *)descriptor) >= 0))
    return file;
  H5Fclose(file);
  return H5I_INVALID_HID;
}

/* ---- the datasets ---- */

/* How everything is made: a dataset is one run of bytes whose place is known before it is written, and nothing has
 * times, so that the same state gives the same bytes. */
struct maker {
  hid_t file, groups, datasets;
};

static struct maker maker_new(const char *path, int memory, size_t align)
{
  struct maker m = {.groups = H5Pcreate(H5P_GROUP_CREATE), .datasets = H5Pcreate(H5P_DATASET_CREATE)};
  H5Pset_obj_track_times(m.groups, false);
  H5Pset_layout(m.datasets, H5D_CONTIGUOUS);
  H5Pset_alloc_time(m.datasets, H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(m.datasets, H5D_FILL_TIME_NEVER);
  H5Pset_obj_track_times(m.datasets, false);
  m.file = create_file(path, memory, align); /* last: the next call forgets why it failed */
  return m;
}

/* The groups above a name. HDF5 would make them by itself, with times. */
static bool make_groups(const struct maker *m, const char *name)
{
  char path[LM_STATE_NAME];
  bool good = true;
  snprintf(path, sizeof path, "%s", name);
  for (char *slash = strchr(path + 1, '/'); good && slash != NULL; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    htri_t there = H5Lexists(m->file, path, H5P_DEFAULT);
    hid_t group = there == 0 ? H5Gcreate2(m->file, path, H5P_DEFAULT, m->groups, H5P_DEFAULT) : H5I_INVALID_HID;
    good = there > 0 || group >= 0;
    if (group >= 0) H5Gclose(group);
    *slash = '/';
  }
  return good;
}

/* Closes type and space. *offset is 0 where the dataset has no bytes. */
static bool make_dataset(const struct maker *m, const char *name, hid_t type, hid_t space, const void *value,
                         uint64_t *offset)
{
  hid_t d = make_groups(m, name) ? H5Dcreate2(m->file, name, type, space, H5P_DEFAULT, m->datasets, H5P_DEFAULT)
                                 : H5I_INVALID_HID;
  bool good = d >= 0 && (value == NULL || H5Dwrite(d, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, value) >= 0);
  haddr_t at = d >= 0 ? H5Dget_offset(d) : HADDR_UNDEF;
  *offset = at == HADDR_UNDEF ? 0 : at;
  if (d >= 0) H5Dclose(d);
  if (type >= 0) H5Tclose(type);
  if (space >= 0) H5Sclose(space);
  return good;
}

static bool make_attribute(hid_t where, const char *name, hid_t type, const void *value)
{
  hid_t space = H5Screate(H5S_SCALAR), a = H5Acreate2(where, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  bool good = a >= 0 && H5Awrite(a, type, value) >= 0;
  if (a >= 0) H5Aclose(a);
  H5Sclose(space);
  return good;
}

static lm_status make_tensors(const struct maker *m, const char *path, lm_state_layout *layout, lm_error *err)
{
  for (size_t i = 0; i < layout->n; i++) {
    lm_state_place *p = &layout->tensors[i];
    const lm_state_entry *e = &p->entry;
    p->bytes = lm_state_elements(e->ndim, e->shape) * lm_dtype_size(e->dtype);
    if (!make_dataset(m, e->name, type_of(e), space_of(e), NULL, &p->offset) || (p->bytes > 0 && p->offset == 0))
      return lm_hdf5_fail(err, LM_EIO, "%s: cannot make %s", path, e->name);
  }
  return LM_OK;
}

static lm_status make_integrity(const struct maker *m, const char *path, lm_state_layout *layout, lm_error *err)
{
  hsize_t n = layout->n, slabs = layout->n_slabs;
  char *names;
  uint64_t names_at;
  LM_TRY(lm_alloc(&names, layout->n, LM_STATE_NAME, "the names of tensors", err));
  for (size_t i = 0; i < layout->n; i++) strcpy(names + i * LM_STATE_NAME, layout->tensors[i].entry.name);
  bool good =
      make_dataset(m, "/integrity/tensors", text_type(LM_STATE_NAME), H5Screate_simple(1, &n, NULL), names,
                   &names_at) &&
      make_dataset(m, "/integrity/slabs", slab_type(), H5Screate_simple(1, &slabs, NULL), NULL, &layout->slabs_at) &&
      make_dataset(m, "/integrity/manifest", H5Tcopy(H5T_STD_U64LE), H5Screate(H5S_SCALAR), NULL, &layout->manifest_at);
  free(names);
  hid_t group = good ? H5Gopen2(m->file, "/integrity", H5P_DEFAULT) : H5I_INVALID_HID;
  good = group >= 0 && make_attribute(group, "ranks", H5T_STD_U64LE, &layout->ranks);
  return good ? LM_OK : lm_hdf5_fail(err, LM_EIO, "%s: cannot make /integrity", path);
}

static lm_status make_marks(const struct maker *m, const char *path, lm_error *err)
{
  uint64_t version = FORMAT_VERSION, complete = 1; /* true by the time that the file has these bytes */
  hid_t text = text_type(sizeof FORMAT_NAME - 1);
  bool good = make_attribute(m->file, "format", text, FORMAT_NAME) &&
              make_attribute(m->file, "version", H5T_STD_U64LE, &version) &&
              make_attribute(m->file, "complete", H5T_STD_U64LE, &complete);
  H5Tclose(text);
  return good ? LM_OK : lm_hdf5_fail(err, LM_EIO, "%s: cannot write the format's name", path);
}

static lm_status make_all(const char *path, int memory, lm_state_layout *layout, lm_error *err)
{
  struct maker m = maker_new(path, memory, layout->align);
  lm_status s = m.file >= 0 ? LM_OK : lm_hdf5_fail(err, LM_EIO, "%s: cannot make an HDF5 file", path);
  if (s == LM_OK) s = make_marks(&m, path, err);
  if (s == LM_OK) s = make_tensors(&m, path, layout, err);
  if (s == LM_OK) s = make_integrity(&m, path, layout, err);
  if (m.file >= 0 && H5Fclose(m.file) < 0 && s == LM_OK) s = lm_hdf5_fail(err, LM_EIO, "%s: cannot write", path);
  H5Pclose(m.groups);
  H5Pclose(m.datasets);
  return s;
}

/* ---- what lies between the tensors: HDF5's own bytes, names, hashes ---- */

static int by_offset(const void *a, const void *b)
{
  const lm_state_place *x = a, *y = b;
  return (x->offset > y->offset) - (x->offset < y->offset);
}

/* The n + 1 places that are not "between", by offset: tensors, and the manifest, which cannot be in its own hash. */
static lm_status places_by_offset(const char *path, const lm_state_layout *layout, lm_state_place **out, lm_error *err)
{
  LM_TRY(lm_alloc(out, layout->n + 1, sizeof **out, "the order of tensors", err));
  if (layout->n > 0) memcpy(*out, layout->tensors, layout->n * sizeof **out);
  (*out)[layout->n] = (lm_state_place){.offset = layout->manifest_at, .bytes = sizeof(uint64_t)};
  qsort(*out, layout->n + 1, sizeof **out, by_offset);
  uint64_t at = 0;
  for (size_t i = 0; i <= layout->n; i++) {
    const lm_state_place *p = &(*out)[i];
    if (p->bytes == 0) continue;
    if (p->offset < at || p->offset > layout->bytes || p->bytes > layout->bytes - p->offset)
      return lm_fail(err, LM_EDAMAGED, "%s: byte %" PRIu64 " belongs to two things or is beyond the end", path,
                     p->offset);
    at = p->offset + p->bytes;
  }
  return LM_OK;
}

/* Walk the runs of bytes between places: *at and *n become the next one; false at the end. Start with *at = *i = 0. */
static bool next_between(const lm_state_layout *layout, const lm_state_place *places, size_t *i, uint64_t *at,
                         uint64_t *n)
{
  for (; *i <= layout->n; ++*i) {
    const lm_state_place *p = &places[*i];
    if (p->bytes == 0) continue;
    *n = p->offset - *at;
    if (*n > 0) return true;
    *at = p->offset + p->bytes;
  }
  *n = layout->bytes - *at;
  return *n > 0;
}

/* Append the bytes between places to out. */
static lm_status read_between(int fd, const char *path, const lm_state_layout *layout, const lm_state_place *places,
                              lm_buffer *out, lm_error *err)
{
  uint64_t at = 0, n;
  for (size_t i = 0; next_between(layout, places, &i, &at, &n); at += n) {
    LM_TRY(lm_buffer_reserve(out, n, err));
    LM_TRY(lm_pread_all(fd, path, out->data + out->size, n, (off_t)at, err));
    out->size += n;
  }
  return LM_OK;
}

static lm_status write_between(int fd, const char *path, const lm_state_layout *layout, const lm_state_place *places,
                               const char *from, lm_error *err)
{
  uint64_t at = 0, n;
  for (size_t i = 0; next_between(layout, places, &i, &at, &n); at += n, from += n)
    LM_TRY(lm_pwrite_all(fd, path, from, n, (off_t)at, err));
  return LM_OK;
}

/* Where byte `offset` of the file is among the bytes between. */
static uint64_t position_between(const lm_state_layout *layout, const lm_state_place *places, uint64_t offset)
{
  uint64_t position = offset;
  for (size_t i = 0; i <= layout->n; i++)
    if (places[i].bytes > 0 && places[i].offset < offset) position -= places[i].bytes;
  return position;
}

/* ---- making a file ---- */

static lm_status make_in_memory(const char *path, int memory, lm_state_layout *layout, lm_error *err)
{
  struct stat st;
  lm_state_place *places = NULL;
  LM_TRY(make_all(path, memory, layout, err));
  if (fstat(memory, &st) != 0) return fail_errno(err, "ask for the size of its layout", path);
  layout->bytes = (uint64_t)st.st_size;
  lm_status s = places_by_offset(path, layout, &places, err);
  if (s == LM_OK) s = read_between(memory, path, layout, places, &layout->between, err);
  free(places);
  return s;
}

static uint64_t bytes_at_most(const lm_state_layout *layout)
{
  uint64_t sum = 0;
  for (size_t i = 0; i < layout->n; i++) {
    const lm_state_entry *e = &layout->tensors[i].entry;
    sum += lm_state_bytes_of(e->dtype, e->ndim, e->shape, layout->align);
  }
  return lm_state_bytes_around(sum, layout->n, layout->n_slabs, layout->align);
}

lm_status lm_state_layout_make(const char *path, lm_state_layout *layout, lm_error *err)
{
  LM_TRY(lm_state_room_limit(path, bytes_at_most(layout), err)); /* ulimit -f holds for memory too */
  int memory = memfd_create("mpilm-state-layout", MFD_CLOEXEC);
  if (memory < 0) return fail_errno(err, "get memory for its layout", path);
  lm_status s = make_in_memory(path, memory, layout, err);
  close(memory);
  return s;
}

/* ---- the manifest: one hash of every byte that no slab covers ---- */

static lm_status seal(int fd, const char *path, lm_state_layout *layout, const lm_state_place *places, lm_error *err)
{
  lm_buffer *b = &layout->between;
  uint64_t at = position_between(layout, places, layout->slabs_at);
  size_t bytes = layout->n_slabs * sizeof *layout->slabs;
  LM_ASSERT(bytes == 0 || at + bytes <= b->size);
  if (bytes > 0) memcpy(b->data + at, layout->slabs, bytes);
  uint64_t manifest = lm_hash(b->data, b->size);
  LM_TRY(lm_pwrite_all(fd, path, &manifest, sizeof manifest, (off_t)layout->manifest_at, err));
  LM_TRY(write_between(fd, path, layout, places, b->data, err));
  return fsync(fd) == 0 ? LM_OK : fail_errno(err, "fsync", path);
}

lm_status lm_state_layout_seal(const char *path, lm_state_layout *layout, lm_error *err)
{
  lm_state_place *places = NULL;
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return fail_errno(err, "open for writing", path);
  lm_status s = places_by_offset(path, layout, &places, err);
  if (s == LM_OK) s = seal(fd, path, layout, places, err);
  if (close(fd) != 0 && s == LM_OK) s = fail_errno(err, "close", path);
  free(places);
  return s;
}

static lm_status manifest_of(int fd, const char *path, const lm_state_layout *layout, uint64_t *hash, lm_error *err)
{
  lm_state_place *places = NULL;
  lm_buffer bytes = {0};
  lm_status s = places_by_offset(path, layout, &places, err);
  if (s == LM_OK) s = read_between(fd, path, layout, places, &bytes, err);
  if (s == LM_OK) *hash = lm_hash(bytes.data, bytes.size);
  lm_buffer_free(&bytes);
  free(places);
  return s;
}

/* ---- loading ---- */

static bool read_attribute(hid_t where, const char *name, hid_t type, void *value)
{
  hid_t a = H5Aexists(where, name) > 0 ? H5Aopen(where, name, H5P_DEFAULT) : H5I_INVALID_HID;
  bool good = a >= 0 && H5Aread(a, type, value) >= 0;
  if (a >= 0) H5Aclose(a);
  return good;
}

static lm_status load_marks(hid_t file, const char *path, lm_error *err)
{
  char name[sizeof FORMAT_NAME] = "";
  uint64_t version = 0, complete = 0;
  hid_t text = text_type(sizeof FORMAT_NAME - 1);
  htri_t named = H5Aexists(file, "format"); /* < 0: its place cannot be read */
  bool ours = named > 0 && read_attribute(file, "format", text, name) && strcmp(name, FORMAT_NAME) == 0;
  H5Tclose(text);
  if (named < 0) return lm_fail(err, LM_EDAMAGED, "%s: its first group cannot be read: damaged", path);
  if (!ours) return lm_fail(err, LM_EINVAL, "%s: is an HDF5 file, but its format is not '%s'", path, FORMAT_NAME);
  bool marked = read_attribute(file, "version", H5T_NATIVE_UINT64, &version) &&
                read_attribute(file, "complete", H5T_NATIVE_UINT64, &complete);
  if (!marked) return lm_hdf5_fail(err, LM_EDAMAGED, "%s: has no version or no mark", path);
  if (version != FORMAT_VERSION)
    return lm_fail(err, LM_EINVAL, "%s: has format version %" PRIu64 ", this program reads %d", path, version,
                   FORMAT_VERSION);
  return complete == 1 ? LM_OK : lm_fail(err, LM_EDAMAGED, "%s: was never completed", path);
}

/* The elements of a 1-D dataset, *count of them, and where they are. *out is the caller's to free. */
static lm_status load_rows(hid_t file, const char *path, const char *name, hid_t type, void *out, size_t *count,
                           uint64_t *offset, lm_error *err)
{
  void *rows = NULL;
  hid_t d = H5Dopen2(file, name, H5P_DEFAULT), space = d >= 0 ? H5Dget_space(d) : H5I_INVALID_HID;
  hssize_t n = space >= 0 ? H5Sget_simple_extent_npoints(space) : -1;
  lm_status s = n >= 0 ? LM_OK : lm_hdf5_fail(err, LM_EDAMAGED, "%s: cannot open %s", path, name);
  if (s == LM_OK) s = lm_alloc(&rows, (size_t)n, H5Tget_size(type), name, err);
  if (s == LM_OK && n > 0 && H5Dread(d, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, rows) < 0)
    s = lm_hdf5_fail(err, LM_EDAMAGED, "%s: cannot read %s", path, name);
  haddr_t at = d >= 0 ? H5Dget_offset(d) : HADDR_UNDEF;
  *offset = at == HADDR_UNDEF ? 0 : at;
  *count = (size_t)(n >= 0 ? n : 0);
  *(void **)out = rows;
  if (space >= 0) H5Sclose(space);
  if (d >= 0) H5Dclose(d);
  return s;
}

/* False where the type is none of ours. */
static bool dtype_of(hid_t type, const hid_t halves[2], lm_dtype *out)
{
  if (H5Tequal(type, H5T_IEEE_F32LE) > 0)
    *out = LM_F32;
  else if (H5Tequal(type, halves[0]) > 0)
    *out = LM_BF16;
  else if (H5Tequal(type, halves[1]) > 0)
    *out = LM_F16;
  else if (H5Tequal(type, H5T_STD_U64LE) > 0)
    *out = LM_U64;
  else if (H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) <= 0)
    *out = LM_TEXT;
  else
    return false;
  return true;
}

static bool shape_of(hid_t type, hid_t space, lm_state_entry *e)
{
  hsize_t dims[LM_STATE_DIMS];
  int ndim = H5Sget_simple_extent_ndims(space);
  bool empty = H5Sget_simple_extent_type(space) == H5S_NULL;
  if (ndim < 0 || ndim > LM_STATE_DIMS || (e->dtype == LM_TEXT ? ndim != 0 : empty)) return false;
  if (e->dtype == LM_TEXT) {
    e->ndim = 1;
    e->shape[0] = empty ? 0 : H5Tget_size(type);
    return true;
  }
  e->ndim = ndim;
  if (ndim > 0 && H5Sget_simple_extent_dims(space, dims, NULL) < 0) return false;
  for (int i = 0; i < ndim; i++) e->shape[i] = dims[i];
  return true;
}

static bool load_tensor(hid_t file, const hid_t halves[2], lm_state_place *p)
{
  hid_t d = H5Dopen2(file, p->entry.name, H5P_DEFAULT);
  if (d < 0) return false;
  hid_t type = H5Dget_type(d), space = H5Dget_space(d);
  bool good = dtype_of(type, halves, &p->entry.dtype) && shape_of(type, space, &p->entry);
  haddr_t at = H5Dget_offset(d);
  if (good) p->bytes = lm_state_elements(p->entry.ndim, p->entry.shape) * lm_dtype_size(p->entry.dtype);
  p->offset = at == HADDR_UNDEF || p->bytes == 0 ? 0 : at;
  H5Sclose(space);
  H5Tclose(type);
  H5Dclose(d);
  return good && (p->bytes == 0 || at != HADDR_UNDEF);
}

static lm_status load_tensors(hid_t file, const char *path, lm_state_layout *out, lm_error *err)
{
  char *names = NULL;
  uint64_t names_at;
  hid_t text = text_type(LM_STATE_NAME), halves[2] = {bf16_type(), f16_type()};
  lm_status s = load_rows(file, path, "/integrity/tensors", text, &names, &out->n, &names_at, err);
  if (s == LM_OK) s = lm_alloc(&out->tensors, out->n, sizeof *out->tensors, "the list of tensors", err);
  for (size_t i = 0; i < out->n && s == LM_OK; i++) {
    snprintf(out->tensors[i].entry.name, LM_STATE_NAME, "%.*s", LM_STATE_NAME - 1, names + i * LM_STATE_NAME);
    if (!load_tensor(file, halves, &out->tensors[i]))
      s = lm_hdf5_fail(err, LM_EDAMAGED, "%s: cannot open tensor '%s'", path, out->tensors[i].entry.name);
  }
  free(names);
  H5Tclose(text);
  H5Tclose(halves[0]);
  H5Tclose(halves[1]);
  return s;
}

static lm_status load_integrity(hid_t file, const char *path, lm_state_layout *out, uint64_t *manifest, lm_error *err)
{
  hid_t type = slab_type();
  lm_status s = load_rows(file, path, "/integrity/slabs", type, &out->slabs, &out->n_slabs, &out->slabs_at, err);
  H5Tclose(type);
  uint64_t *value = NULL;
  size_t one;
  if (s == LM_OK)
    s = load_rows(file, path, "/integrity/manifest", H5T_NATIVE_UINT64, &value, &one, &out->manifest_at, err);
  if (s == LM_OK && one != 1) s = lm_fail(err, LM_EDAMAGED, "%s: has %zu manifests, 1 was wanted", path, one);
  if (s == LM_OK) *manifest = *value;
  free(value);
  hid_t group = s == LM_OK ? H5Gopen2(file, "/integrity", H5P_DEFAULT) : H5I_INVALID_HID;
  if (s == LM_OK && !read_attribute(group, "ranks", H5T_NATIVE_UINT64, &out->ranks))
    s = lm_hdf5_fail(err, LM_EDAMAGED, "%s: does not say how many ranks wrote it", path);
  if (group >= 0) H5Gclose(group);
  return s;
}

static lm_status load_hdf5(const char *path, lm_state_layout *out, uint64_t *manifest, lm_error *err)
{
  haddr_t eoa = 0;
  hid_t file = open_file(path, H5F_ACC_RDONLY);
  if (file < 0) return lm_hdf5_fail(err, LM_EDAMAGED, "%s: does not open as HDF5: torn, truncated or damaged", path);
  lm_status s = load_marks(file, path, err);
  if (s == LM_OK) s = load_tensors(file, path, out, err);
  if (s == LM_OK) s = load_integrity(file, path, out, manifest, err);
  if (s == LM_OK && H5Fget_eoa(file, &eoa) < 0) s = lm_hdf5_fail(err, LM_EDAMAGED, "%s: has no end", path);
  out->bytes = eoa;
  H5Fclose(file);
  return s;
}

lm_status lm_state_layout_check(const char *path, const lm_state_layout *layout, lm_status otherwise, lm_error *err)
{
  size_t k = 0;
  for (size_t i = 0; i < layout->n; i++) {
    const lm_state_entry *e = &layout->tensors[i].entry;
    uint64_t at = 0, end = lm_state_elements(e->ndim, e->shape);
    for (; k < layout->n_slabs && layout->slabs[k].tensor == i && layout->slabs[k].begin == at; k++)
      at += layout->slabs[k].count;
    if (at != end)
      return lm_fail(err, otherwise, "%s: %s: element %" PRIu64 " of %" PRIu64 " is not in exactly one slab", path,
                     e->name, at, end);
  }
  if (k == layout->n_slabs) return LM_OK;
  return lm_fail(err, otherwise, "%s: slab %zu is of no tensor or in two places", path, k);
}

/* A file that is empty, or not HDF5 at all, is known without HDF5. */
static lm_status open_checked(const char *path, int *out, off_t *size, lm_error *err)
{
  static const char signature[8] = {'\211', 'H', 'D', 'F', '\r', '\n', '\032', '\n'};
  char head[sizeof signature] = "";
  struct stat st;
  int fd = *out = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail_errno(err, "open for reading", path);
  lm_status s = LM_OK;
  if (fstat(fd, &st) != 0)
    s = fail_errno(err, "ask for its size", path);
  else if (!S_ISREG(st.st_mode))
    s = lm_fail(err, LM_EINVAL, "%s: is not a file", path);
  else if ((size_t)st.st_size < sizeof head)
    s = lm_fail(err, LM_EDAMAGED, "%s: has only %lld bytes", path, (long long)st.st_size);
  else
    s = lm_pread_all(fd, path, head, sizeof head, 0, err);
  if (s == LM_OK && memcmp(head, signature, sizeof head) != 0)
    s = lm_fail(err, LM_EDAMAGED, "%s: does not begin as an HDF5 file: damaged, or something else", path);
  *size = st.st_size;
  if (s != LM_OK) close(fd);
  return s;
}

static lm_status load(int fd, const char *path, off_t size, lm_state_layout *out, lm_error *err)
{
  uint64_t manifest = 0, actual = 0;
  LM_TRY(load_hdf5(path, out, &manifest, err));
  if (out->bytes != (uint64_t)size)
    return lm_fail(err, LM_EDAMAGED, "%s: has %lld bytes, %" PRIu64 " were written", path, (long long)size, out->bytes);
  LM_TRY(manifest_of(fd, path, out, &actual, err));
  if (manifest != actual)
    return lm_fail(err, LM_EDAMAGED, "%s: its description is damaged: manifest %016" PRIx64 ", computed %016" PRIx64,
                   path, manifest, actual);
  return lm_state_layout_check(path, out, LM_EDAMAGED, err);
}

lm_status lm_state_layout_load(const char *path, lm_state_layout *out, lm_error *err)
{
  int fd;
  off_t size;
  *out = (lm_state_layout){0};
  LM_TRY(open_checked(path, &fd, &size, err));
  lm_status s = load(fd, path, size, out, err);
  close(fd);
  if (s != LM_OK) lm_state_layout_free(out);
  return s;
}
