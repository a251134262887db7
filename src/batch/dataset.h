/* src/batch/dataset.h - a token dataset as training sees it: windows of T tokens and their targets. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_BATCH_DATASET_H
#define LM_BATCH_DATASET_H

#include "hdf5/token_file.h"

typedef struct lm_dataset lm_dataset; /* opaque: open read-only; threads may share it */

/** Open a token dataset. Local. Ids are read by pread, without HDF5: a disk that fails gives an error, not a signal.
 *  @return LM_EINVAL (what it is and what was wanted), LM_EDAMAGED (shorter than it says), LM_EIO */
lm_status lm_dataset_open(lm_dataset **out, const char *path, lm_error *err) LM_NODISCARD;
void lm_dataset_close(lm_dataset *d);
const lm_token_info *lm_dataset_info(const lm_dataset *d);
const char *lm_dataset_path(const lm_dataset *d);

/** How many full windows of T inputs and T targets: floor((tokens - 1) / T). Local. T >= 1. */
uint64_t lm_dataset_windows(const lm_dataset *d, int T);

/** Copy window i: inputs are tokens [i T, i T + T), targets one further. Local; allocates nothing.
 *  @param i  < lm_dataset_windows(), or equal to it for the partial last window: the tail is filled with input 0 and
 *            target -1 (ignored)
 *  @param[out] inputs, targets  [T]
 *  @return LM_EDAMAGED where an id is not below vocab_size, naming its position; LM_EIO */
lm_status lm_dataset_window(const lm_dataset *d, uint64_t i, int T, int32_t *inputs, int32_t *targets,
                            lm_error *err) LM_NODISCARD;

/** Copy ids [begin, begin + count) as they are stored, unchecked. Local. begin + count <= tokens.
 *  @param[out] ids  count * width bytes */
lm_status lm_dataset_ids(const lm_dataset *d, uint64_t begin, size_t count, void *ids, lm_error *err) LM_NODISCARD;

/** Copy entries [begin, begin + count) of /document_end. Local. begin + count <= documents. */
lm_status lm_dataset_document_ends(const lm_dataset *d, uint64_t begin, size_t count, uint64_t *ends,
                                   lm_error *err) LM_NODISCARD;

/** Compare everything with everything: ids below vocab_size, document ends ascending to `tokens`, each document closed
 * by its end of text, checksum. Local; reads the whole file. LM_EDAMAGED names the first place that is wrong. */
lm_status lm_dataset_verify(const lm_dataset *d, lm_error *err) LM_NODISCARD;

#endif
