/* src/train/restore.h - a checkpoint -> a model to use: for eval and generate. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TRAIN_RESTORE_H
#define LM_TRAIN_RESTORE_H

#include "comm/comm.h"
#include "train/run_config.h"

/** What a checkpoint is, beside its tensors. */
typedef struct lm_restored {
  lm_config cfg;       /* as the run used it */
  lm_options *options; /* keeps cfg's texts */
  const lm_kernels *k;
  lm_model *model;
  uint64_t step, vocab_fingerprint;
} lm_restored;

/** Load a model's weights for evaluation. Collective. Config and shape come from the checkpoint itself.
 *  @param path   a checkpoint file, or a run folder: its newest complete checkpoint
 *  @param max_B  sequences at a time
 *  @return LM_EINVAL: no checkpoint there, or one without a config; LM_EDAMAGED, LM_ENOMEM, LM_EIO */
lm_status lm_restore(lm_restored *out, const lm_comm *comm, const char *path, int backend, int precision, int max_B,
                     lm_error *err) LM_NODISCARD;
void lm_restored_free(lm_restored *r);

#endif
