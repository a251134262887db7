/* src/train/train.h - the training run: resume, loop, evaluate, save, stop. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TRAIN_TRAIN_H
#define LM_TRAIN_TRAIN_H

#include "comm/comm.h"
#include "train/run_config.h"

/** Train as the config says, from the newest checkpoint of run.folder or from the start. Collective.
 *  @param cfg, options  kept for the call; the config as used is written to run.folder
 *  @return LM_OK at the last step, or where there was nothing left to do; LM_STOPPED after a stop request, with a
 *          checkpoint; LM_EINVAL before any work; LM_ENUMERIC after too many non-finite steps in a row; LM_EIO */
lm_status lm_train(const lm_comm *comm, const lm_config *cfg, const lm_options *options, lm_error *err) LM_NODISCARD;

#endif
