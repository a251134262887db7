/* hdf5/state_layout.h - where things are in a state file: tensors, slabs, manifest. Only state_*.c include this. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_HDF5_STATE_LAYOUT_H
#define LM_HDF5_STATE_LAYOUT_H

#include "base/memory.h"
#include "hdf5/state_file.h"

/* A slab is what one hash covers: a run of elements of one tensor, at most this many bytes, written by one rank. Cuts
 * lie at multiples of it, so that a reader with other slices reads few bytes that it does not need. */
enum { LM_STATE_SLAB_BYTES = 8 << 20 };

/* A row of /integrity/slabs, as it is on disk. */
typedef struct lm_state_slab {
  uint64_t tensor; /* row of /integrity/tensors */
  uint64_t begin, count;
  uint64_t hash; /* XXH3, 64 bits, of the elements as stored */
} lm_state_slab;

typedef struct lm_state_place {
  lm_state_entry entry;
  uint64_t offset, bytes; /* of the elements in the file; 0, 0 for an empty tensor */
} lm_state_place;

typedef struct lm_state_layout {
  size_t n, n_slabs;
  lm_state_place *tensors; /* [n], in the order of /integrity/tensors */
  lm_state_slab *slabs;    /* [n_slabs], by tensor and begin; NULL until written or loaded */
  uint64_t slabs_at;       /* offset of /integrity/slabs */
  uint64_t manifest_at;    /* offset of /integrity/manifest */
  uint64_t ranks;          /* that wrote it */
  uint64_t bytes;          /* of the file */
  size_t align;            /* as in lm_state_how */
  lm_buffer between;       /* while writing, rank 0: what the file holds besides tensors and manifest */
} lm_state_layout;

/** Lay out a file: its bytes are in memory yet. Local: rank 0 does it. What `path` names is a file without content
 * then.
 *  @param[in,out] layout  in: n, n_slabs, entries, ranks, align; out: every offset, bytes, between */
lm_status lm_state_layout_make(const char *path, lm_state_layout *layout, lm_error *err) LM_NODISCARD;

/** Write layout->slabs, the manifest and all else that is not a tensor, and fsync. Local: rank 0, after all data is on
 *  disk. Only now it is an HDF5 file. */
lm_status lm_state_layout_seal(const char *path, lm_state_layout *layout, lm_error *err) LM_NODISCARD;

/** Read the layout of a complete file, compare the manifest, and check that the slabs cover every tensor. Local.
 *  @return as lm_state_list() */
lm_status lm_state_layout_load(const char *path, lm_state_layout *out, lm_error *err) LM_NODISCARD;

/** Do the slabs, sorted, cover every tensor exactly once? Local. */
lm_status lm_state_layout_check(const char *path, const lm_state_layout *layout, lm_status otherwise,
                                lm_error *err) LM_NODISCARD;

/** At most so many bytes has a file whose n tensors have `sum`, with what aligns them, in n_slabs slabs. Local. */
uint64_t lm_state_bytes_around(uint64_t sum, size_t n, uint64_t n_slabs, size_t align);

/** Tensors of at least so many bytes are aligned; SIZE_MAX: none. Local. */
size_t lm_state_aligned_from(size_t align);

/** The bytes of a tensor, and those before it at most. Local. */
uint64_t lm_state_bytes_of(lm_dtype dtype, int ndim, const size_t *shape, size_t align);

/** Does ulimit -f allow a file of so many bytes? Local. LM_EIO says how many. */
lm_status lm_state_room_limit(const char *path, uint64_t bytes, lm_error *err) LM_NODISCARD;

/** Do ulimit -f, the free space and the quotas of user and group allow a file of so many bytes? Local. LM_EIO says how
 *  many are needed and left. */
lm_status lm_state_room_ask(const char *path, uint64_t bytes, lm_error *err) LM_NODISCARD;

/** Make an empty file where so many bytes have room, as far as can be asked. Local. */
lm_status lm_state_room_new(const char *path, uint64_t bytes, lm_error *err) LM_NODISCARD;

/** Make an open file so long and take its blocks now, so that a full disk or quota is found early, and as such. What
 * was written already stays. Where a file system cannot do that, the writes will tell. Local. */
lm_status lm_state_room_take(int fd, const char *path, uint64_t bytes, lm_error *err) LM_NODISCARD;

void lm_state_layout_free(lm_state_layout *layout);

/** A run of bytes, from memory to its place in the file. */
typedef struct lm_state_piece {
  const void *data;
  size_t bytes; /* less than 2 GiB */
  uint64_t at;
} lm_state_piece;

/** All ranks write their pieces in collective calls of MPI-IO. Collective. Nothing is durable yet.
 *  @param hints  as in lm_state_how
 *  @param pieces  [n] by place; n may be 0, or differ between ranks
 *  @param most  bytes of a rank in one call, below 2 GiB: MPI-IO counts them in an int; a piece may have more
 *  @return LM_EIO with path and the words of MPI */
lm_status lm_state_write_together(const lm_comm *comm, const char *path, const char *hints,
                                  const lm_state_piece *pieces, size_t n, size_t most, lm_error *err) LM_NODISCARD;

/** Elements of a tensor: the product of its shape. Local. */
size_t lm_state_elements(int ndim, const size_t *shape);

/** qsort() order of slabs: tensor, then begin. */
int lm_state_slab_order(const void *a, const void *b);

/** "/model/wte" or "/model/wte, elements 0 to 999", for sentences. Local. */
void lm_state_slab_name(const lm_state_layout *layout, const lm_state_slab *slab, char out[256]);

#endif
