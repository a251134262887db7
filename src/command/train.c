/* src/command/train.c - mpilm train: config -> a trained model. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/train.h"
#include "base/log.h"
#include "command/command.h"
#include "command/show_schedule.h"

struct train_options {
  bool show_schedule;
  const char *svg;
};

static const lm_option own_options[] = {
    {"show-schedule", LM_OPT_BOOL, offsetof(struct train_options, show_schedule), "false", NULL, NULL,
     "train nothing: print the learning rates and batches of the run, and draw them"},
    {"svg", LM_OPT_STRING, offsetof(struct train_options, svg), "schedule.svg", NULL, NULL,
     "where --show-schedule draws"},
};

static lm_status train(const lm_comm *comm, const lm_config *cfg, const lm_options *options, lm_error *err)
{
  lm_log_verbose(cfg->verbose);
  return lm_train(comm, cfg, options, err);
}

static lm_status show(const lm_comm *comm, const lm_config *cfg, const char *svg, lm_error *err)
{
  return lm_agree(comm, comm->rank == 0 ? lm_show_schedule(cfg, svg, err) : LM_OK, err);
}

static lm_status load(struct train_options *o, lm_options **own, lm_config *cfg, lm_options **config, int argc,
                      char **argv, lm_error *err)
{
  LM_TRY(lm_options_new(own, own_options, sizeof own_options / sizeof own_options[0], o, err));
  LM_TRY(lm_options_take(*own, &argc, argv, err));
  return lm_config_load(cfg, config, argc, argv, err);
}

static lm_status run(const lm_comm *comm, int argc, char **argv, lm_error *err)
{
  struct train_options o;
  lm_config cfg;
  lm_options *own = NULL, *config = NULL;
  /* Every rank reads the config: a file that one node cannot see is found here, and said once. */
  lm_status s = lm_agree(comm, load(&o, &own, &cfg, &config, argc, argv, err), err);
  if (s == LM_OK) s = o.show_schedule ? show(comm, &cfg, o.svg, err) : train(comm, &cfg, config, err);
  lm_options_free(config);
  lm_options_free(own);
  return s;
}

const lm_command lm_command_train = {
    .name = "train",
    .usage =
        "train CONFIG [--section.key=value]...\ntrain CONFIG --show-schedule [--svg FILE] [--section.key=value]...",
    .summary = "train a model, or go on training it: data -> checkpoints, metrics.jsonl",
    .parallel = true,
    .options = own_options,
    .n_options = sizeof own_options / sizeof own_options[0],
    .config_options = lm_config_options,
    .run = run,
};
