/* hdf5/state_file.h - the state of a run on disk: named tensors with global shapes, of which each rank has a slice. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_HDF5_STATE_FILE_H
#define LM_HDF5_STATE_FILE_H

#include "base/dtype.h"
#include "comm/comm.h"
#include <stdbool.h>

enum { LM_STATE_NAME = 128, LM_STATE_DIMS = 4 };

/** One tensor as one rank holds it: elements [begin, begin + count) of the flattened, row-major, global tensor. The
 * list of names, dtypes and shapes is the same on all ranks and in the same order; begin, count and data are the rank's
 * own. Over all ranks the slices that are written cover each tensor exactly once. */
typedef struct lm_state_slice {
  char name[LM_STATE_NAME]; /* "/model/layers/3/attention/qkv/weight" */
  lm_dtype dtype;
  int ndim; /* 0: a scalar */
  size_t shape[LM_STATE_DIMS];
  size_t begin, count; /* elements; count 0: this rank has none of it */
  void *data;          /* written from or read into: host memory, or, */
  bool on_device;      /* for a saver, which copies it first, and for reading, memory of a device, */
  void (*put)(void *data, const void *host, size_t bytes); /* and what is read gets there so */
  /* For reading: */
  char instead[LM_STATE_NAME]; /* what is read where the file has no `name`; "": nothing */
  bool optional;               /* where the file has neither, data stays as it is */
} lm_state_slice;

/** Where the tensors of the last save went: the next one of the same tensors need not ask HDF5. Opaque. */
typedef struct lm_state_kept lm_state_kept;
void lm_state_kept_free(lm_state_kept *kept); /* Local. NULL is fine. */

/** How a save goes about its work. Plain data, the same on all ranks. */
typedef struct lm_state_how {
  bool background;   /* a thread of each rank writes and fsyncs while the caller goes on; not with `together` */
  bool read_back;    /* what was written is read and compared before the file gets its name; `together` always does */
  bool together;     /* all ranks write in collective calls of MPI-IO, instead of each by itself */
  const char *hints; /* "key=value,..." for MPI-IO, stronger than ours; NULL: none; borrowed for the call */
  size_t align;      /* tensors of 4 times as many bytes or more begin at its multiples in the file; 0: anywhere */
  /* Asked on rank 0 before the file is completed: after a failure it is not, and what is under its temporary name may
   * be somebody else's and stays. NULL: nobody is asked. */
  lm_status (*may)(void *context, lm_error *err);
  void *context;
  /* Called before the data are looked at, by whoever writes them: they come. NULL: they are there. */
  void (*wait)(void);
  lm_state_kept **kept; /* from save to save; *kept is NULL at first, the caller's to free. NULL: nothing is */
} lm_state_how;

/** Are these hints that lm_state_how can have? Local. LM_EINVAL names the word that is no key=value. */
lm_status lm_state_check_hints(const char *hints, lm_error *err) LM_NODISCARD;

typedef struct lm_state_save lm_state_save; /* opaque: a save under way */

/** Begin to write a state file, completely or not at all. Collective.
 *  The file is laid out with HDF5 under a temporary name in the same folder, each rank writes its slices at their known
 *  offsets, the hashes of the buffers go to /integrity, then fsync, rename, fsync of the folder (doc/checkpoints.md).
 *  When this returns the file is laid out; with `background` a thread that calls neither MPI nor HDF5 writes this
 * rank's slices (rank 0's reserves the file's space before), else they are written.
 *  @param[out] out  for lm_state_write_end(); NULL after a failure, which leaves nothing behind
 *  @param path   final name; what it names is replaced at the rename
 *  @param comm, slices and their data  kept until then, unchanged
 *  @return LM_EIO with path and system text, LM_ENOMEM; the file does not exist under its name then, or is the old one.
 *          LM_EINVAL: ranks disagree on the list, or their slices do not cover a tensor exactly once */
lm_status lm_state_write_begin(lm_state_save **out, const lm_comm *comm, const char *path, const lm_state_slice *slices,
                               size_t n, const lm_state_how *how, lm_error *err) LM_NODISCARD;

/** Has this rank's share been written, or failed? Local; does not wait. */
bool lm_state_write_done(const lm_state_save *save);

/** Wait for this rank's share, agree, complete the file, give it its name. Collective. Frees save.
 *  @return as lm_state_write_begin() */
lm_status lm_state_write_end(lm_state_save *save, lm_error *err) LM_NODISCARD;

/** At most so many bytes has a state file of these tensors, in closed form. Local.
 *  @param ranks  that write it @param align  as in lm_state_how */
uint64_t lm_state_bytes(const lm_state_slice *slices, size_t n, int ranks, size_t align);

/** Is there room for a file of so many bytes: limits, free space, quota? Local. A file is made there, its blocks are
 *  reserved where the file system can do that, and it is removed again. LM_EIO: path, system text, needed, free. */
lm_status lm_state_room(const char *path, uint64_t bytes, lm_error *err) LM_NODISCARD;

/** Read slices from a file; any slice of any tensor, by any number of ranks. Collective.
 *  A tensor that the file lacks, or holds with another shape, is LM_EINVAL naming both; the float types
 * are converted into each other. Every slab that holds an element of a slice is read whole and compared with
 * /integrity: LM_EDAMAGED names the tensor. After a failure the slices hold a mixture of old and new elements. */
lm_status lm_state_read(const lm_comm *comm, const char *path, const lm_state_slice *slices, size_t n,
                        lm_error *err) LM_NODISCARD;

/** What one tensor of a file looks like. A text has one dimension, its bytes. */
typedef struct lm_state_entry {
  char name[LM_STATE_NAME];
  lm_dtype dtype;
  int ndim;
  size_t shape[LM_STATE_DIMS];
} lm_state_entry;

/** Is this a complete state file, and what is in it? Local. *entries is the caller's to free(), in the order written.
 *  LM_EINVAL: not one of ours; LM_EDAMAGED: torn, truncated, or without its mark. Everything but the tensors' elements
 *  has been compared with the manifest then. */
lm_status lm_state_list(const char *path, lm_state_entry **entries, size_t *n, lm_error *err) LM_NODISCARD;

/** How many ranks wrote a file. Local. Returns as lm_state_list(). */
lm_status lm_state_ranks(const char *path, uint64_t *ranks, lm_error *err) LM_NODISCARD;

/** Compare every byte on disk with its hash. Local. LM_EDAMAGED names the first tensor that differs. */
lm_status lm_state_verify(const char *path, lm_error *err) LM_NODISCARD;

#endif
