/* src/command/train.c - mpilm train: config -> a trained model. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/train.h"
#include "base/log.h"
#include "command/command.h"

static lm_status run(const lm_comm *comm, int argc, char **argv, lm_error *err)
{
  lm_config cfg;
  lm_options *options;
  /* Every rank reads the config: a file that one node cannot see is found here, and said once. */
  LM_TRY(lm_agree(comm, lm_config_load(&cfg, &options, argc, argv, err), err));
  lm_log_verbose(cfg.verbose);
  lm_status s = lm_train(comm, &cfg, options, err);
  lm_options_free(options);
  return s;
}

const lm_command lm_command_train = {
    .name = "train",
    .usage = "train CONFIG [--section.key=value]...",
    .summary = "train a model, or go on training it: data -> checkpoints, metrics.jsonl",
    .parallel = true,
    .options = lm_config_options,
    .n_options = LM_CONFIG_N_OPTIONS,
    .run = run,
};
