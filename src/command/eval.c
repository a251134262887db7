/* src/command/eval.c - mpilm eval: the loss of a checkpoint over a dataset. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/log.h"
#include "command/command.h"
#include "train/evaluate.h"
#include "train/restore.h"
#include "train/stop.h"
#include "train/threads.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct eval_options {
  const char *checkpoint;
  bool json;
};

static const lm_option options[] = {
    {"checkpoint", LM_OPT_STRING, offsetof(struct eval_options, checkpoint), "", NULL, NULL,
     "a checkpoint file or a run folder; empty is the newest of run.folder"},
    {"json", LM_OPT_BOOL, offsetof(struct eval_options, json), "false", NULL, NULL, "print one JSON object"},
};

/* JSON has no NaN and no infinity: null. */
static json_t *number(double x)
{
  return isfinite(x) ? json_real(x) : json_null();
}

static lm_status print(const struct eval_options *o, const lm_config *cfg, uint64_t step, const lm_loss *loss,
                       lm_error *err)
{
  double mean = loss->sum / (double)loss->count;
  if (!o->json) {
    printf("loss %.6f  perplexity %.4f  over %llu tokens of %s, step %llu\n", mean, exp(mean),
           (unsigned long long)loss->count, cfg->data.val, (unsigned long long)step);
    return LM_OK;
  }
  json_t *all = json_pack("{s:s, s:I, s:o, s:o, s:I}", "data", cfg->data.val, "step", (json_int_t)step, "loss",
                          number(mean), "perplexity", number(exp(mean)), "tokens", (json_int_t)loss->count);
  if (all == NULL) return lm_fail(err, LM_EINVAL, "%s: is not UTF-8, JSON cannot name it", cfg->data.val);
  json_dumpf(all, stdout, JSON_REAL_PRECISION(12));
  putchar('\n');
  json_decref(all);
  return LM_OK;
}

static lm_status open_data(lm_dataset **out, const lm_config *cfg, const lm_restored *r, lm_error *err)
{
  if (*cfg->data.val == '\0') return lm_fail(err, LM_EINVAL, "data.val names no dataset to evaluate on");
  LM_TRY(lm_dataset_open(out, cfg->data.val, err));
  const lm_token_info *info = lm_dataset_info(*out);
  if (info->vocab_fingerprint != r->vocab_fingerprint)
    return lm_fail(err, LM_EINVAL, "%s was made with another vocabulary (%016llx) than the checkpoint's data (%016llx)",
                   cfg->data.val, (unsigned long long)info->vocab_fingerprint,
                   (unsigned long long)r->vocab_fingerprint);
  if (info->tokens < 2)
    return lm_fail(err, LM_EINVAL, "%s: has %llu tokens; needs 2", cfg->data.val, (unsigned long long)info->tokens);
  return LM_OK;
}

static lm_status evaluate(const lm_comm *comm, const struct eval_options *o, const lm_config *cfg, lm_restored *r,
                          lm_error *err)
{
  int micro = (int)cfg->batch.micro;
  size_t n = (size_t)micro * (size_t)r->cfg.model.shape.n_ctx;
  int32_t *tokens = NULL, *targets = NULL;
  lm_dataset *data = NULL;
  lm_loss loss;
  lm_status s = open_data(&data, cfg, r, err);
  if (s == LM_OK) s = lm_alloc(&tokens, n, sizeof *tokens, "a micro-batch", err);
  if (s == LM_OK) s = lm_alloc(&targets, n, sizeof *targets, "a micro-batch", err);
  s = lm_agree(comm, s, err);
  if (s == LM_OK && r->cfg.data.document_mask)
    lm_model_mask_documents(r->model, (int32_t)lm_dataset_info(data)->end_of_text);
  if (s == LM_OK)
    s = lm_evaluate(comm, r->model, data, (uint64_t)cfg->eval.windows, micro, tokens, targets, NULL, &loss, err);
  if (s == LM_OK && loss.count == 0) s = lm_fail(err, LM_STOPPED, "the evaluation was interrupted");
  if (s == LM_OK) s = lm_agree(comm, comm->rank == 0 ? print(o, cfg, r->step, &loss, err) : LM_OK, err);
  free(tokens);
  free(targets);
  lm_dataset_close(data);
  return s;
}

static lm_status load(struct eval_options *o, lm_options **own, lm_config *cfg, lm_options **config, int argc,
                      char **argv, lm_error *err)
{
  LM_TRY(lm_options_new(own, options, sizeof options / sizeof options[0], o, err));
  LM_TRY(lm_options_take(*own, &argc, argv, err));
  return lm_config_load(cfg, config, argc, argv, err);
}

static lm_status run(const lm_comm *comm, int argc, char **argv, lm_error *err)
{
  struct eval_options o;
  lm_config cfg;
  lm_options *own = NULL, *config = NULL;
  lm_restored r = {0};
  lm_status s = lm_agree(comm, load(&o, &own, &cfg, &config, argc, argv, err), err);
  if (s == LM_OK) {
    lm_stop_watch();
    lm_threads_set(comm, cfg.run.threads);
    s = lm_restore(&r, comm, *o.checkpoint ? o.checkpoint : cfg.run.folder, cfg.backend, cfg.precision,
                   (int)cfg.batch.micro, err);
  }
  if (s == LM_OK) s = evaluate(comm, &o, &cfg, &r, err);
  lm_restored_free(&r);
  lm_options_free(config);
  lm_options_free(own);
  return s;
}

const lm_command lm_command_eval = {
    .name = "eval",
    .usage = "eval CONFIG [--checkpoint FILE|RUN] [--json] [--section.key=value]...",
    .summary = "the mean loss of a checkpoint over data.val; keys of the config as in mpilm train --help",
    .parallel = true,
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .run = run,
};
