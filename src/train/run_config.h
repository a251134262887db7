/* src/train/run_config.h - everything a run is made of: one struct, filled from the option table. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TRAIN_RUN_CONFIG_H
#define LM_TRAIN_RUN_CONFIG_H

#include "base/options.h"
#include "batch/ramp.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "optim/optimizer.h"
#include "optim/scaler.h"
#include "optim/schedule.h"

typedef enum lm_precision { LM_PRECISION_F32, LM_PRECISION_BF16, LM_PRECISION_FP16, LM_PRECISION_AUTO } lm_precision;
#define LM_PRECISION_WORDS "f32|bf16|fp16|auto" /* for option tables, in the order of the enum */

typedef enum lm_lr_scaling { LM_LR_SCALING_NONE, LM_LR_SCALING_LINEAR, LM_LR_SCALING_SQRT } lm_lr_scaling;

/** What a step whose numbers are not to be trusted means; its update is never applied. In the order of the words. */
typedef enum lm_bad_step { LM_BAD_SKIP, LM_BAD_STOP, LM_BAD_ROLLBACK, LM_BAD_OFF } lm_bad_step;

/** A run's configuration. Plain data; texts live as long as the lm_options that filled it. doc/parameters.md. */
typedef struct lm_config {
  int backend;   /* lm_backend */
  int precision; /* lm_precision */
  bool verbose;
  struct {
    const char *folder, *resume, *init_from;
    int allow_change; /* 1: data */
    int64_t seed, steps, stop_after, threads, max_skipped;
    double hang_timeout, lock_timeout;
    int64_t max_stalled;
    double deadline_margin;
    bool reproducible;
    int64_t check_replicas;
  } run;
  struct {
    int preset;
    lm_model_config shape; /* vocab_size 0: that of the data */
  } model;
  struct {
    lm_list train;
    const char *val, *vocab;
    int64_t prefetch;
    bool document_mask;
  } data;
  struct {
    double z_loss, label_smoothing;
    int nonfinite, spike; /* lm_bad_step */
    double spike_z;
    int64_t spike_window, max_rollbacks;
  } train;
  struct {
    int64_t global, ramp_start, ramp_tokens, micro;
  } batch;
  struct {
    int kind;       /* lm_optimizer_kind */
    int lr_scaling; /* lm_lr_scaling */
    int64_t base_batch;
    double lr, beta1, beta2, eps, momentum, weight_decay, clip;
    bool nesterov;
  } optim;
  lm_scaler_config scaler;
  struct {
    int kind; /* lm_schedule_kind */
    int64_t warmup, warmup_tokens, end;
    double warmup_fraction, min_lr, cycles, decay_fraction;
    bool restarts;
    int decay; /* lm_decay */
  } schedule;
  struct {
    int64_t bucket_mb;
    int zero; /* lm_sharding */
    bool overlap;
  } parallel;
  struct {
    int64_t every, keep, milestone_every;
    bool async, keep_best;
    int verify; /* 1: full */
    int writer; /* 1: mpiio */
    const char *mpiio_hints;
    int64_t align_kb, stripe_count;
    int on_failure; /* 1: continue */
  } checkpoint;
  struct {
    int64_t every, windows;
  } eval;
  struct {
    int64_t every;
    bool samples;
  } log;
} lm_config;

extern const lm_option lm_config_options[]; /* ends with a row without a name */

/** Fill a config: defaults, preset, YAML file, overrides, in rising strength; then check what no single row can. Local.
 *  @param[out] options the caller's to free, after cfg's last use
 *  @param argv  [argc] words after the subcommand: CONFIG and --section.key=value
 *  @return LM_EINVAL with file and line, value, range, nearest key */
lm_status lm_config_load(lm_config *cfg, lm_options **options, int argc, char **argv, lm_error *err) LM_NODISCARD;

/** As lm_config_load(), from the text that a checkpoint holds. Local. @param where names the text in errors */
lm_status lm_config_parse(lm_config *cfg, lm_options **options, const char *yaml, size_t n, const char *where,
                          lm_error *err) LM_NODISCARD;

/** Set what model.preset stands for, where nothing stronger was said; lm_config_load() does. Local. */
lm_status lm_config_apply_preset(const lm_config *cfg, lm_options *options, lm_error *err) LM_NODISCARD;

/** The global batch of each step, and the rates, in steps: what the keys of batch, optim and schedule mean. Local. */
lm_ramp lm_config_ramp(const lm_config *cfg);
lm_schedule lm_config_schedule(const lm_config *cfg);
lm_optimizer_config lm_config_optimizer(const lm_config *cfg);

/** f32, bf16 or f16: what `precision` means on this backend and machine. Local. */
lm_dtype lm_config_compute(const lm_config *cfg, const lm_kernels *k);

#endif
