/* src/batch/dataset.h - a token dataset as training sees it: windows of T tokens and their targets. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_BATCH_DATASET_H
#define LM_BATCH_DATASET_H

#include "hdf5/token_file.h"

typedef struct lm_dataset lm_dataset; /* opaque: mapped read-only; threads may share it */

/** Map a token dataset. Local.
 *  @return LM_EINVAL (what it is and what was wanted), LM_EDAMAGED (shorter than it says), LM_EIO */
lm_status lm_dataset_open(lm_dataset **out, const char *path, lm_error *err) LM_NODISCARD;
void lm_dataset_close(lm_dataset *d);
const lm_token_info *lm_dataset_info(const lm_dataset *d);

/** How many full windows of T inputs and T targets: floor((tokens - 1) / T). Local. T >= 1. */
uint64_t lm_dataset_windows(const lm_dataset *d, int T);

/** Copy window i: inputs are tokens [i T, i T + T), targets one further. Local.
 *  @param i  < lm_dataset_windows(), or equal to it for the partial last window: the tail is filled with input 0 and
 *            target -1 (ignored)
 *  @param[out] inputs, targets  [T]
 *  @return LM_EDAMAGED where an id is not below vocab_size, naming its position */
lm_status lm_dataset_window(const lm_dataset *d, uint64_t i, int T, int32_t *inputs, int32_t *targets, lm_error *err)
  LM_NODISCARD;

#endif
