/* src/train/train.c - the training run: resume, loop, evaluate, save, stop. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/train.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "config.h"
#include "slurm/job.h"
#include "train/backend.h"
#include "train/changes.h"
#include "train/evaluate.h"
#include "train/mixing.h"
#include "train/replicas.h"
#include "train/stop.h"
#include "train/threads.h"
#include "train/trainer.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- making ---- */

static lm_status open_data(lm_trainer *t, lm_error *err)
{
  const lm_config *cfg = t->cfg;
  LM_TRY(lm_sources_open(&t->sources, &cfg->data.train, t->T, err));
  const lm_token_info *info = lm_sources_vocab(&t->sources);
  if (*cfg->data.val == '\0') return LM_OK;
  LM_TRY(lm_dataset_open(&t->val, cfg->data.val, err));
  const lm_token_info *val = lm_dataset_info(t->val);
  if (val->vocab_fingerprint != info->vocab_fingerprint)
    return lm_fail(
        err, LM_EINVAL, "%s was made with another vocabulary (fingerprint %016" PRIx64 ") than %s (%016" PRIx64 ")",
        cfg->data.val, val->vocab_fingerprint, lm_dataset_path(t->sources.items[0].data), info->vocab_fingerprint);
  if (val->tokens < 2)
    return lm_fail(err, LM_EINVAL, "%s: has %" PRIu64 " tokens; needs 2", cfg->data.val, val->tokens);
  return LM_OK;
}

/* What this rank holds, and the sequences of each. */
static lm_status describe_rank(lm_trainer *t, lm_error *err)
{
  const lm_config *cfg = t->cfg;
  const lm_token_info *info = lm_sources_vocab(&t->sources);
  lm_model_config model = cfg->model.shape;
  if (model.vocab_size == 0) model.vocab_size = (int64_t)info->vocab_size;
  if ((uint64_t)model.vocab_size < info->vocab_size)
    return lm_fail(err, LM_EINVAL, "%s: ids are below %" PRIu64 ", model.vocab_size is %lld; want at least as many",
                   lm_dataset_path(t->sources.items[0].data), info->vocab_size, (long long)model.vocab_size);
  LM_TRY(lm_alloc(&t->first, (size_t)t->comm->size + 1, sizeof *t->first, "the ranks' sequences", err));
  lm_trainer_share_batch(t, t->ramp.full);
  t->shape = (lm_rank_shape){.model = model,
                             .compute = t->compute,
                             .optimizer = lm_config_optimizer(cfg),
                             .sharding = (lm_sharding)cfg->parallel.zero,
                             .rank = t->comm->rank,
                             .size = t->comm->size,
                             .sync = {.bucket_bytes = (size_t)cfg->parallel.bucket_mb << 20,
                                      .overlap = cfg->parallel.overlap,
                                      .reproducible = cfg->run.reproducible,
                                      .first = t->first,
                                      .micro = t->micro,
                                      .device = t->k->on_device}};
  return lm_rank_memory_of(&t->memory, &t->shape, err);
}

static double mib(size_t bytes)
{
  return (double)bytes / (1 << 20);
}

/* A device has what it has: it is asked before anything is taken. */
static lm_status check_room(const lm_trainer *t, lm_error *err)
{
  const lm_rank_memory *b = &t->memory;
  size_t wanted = lm_rank_memory_sum(b), free = t->k->available != NULL ? t->k->available() : SIZE_MAX;
  if (wanted <= free) return LM_OK;
  return lm_fail(
      err, LM_EINVAL,
      "a rank's memory: %.1f MiB are wanted (weights %.1f, gradients %.1f, optimizer %.1f, activations %.1f, "
      "exchange and lists %.1f), %.1f are free; lower batch.micro or model.n_ctx, or set model.recompute to block, or "
      "parallel.zero to 2",
      mib(wanted), mib(b->weights), mib(b->gradients), mib(b->optimizer), mib(b->activations),
      mib(b->exchange + b->lists), mib(free));
}

static lm_status make_model(lm_trainer *t, lm_error *err)
{
  const lm_rank_shape *s = &t->shape;
  LM_TRY(describe_rank(t, err));
  LM_TRY(check_room(t, err));
  LM_TRY(lm_model_new_shared(&t->model, &s->model, t->k, t->compute, t->micro, s->sharding, s->rank, s->size, err));
  if (t->cfg->data.document_mask)
    lm_model_mask_documents(t->model, (int32_t)lm_sources_vocab(&t->sources)->end_of_text);
  return lm_optimizer_new(&t->optimizer, lm_model_params(t->model), lm_model_weights(t->model), t->compute, t->k,
                          &s->optimizer, err);
}

/* config.used.yaml, which checkpoints keep and eval and generate read. YAML holds UTF-8, the names of files any bytes.
 */
static lm_status write_config(lm_trainer *t, const lm_options *options, lm_error *err)
{
  lm_config again;
  lm_options *parsed = NULL;
  LM_TRY(lm_options_write_yaml(options, &t->config_text, err));
  lm_status s = lm_config_parse(&again, &parsed, t->config_text.data, t->config_text.size, "config.used.yaml", err);
  lm_options_free(parsed);
  if (s == LM_EINVAL)
    return lm_fail_in(err, s, "checkpoints cannot keep this config: its name and texts must be UTF-8");
  return s;
}

static lm_status make_local(lm_trainer *t, const lm_options *options, lm_error *err)
{
  const lm_config *cfg = t->cfg;
  LM_TRY(write_config(t, options, err));
  LM_TRY(lm_backend_start(&t->k, t->comm, (lm_backend)cfg->backend, err));
  t->compute = lm_config_compute(cfg, t->k);
  t->T = (int)cfg->model.shape.n_ctx;
  int64_t share = (cfg->batch.global + t->comm->size - 1) / t->comm->size;
  t->micro = cfg->run.reproducible ? 1 : (int)(cfg->batch.micro < share ? cfg->batch.micro : share);
  t->schedule = lm_config_schedule(cfg);
  t->ramp = lm_config_ramp(cfg);
  LM_TRY(open_data(t, err));
  LM_TRY(make_model(t, err));
  size_t n = (size_t)t->micro * (size_t)t->T;
  LM_TRY(lm_alloc(&t->tokens, n, sizeof *t->tokens, "a micro-batch", err));
  LM_TRY(lm_alloc(&t->targets, n, sizeof *t->targets, "a micro-batch", err));
  if (cfg->run.reproducible)
    LM_TRY(lm_alloc(&t->losses, (size_t)cfg->batch.global, sizeof *t->losses, "the losses of a step", err));
  if (cfg->log.samples)
    LM_TRY(lm_alloc(&t->samples, 2 * (size_t)cfg->batch.global, sizeof *t->samples, "the samples of a step", err));
  return LM_OK;
}

static lm_status new_loader(lm_trainer *t, lm_loader **out, lm_error *err)
{
  const lm_config *cfg = t->cfg;
  return lm_loader_new(out, &t->sources, &t->mixture, (uint64_t)cfg->run.seed, t->T, (uint64_t)cfg->batch.global,
                       t->comm->rank, t->comm->size, err);
}

/* Once it is known what was drawn before. */
static lm_status make_loader(lm_trainer *t, lm_error *err)
{
  const lm_config *cfg = t->cfg;
  LM_TRY(new_loader(t, &t->loader, err));
  if (cfg->log.samples) LM_TRY(new_loader(t, &t->describer, err));
  return lm_prefetch_new(&t->prefetch, t->loader, (int)cfg->data.prefetch, (size_t)t->micro, t->T, err);
}

/* Keys whose values may differ between ranks: each node may have its copy of the data, whose content is compared. */
static bool may_differ(const char *key)
{
  static const char *const keys[] = {"backend", "verbose", "run.threads", "data.train", "data.val", "data.vocab"};
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
    if (strcmp(key, keys[i]) == 0) return true;
  return false;
}

/* What all ranks must have in common: the values of the config, then the data. @param out  [n + 2] */
static lm_status fingerprint(const lm_trainer *t, const lm_options *options, size_t n, uint64_t *out, lm_error *err)
{
  for (size_t i = 0; i < n; i++) {
    lm_buffer value = {0};
    if (may_differ(lm_config_options[i].name)) continue;
    lm_status s = lm_options_value(options, &lm_config_options[i], &value, err);
    out[i] = lm_hash(value.data, value.size);
    lm_buffer_free(&value);
    LM_TRY(s);
  }
  out[n] = lm_hash_seeded("", 0, t->sources.n);
  for (size_t i = 0; i < t->sources.n; i++)
    out[n] = lm_hash_seeded(&lm_dataset_info(t->sources.items[i].data)->checksum, sizeof *out, out[n]);
  out[n + 1] = t->val != NULL ? lm_dataset_info(t->val)->checksum : 0;
  return LM_OK;
}

/* @param mine, first  [n + 2]: this rank's, rank 0's */
static lm_status compare_fingerprints(const uint64_t *mine, const uint64_t *first, size_t n, lm_error *err)
{
  size_t i = 0;
  while (i < n + 2 && mine[i] == first[i]) i++;
  if (i == n + 2) return LM_OK;
  if (i < n)
    return lm_fail(err, LM_EINVAL, "%s is not what it is on rank 0; want the same config on all ranks",
                   lm_config_options[i].name);
  return lm_fail(err, LM_EINVAL, "data.%s holds other data than on rank 0; want the same on all nodes",
                 i == n ? "train" : "val");
}

/* Ranks that read another file, or other words, would wait for each other for ever, or learn from other data.
 * Collective.
 */
static lm_status check_same(const lm_trainer *t, const lm_options *options, lm_error *err)
{
  size_t n = lm_options_count(lm_config_options);
  uint64_t *mine;
  LM_TRY(lm_alloc_agreed(t->comm, &mine, 2 * (n + 2), sizeof *mine, "the config's hashes", err));
  lm_status s = lm_agree(t->comm, fingerprint(t, options, n, mine, err), err);
  if (s == LM_OK) {
    uint64_t *first = mine + n + 2;
    memcpy(first, mine, (n + 2) * sizeof *mine);
    lm_bcast(t->comm, first, (n + 2) * sizeof *first, 0);
    s = lm_agree(t->comm, compare_fingerprints(mine, first, n, err), err);
  }
  free(mine);
  return s;
}

/* Checkpoints keep the text of rank 0, whatever the others call their copies of the data. Collective. */
static lm_status share_config(lm_trainer *t, lm_error *err)
{
  uint64_t n = t->config_text.size;
  lm_status s = LM_OK;
  lm_bcast(t->comm, &n, sizeof n, 0);
  if (t->comm->rank != 0) {
    t->config_text.size = 0;
    s = lm_buffer_reserve(&t->config_text, n, err);
  }
  LM_TRY(lm_agree(t->comm, s, err));
  lm_bcast(t->comm, t->config_text.data, n, 0);
  t->config_text.size = n;
  t->config_text.data[n] = '\0';
  return LM_OK;
}

/* Where nodes differ, `auto` may have chosen differently. Collective. */
static lm_status check_backend(const lm_trainer *t, lm_error *err)
{
  char first[32] = {0};
  snprintf(first, sizeof first, "%s", t->k->name);
  lm_bcast(t->comm, first, sizeof first, 0);
  lm_status s = LM_OK;
  if (strcmp(first, t->k->name) != 0)
    s = lm_fail(err, LM_EINVAL,
                "backend %s on %s, %s on rank 0; want the same on all ranks: --backend=cpu is everywhere", t->k->name,
                t->comm->host, first);
  else if (t->k->on_device && t->k->fabric == NULL && t->comm->size > 1)
    s = lm_fail(err, LM_EINVAL, "backend %s: this build has no NCCL, %d ranks cannot exchange gradients; want 1 rank",
                t->k->name, t->comm->size);
  return lm_agree(t->comm, s, err);
}

/* Collective. */
static lm_status make_gradsync(lm_trainer *t, lm_error *err)
{
  enum { JOINING = 120 /* seconds: a large cluster takes some */ };
  LM_TRY(check_backend(t, err));
  if (t->k->fabric != NULL)
    LM_TRY(
        lm_device_comm_new(&t->device, t->comm, t->k->fabric, (int)lm_model_params(t->model)->n_groups, JOINING, err));
  return lm_gradsync_new(&t->sync, t->comm, lm_model_params(t->model), t->k, t->device, lm_model_gradients(t->model),
                         &t->shape.sync, err);
}

static void release(lm_trainer *t)
{
  lm_watchdog_stop(t->watchdog);
  lm_saver_free(t->saver);
  lm_metrics_close(t->metrics);
  lm_buffer_free(&t->config_text);
  lm_gradsync_free(t->sync);
  lm_device_comm_free(t->device);
  free(t->losses);
  free(t->first);
  free(t->samples);
  free(t->targets);
  free(t->tokens);
  lm_prefetch_free(t->prefetch);
  lm_loader_free(t->describer);
  lm_loader_free(t->loader);
  lm_mixture_free(&t->mixture);
  lm_optimizer_free(t->optimizer);
  lm_model_free(t->model);
  lm_dataset_close(t->val);
  lm_sources_close(&t->sources);
  lm_run_lock_release(t->lock);
}

/* ---- start: from a checkpoint, or from the seed ---- */

static lm_status initial_weights(lm_trainer *t, lm_error *err)
{
  const lm_param_table *table = lm_model_params(t->model);
  bool owned = lm_optimizer_has_master(t->optimizer);
  float *host;
  size_t most = 0;
  for (size_t i = 0; i < table->n_groups; i++)
    if (table->groups[i].count > most) most = table->groups[i].count;
  LM_TRY(lm_alloc(&host, most, sizeof *host, "the initial weights", err));
  for (size_t i = 0; i < table->n_groups; i++) {
    const lm_param_group *g = &table->groups[i];
    size_t begin = owned ? g->begin + g->own_begin : g->begin, n = owned ? g->own_count : g->count;
    lm_param_init(table, lm_model_config_of(t->model), (uint64_t)t->cfg->run.seed, begin, n, host);
    t->k->to_device(lm_optimizer_master(t->optimizer) + (owned ? g->own_at : g->begin), host, n * sizeof *host);
  }
  free(host);
  return LM_OK;
}

/* The seed makes the order of the data, so a run keeps the one it began with. */
static lm_status check_resumed(const lm_trainer *t, lm_error *err)
{
  if (t->at.key != (uint64_t)t->cfg->run.seed)
    return lm_fail(err, LM_EINVAL,
                   "%s: was begun with run.seed %" PRIu64 ", the config says %lld: another seed is another run",
                   t->cfg->run.folder, t->at.key, (long long)t->cfg->run.seed);
  return LM_OK;
}

/* The weights of another run; all else is new. */
static lm_status begin_with(lm_trainer *t, const char *path, lm_error *err)
{
  lm_state state = {0};
  LM_TRY(lm_agree(t->comm, lm_state_to_begin(&state, t->model, t->optimizer, err), err));
  lm_status s = lm_state_read(t->comm, path, state.slices, state.n, err);
  lm_state_free(&state);
  if (s == LM_OK)
    lm_info("a new run begins with the weights of %s; its optimizer, step and data position do not count", path);
  return s;
}

static lm_status begin_anew(lm_trainer *t, lm_error *err)
{
  LM_TRY(lm_agree(t->comm, lm_sources_mix(&t->sources, &t->mixture, 0, err), err));
  t->at = (lm_progress){.key = (uint64_t)t->cfg->run.seed, .scaler = lm_scaler_start(&t->cfg->scaler)};
  if (*t->cfg->run.init_from != '\0') return begin_with(t, t->cfg->run.init_from, err);
  return lm_agree(t->comm, initial_weights(t, err), err);
}

/* Rank 0's part of going on from a checkpoint: is it the same run, and what comes after it? */
static lm_status accept(lm_trainer *t, const lm_options *options, bool chosen, lm_error *err)
{
  char path[PATH_MAX];
  size_t n;
  bool allow = t->cfg->run.allow_change == 1;
  LM_TRY(lm_checkpoint_file(path, t->cfg->run.folder, t->saved_step, err));
  LM_TRY(lm_compare_run(path, options, lm_sources_vocab(&t->sources)->vocab_fingerprint, allow, err));
  LM_TRY(lm_mixing_read(&t->mixture, NULL, path, err));
  LM_TRY(lm_mixing_follow(&t->mixture, &t->sources, t->at.position, path, allow, err));
  if (!chosen) return LM_OK;
  LM_TRY(lm_checkpoint_abandon_after(t->cfg->run.folder, t->saved_step, &n, err));
  if (n > 0) lm_info("%zu later checkpoints are given up: they are now called abandoned-*.h5", n);
  return LM_OK;
}

static lm_status resume_step(const lm_trainer *t, uint64_t *step, lm_error *err)
{
  char *end;
  const char *word = t->cfg->run.resume;
  *step = UINT64_MAX;
  if (strcmp(word, "auto") == 0 || strcmp(word, "never") == 0) return LM_OK;
  *step = strtoull(word, &end, 10);
  if (*word >= '0' && *word <= '9' && *end == '\0') return LM_OK;
  return lm_fail(err, LM_EINVAL, "run.resume is '%s'; want auto, never or a step", word);
}

static lm_status load(lm_trainer *t, uint64_t only, bool *found, lm_error *err)
{
  lm_state state = {0};
  double begin = lm_clock();
  lm_progress loaded = {.scaler = lm_scaler_start(&t->cfg->scaler)};
  LM_TRY(lm_agree(t->comm, lm_state_to_load(&state, t->model, t->optimizer, &loaded, err), err));
  lm_status s =
      lm_checkpoint_resume(t->comm, t->cfg->run.folder, only, state.slices, state.n, &t->saved_step, found, err);
  lm_state_free(&state);
  if (s == LM_OK && *found) t->at = loaded;
  if (s == LM_OK && *found) lm_verbose("the checkpoint was read and verified in %.2f s", lm_clock() - begin);
  return s;
}

/* The masters are there: bring the weights that follow from them to all ranks. Collective. */
static void publish(lm_trainer *t)
{
  lm_optimizer_publish(t->optimizer);
  lm_gradsync_gather(t->sync, lm_model_weights(t->model), t->compute);
}

/* Rank 0's look at a folder that should have no checkpoints: whose, and whether they are good, does not matter. */
static lm_status check_empty(const lm_trainer *t, lm_error *err)
{
  lm_checkpoint *list;
  size_t n;
  LM_TRY(lm_checkpoint_scan(t->cfg->run.folder, &list, &n, err));
  free(list);
  if (n == 0) return LM_OK;
  return lm_fail(err, LM_EINVAL, "%s: holds checkpoints, run.resume is never; want a folder without any",
                 t->cfg->run.folder);
}

static lm_status start(lm_trainer *t, const lm_options *options, lm_error *err)
{
  bool found = false;
  uint64_t only;
  if (strcmp(t->cfg->run.resume, "never") == 0)
    LM_TRY(lm_agree(t->comm, t->comm->rank == 0 ? check_empty(t, err) : LM_OK, err));
  LM_TRY(resume_step(t, &only, err)); /* the same config on all ranks */
  if (only != UINT64_MAX) {
    LM_TRY(lm_agree(t->comm, t->comm->rank == 0 ? lm_resume_again(&only, t->cfg->run.folder, err) : LM_OK, err));
    lm_bcast(t->comm, &only, sizeof only, 0);
  }
  LM_TRY(load(t, only, &found, err));
  if (found) {
    LM_TRY(check_resumed(t, err)); /* the same values on all ranks */
    LM_TRY(lm_agree(t->comm, t->comm->rank == 0 ? accept(t, options, only != UINT64_MAX, err) : LM_OK, err));
    LM_TRY(lm_mixing_share(t->comm, &t->mixture, err));
    lm_info("resumed from step %" PRIu64 " of %s", t->saved_step, t->cfg->run.folder);
  } else {
    LM_TRY(begin_anew(t, err));
  }
  publish(t);
  return LM_OK;
}

/* Rows after the step that the run goes on from are cut. */
static lm_status open_metrics(lm_trainer *t, lm_error *err)
{
  char path[PATH_MAX];
  lm_metrics_close(t->metrics);
  snprintf(path, sizeof path, "%s/metrics.jsonl", t->cfg->run.folder);
  return lm_metrics_open(&t->metrics, path, t->at.step, err);
}

static lm_status open_files(lm_trainer *t, lm_error *err)
{
  char path[PATH_MAX];
  if (t->comm->rank != 0) return LM_OK;
  snprintf(path, sizeof path, "%s/config.used.yaml", t->cfg->run.folder);
  LM_TRY(lm_file_replace(path, t->config_text.data, t->config_text.size, err));
  return open_metrics(t, err);
}

static void banner(const lm_trainer *t)
{
  const lm_model_config *m = lm_model_config_of(t->model);
  lm_info("mpilm %s: %d rank%s x %d thread%s, backend %s (%s), %s, measured peak %.0f GFLOP/s", PACKAGE_VERSION,
          t->comm->size, t->comm->size > 1 ? "s" : "", lm_threads(), lm_threads() > 1 ? "s" : "", t->k->name, t->k->isa,
          lm_dtype_name(t->compute), t->peak_flops * 1e-9);
  lm_info("model: %zu parameters, %lld layers, %lld heads, width %lld, context %lld, vocabulary %lld",
          lm_model_params(t->model)->parameters, (long long)m->n_layer, (long long)m->n_head, (long long)m->n_embd,
          (long long)m->n_ctx, (long long)m->vocab_size);
  lm_info("batch: %lld sequences of %d tokens an update; steps %" PRIu64 " to %lld into %s",
          (long long)t->cfg->batch.global, t->T, t->at.step + 1, (long long)t->cfg->run.steps, t->cfg->run.folder);
  const lm_rank_memory *b = &t->memory;
  lm_info("memory of rank 0: %.1f MiB: weights %.1f, gradients %.1f, optimizer %.1f, activations %.1f, exchange %.1f",
          mib(lm_rank_memory_sum(b)), mib(b->weights), mib(b->gradients), mib(b->optimizer), mib(b->activations),
          mib(b->exchange + b->lists));
}

/* ---- what this start has reached, and the end of the job's time ---- */

static lm_status note_progress(lm_trainer *t, lm_error *err)
{
  lm_journal_entry now = {.resumed = t->started_step,
                          .step = t->at.step,
                          .saved = t->saved_step,
                          .slowest_step = t->slowest_step,
                          .slowest_save = t->slowest_save};
  return t->journal != NULL ? lm_journal_note(t->journal, &now, err) : LM_OK;
}

/* After a stop request comes the rest of a step, then the rest of a save under way, then a save. Until one was
 * measured, by this start or one before, a save is taken to write 12 bytes a parameter at 100 MB/s. */
static void measure_stop(lm_trainer *t, double step, double save)
{
  if (step > t->slowest_step) t->slowest_step = step;
  if (save > t->slowest_save) t->slowest_save = save;
  double expected = t->slowest_save > 0 ? t->slowest_save : 12e-8 * (double)lm_model_params(t->model)->elements;
  double saves = expected * (t->cfg->checkpoint.async ? 2 : 1);
  lm_stop_reserve(t->slowest_step + saves + t->cfg->run.deadline_margin);
}

/* Rank 0 watches it for all. */
static void watch_deadline(lm_trainer *t)
{
  double end = t->comm->rank == 0 ? lm_slurm_end_time() : 0;
  if (end <= 0) return;
  double left = end - (double)time(NULL);
  measure_stop(t, 0, 0);
  lm_stop_before(lm_clock() + left);
  lm_info("the job ends in %.0f s: the run is saved and stopped %g s before", left, t->cfg->run.deadline_margin);
}

/* ---- loop ---- */

/* One sentence of YAML a line; the clock and the host are those of rank 0. */
static lm_status describe_program(const lm_trainer *t, char out[1024], lm_error *err)
{
  char now[32];
  time_t seconds = time(NULL);
  strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", gmtime(&seconds));
  const char *job = lm_slurm_job_id();
  int n = snprintf(out, 1024, "mpilm: %s\nsaved: %s\nhost: %s\njob: %s\nbackend: %s\nisa: %s\nprecision: %s\n",
                   PACKAGE_VERSION, now, t->comm->host, job ? job : "none", t->k->name, t->k->isa,
                   lm_dtype_name(t->compute));
  lm_bcast(t->comm, out, 1024, 0);
  return n > 0 && n < 1024 ? LM_OK : lm_fail(err, LM_EINVAL, "the job id is too long: '%.100s'", job ? job : "");
}

/* A call on the state as checkpoints have it. */
static lm_status with_state(lm_trainer *t, const lm_metrics_row *row, bool begin, lm_error *err)
{
  char program[1024];
  lm_state state = {0};
  lm_provenance from = {.config = t->config_text.data,
                        .program = program,
                        .world = (uint64_t)t->comm->size,
                        .loss = (float)row->loss,
                        .validation_loss = (float)row->val_loss,
                        .vocab = lm_sources_vocab(&t->sources)->vocab_fingerprint,
                        .data = lm_sources_checksum(&t->sources),
                        .mixture = &t->mixture};
  lm_trainer_phase(t, t->at.step, "checkpoint");
  lm_status s = describe_program(t, program, err);
  if (s == LM_OK && t->lock != NULL) s = lm_run_lock_check(t->lock, err);
  if (s == LM_OK) s = lm_state_to_save(&state, t->comm, t->model, t->optimizer, &t->at, &from, err);
  s = lm_agree(t->comm, s, err);
  if (s == LM_OK && begin)
    s = lm_saver_begin(t->saver, t->at.step, state.slices, state.n, row->val_loss, err);
  else if (s == LM_OK)
    s = lm_saver_prepare(t->saver, state.slices, state.n, err);
  lm_state_free(&state);
  return s;
}

/* Only the thread that trains calls MPI. */
static bool in_background(const lm_config *cfg)
{
  return cfg->checkpoint.async && cfg->checkpoint.writer == 0;
}

/* What a failed save means: the same on all ranks, as s is. That the folder is another job's now is not a matter of
 * this save. */
static lm_status tolerate(lm_trainer *t, lm_status s, lm_error *err)
{
  t->save_failed = s != LM_OK;
  if (s == LM_OK || s == LM_EPEER || t->cfg->checkpoint.on_failure == 0 || err == NULL) return s;
  lm_warn("a save failed, training goes on; the last checkpoint is that of step %" PRIu64 ": %s", t->saved_step,
          err->text);
  return LM_OK;
}

static lm_status end_save(lm_trainer *t, lm_error *err)
{
  uint64_t step;
  if (!lm_saver_busy(t->saver, &step)) return LM_OK;
  lm_trainer_phase(t, t->at.step, "checkpoint");
  lm_status s = lm_saver_end(t->saver, err);
  if (s == LM_OK) {
    t->saved_step = step;
    lm_info("step %6" PRIu64 "  saved", step);
    lm_verbose("step %6" PRIu64 "  its save took %.2f s from beginning to end", step, lm_saver_seconds(t->saver));
  }
  return tolerate(t, s, err);
}

static lm_status begin_save(lm_trainer *t, const lm_metrics_row *row, lm_error *err)
{
  LM_TRY(end_save(t, err));
  return tolerate(t, with_state(t, row, true, err), err);
}

/* The last state of a run is on disk when this returns. */
static lm_status save(lm_trainer *t, const lm_metrics_row *row, bool last, lm_error *err)
{
  LM_TRY(begin_save(t, row, err));
  if (!last && in_background(t->cfg)) return LM_OK;
  LM_TRY(end_save(t, err));
  if (!last || !t->save_failed) return LM_OK;
  return lm_fail(err, LM_EIO, "step %" PRIu64 " could not be saved; the last checkpoint is that of step %" PRIu64,
                 t->at.step, t->saved_step);
}

/* A run that fails between two saves still completes the one that it began. */
static void end_last_save(lm_trainer *t)
{
  lm_error why;
  if (t->saver == NULL || !lm_saver_busy(t->saver, NULL)) return;
  lm_status s = end_save(t, &why);
  if (s == LM_OK) s = note_progress(t, &why);
  if (s != LM_OK) lm_warn("%s", why.text);
}

static lm_status evaluate(lm_trainer *t, double *mean, lm_error *err)
{
  lm_loss loss;
  const lm_watched watched = {t->watchdog, t->at.step};
  LM_TRY(lm_evaluate(t->comm, t->model, t->val, (uint64_t)t->cfg->eval.windows, t->micro, t->tokens, t->targets,
                     &watched, &loss, err));
  *mean = loss.count > 0 ? loss.sum / (double)loss.count : NAN;
  return LM_OK;
}

static void say_step(const lm_trainer *t, const lm_metrics_row *row)
{
  double each = (lm_clock() - t->started) / (double)(row->step - t->started_step);
  double left = each * ((double)t->cfg->run.steps - (double)row->step);
  lm_info("step %6" PRIu64 "/%lld  loss %8.4f  norm %8.3f  lr %.2e  %8.0f tokens/s  %5.1f %% of peak  %7.1f ms  "
          "%.0f:%02.0f left%s",
          row->step, (long long)t->cfg->run.steps, row->loss, row->grad_norm, row->lr, row->tokens_per_s,
          100 * row->mfu, 1e3 * (double)row->batch * t->T / row->tokens_per_s, floor(left / 60), floor(fmod(left, 60)),
          row->skipped ? "  SKIPPED" : "");
  if (!isnan(row->val_loss)) lm_info("step %6" PRIu64 "  validation loss %.4f", row->step, row->val_loss);
}

static void say_phases(const lm_metrics_row *row)
{
  lm_verbose("step %6" PRIu64
             "  seconds of the slowest rank: data %.4f, compute %.4f, reduce %.4f; of rank 0: update %.4f, "
             "evaluation %.4f, checkpoint %.4f",
             row->step, row->seconds.data, row->seconds.compute, row->seconds.reduce, row->seconds.update,
             row->seconds.eval, row->seconds.checkpoint);
}

static bool due(uint64_t step, int64_t every)
{
  return every > 0 && step % (uint64_t)every == 0;
}

static lm_status write_rows(lm_trainer *t, const lm_metrics_row *row, lm_error *err)
{
  LM_TRY(lm_metrics_write(t->metrics, row, err));
  return note_progress(t, err);
}

static lm_status check_replicas(lm_trainer *t, lm_error *err)
{
  lm_trainer_phase(t, t->at.step, "comparison of replicas");
  lm_status s =
      lm_check_replicas(t->comm, lm_model_params(t->model), t->k, lm_model_weights(t->model), t->compute, err);
  return s == LM_ENUMERIC ? lm_fail_in(err, s, "step %" PRIu64, t->at.step) : s;
}

/* What follows a step: evaluation, checkpoint, metrics. Collective. */
static lm_status after_step(lm_trainer *t, lm_step_result *r, bool last, lm_error *err)
{
  lm_metrics_row *row = &r->row;
  double begin = lm_clock();
  if (r->saved) LM_TRY(end_save(t, err));
  row->seconds.checkpoint = lm_clock() - begin;
  begin = lm_clock();
  if (t->val != NULL && (due(row->step, t->cfg->eval.every) || (last && t->cfg->eval.every > 0 && !r->stop)))
    LM_TRY(evaluate(t, &row->val_loss, err));
  if (due(row->step, t->cfg->run.check_replicas)) LM_TRY(check_replicas(t, err));
  double evaluated = lm_clock();
  row->seconds.eval = evaluated - begin;
  /* In a run of bad steps nothing new is worth keeping, and a good checkpoint might make room for it. */
  if (last || (due(row->step, t->cfg->checkpoint.every) && !row->skipped)) LM_TRY(save(t, row, last, err));
  row->seconds.checkpoint += lm_clock() - evaluated;
  double step = (double)row->batch * t->T / row->tokens_per_s;
  measure_stop(t, step + row->seconds.checkpoint, lm_saver_seconds(t->saver));
  if (row->step % (uint64_t)t->cfg->log.every == 0 || last || row->skipped || !isnan(row->val_loss)) {
    say_step(t, row);
    say_phases(row);
  }
  return lm_agree(t->comm, t->metrics ? write_rows(t, row, err) : LM_OK, err);
}

/* Collective: a save on its way is completed, so that the last checkpoint is what the words say. */
static lm_status too_many_skipped(lm_trainer *t, const lm_step_result *r, lm_error *err)
{
  if (t->at.skipped <= (uint64_t)t->cfg->run.max_skipped) return LM_OK;
  LM_TRY(end_save(t, err));
  return lm_fail(err, LM_ENUMERIC,
                 "step %" PRIu64 ": %" PRIu64
                 " updates in a row were left out, the last one: %s; run.max_skipped allows %lld; the last "
                 "checkpoint is that of step %" PRIu64,
                 t->at.step, t->at.skipped, r->why, (long long)t->cfg->run.max_skipped, t->saved_step);
}

/* ---- a step that is not to be trusted ---- */

/* The state of the last checkpoint, or of the start where there is none. */
static lm_status go_back(lm_trainer *t, lm_error *err)
{
  bool found;
  lm_trainer_phase(t, t->at.step, "rollback");
  LM_TRY(load(t, UINT64_MAX, &found, err));
  if (!found) {
    lm_optimizer_forget(t->optimizer);
    LM_TRY(begin_anew(t, err));
  }
  publish(t);
  if (t->started_step > t->at.step) t->started_step = t->at.step;
  return LM_OK;
}

static lm_status note_rollback(lm_trainer *t, const lm_journal_rollback *what, lm_error *err)
{
  if (t->comm->rank != 0) return LM_OK;
  LM_TRY(lm_journal_add_rollback(t->journal, what, err));
  return open_metrics(t, err);
}

/* Back to the last checkpoint, and on with the data behind the bad step. The checkpoint is written again with the new
 * place in the data: what was jumped over stays so, whenever the run is resumed. Collective. */
static lm_status roll_back(lm_trainer *t, const char *why, lm_error *err)
{
  uint64_t rollbacks = t->at.rollbacks + 1, allowed = (uint64_t)t->cfg->train.max_rollbacks;
  lm_journal_rollback what = {.bad = t->at.step, .to_sample = t->at.position, .why = why};
  LM_TRY(end_save(t, err));
  if (rollbacks > allowed)
    return lm_fail(err, LM_ENUMERIC,
                   "step %" PRIu64 ": %s; the run went back %" PRIu64
                   " times, train.max_rollbacks allows no more; the last checkpoint is that of step %" PRIu64,
                   what.bad, why, allowed, t->saved_step);
  LM_TRY(go_back(t, err));
  what.to = t->at.step;
  what.from_sample = t->at.position;
  t->at.rollbacks = rollbacks;
  lm_trainer_jump(t, what.to_sample);
  LM_TRY(save(t, &(lm_metrics_row){.loss = NAN, .val_loss = NAN}, true, err));
  lm_warn("step %" PRIu64 ": back to step %" PRIu64 ", rollback %" PRIu64 " of at most %" PRIu64 "; samples %" PRIu64
          " to %" PRIu64 " of the data are left out",
          what.bad, what.to, rollbacks, allowed, what.from_sample, what.to_sample - 1);
  return lm_agree(t->comm, note_rollback(t, &what, err), err);
}

/* Go on, end, or go back: as the config says of such a step. Collective. */
static lm_status follow_bad_step(lm_trainer *t, const lm_step_result *r, lm_error *err)
{
  if (r->bad == LM_BAD_ROLLBACK) return roll_back(t, r->why, err);
  if (r->bad == LM_BAD_SKIP) return too_many_skipped(t, r, err);
  if (r->bad == LM_BAD_OFF) return LM_OK;
  LM_TRY(end_save(t, err));
  return lm_fail(err, LM_ENUMERIC, "step %" PRIu64 ": %s; the last checkpoint is that of step %" PRIu64, t->at.step,
                 r->why, t->saved_step);
}

/* A save takes long: a request that came meanwhile, or time that it used up, costs no step and second save. */
static bool stop_after_save(const lm_trainer *t)
{
  double requests = t->saved_step == t->at.step && lm_stop_requested();
  if (t->saved_step == t->at.step) lm_allreduce_max_f64(t->comm, &requests, 1);
  return requests > 0;
}

static lm_status loop(lm_trainer *t, lm_error *err)
{
  t->started = lm_clock();
  while (t->at.step < (uint64_t)t->cfg->run.steps) {
    lm_step_result r;
    LM_TRY(lm_trainer_step(t, &r, err));
    LM_TRY(follow_bad_step(t, &r, err));
    bool back = r.bad == LM_BAD_ROLLBACK; /* all that follows a step was done for the one that it is */
    bool stop = r.stop || (!back && t->at.step == (uint64_t)t->cfg->run.stop_after);
    bool last = t->at.step == (uint64_t)t->cfg->run.steps;
    if (!back) LM_TRY(after_step(t, &r, last || stop, err));
    if (!last && (stop || stop_after_save(t))) {
      lm_info("stopped after step %" PRIu64 " %s; the same command goes on", t->at.step, lm_stop_reason());
      return lm_fail(err, LM_STOPPED, "stopped after step %" PRIu64, t->at.step);
    }
  }
  lm_info("done: step %" PRIu64 ", %" PRIu64 " updates, %" PRIu64 " tokens", t->at.step, t->at.applied, t->at.tokens);
  return LM_OK;
}

static lm_status may_save(void *lock, lm_error *err)
{
  return lock != NULL ? lm_run_lock_check(lock, err) : LM_OK;
}

static lm_status make_saver(lm_trainer *t, lm_error *err)
{
  const lm_config *cfg = t->cfg;
  const lm_saver_policy policy = {
      .how = {.may = may_save,
              .context = t->lock,
              .background = in_background(cfg),
              .read_back = cfg->checkpoint.verify == 1,
              .together = cfg->checkpoint.writer == 1,
              .hints = cfg->checkpoint.mpiio_hints,
              .align = (size_t)cfg->checkpoint.align_kb << 10},
      .copies = t->k->copies,
      .keep = cfg->checkpoint.keep,
      .milestone_every = cfg->checkpoint.milestone_every,
      .keep_best = cfg->checkpoint.keep_best,
  };
  return lm_agree(t->comm, lm_saver_new(&t->saver, t->comm, cfg->run.folder, &policy, err), err);
}

static lm_status run(lm_trainer *t, const lm_options *options, lm_error *err)
{
  const lm_config *cfg = t->cfg;
  LM_TRY(lm_checkpoint_prepare(t->comm, cfg->run.folder, cfg->run.lock_timeout, (int)cfg->checkpoint.stripe_count,
                               &t->lock, err));
  lm_status watching = lm_watchdog_start(&t->watchdog, t->comm, t->cfg->run.folder, t->cfg->run.hang_timeout, err);
  LM_TRY(lm_agree(t->comm, watching, err));
  lm_watchdog_neighbour(t->watchdog, t->comm);
  lm_watchdog_device(t->watchdog, t->device);
  LM_TRY(lm_journal_open(&t->journal, t->comm, t->cfg->run.folder, t->cfg->run.max_stalled, &t->slowest_save, err));
  LM_TRY(make_saver(t, err));
  LM_TRY(start(t, options, err));
  t->started_step = t->at.step;
  LM_TRY(lm_agree(t->comm, note_progress(t, err), err));
  if (t->at.step >= (uint64_t)t->cfg->run.steps) {
    lm_info("already at step %" PRIu64 " of %lld: nothing left to do", t->at.step, (long long)t->cfg->run.steps);
    return LM_OK;
  }
  LM_TRY(lm_agree(t->comm, make_loader(t, err), err));
  LM_TRY(lm_agree(t->comm, open_files(t, err), err));
  LM_TRY(with_state(t, &(lm_metrics_row){.loss = NAN, .val_loss = NAN}, false, err));
  t->peak_flops = t->k->product_rate != NULL ? t->k->product_rate(t->compute) : lm_cpu_product_rate(t->compute);
  lm_allreduce_sum_f64(t->comm, &t->peak_flops, 1);
  banner(t);
  LM_TRY(lm_agree(t->comm, lm_mixing_report(&t->mixture, &t->sources, t->at.position, err), err));
  watch_deadline(t);
  double before;
  if (t->val != NULL && t->cfg->eval.every > 0 && t->at.step == 0) {
    LM_TRY(evaluate(t, &before, err));
    if (!isnan(before))
      lm_info("step      0  validation loss %.4f, ln(vocabulary) is %.4f", before,
              log((double)lm_model_config_of(t->model)->vocab_size));
  }
  return loop(t, err);
}

lm_status lm_train(const lm_comm *comm, const lm_config *cfg, const lm_options *options, lm_error *err)
{
  lm_trainer t = {.comm = comm, .cfg = cfg};
  lm_stop_watch();
  lm_threads_set(comm, cfg->run.threads);
  lm_threads_report(comm);
  lm_status s = lm_agree(comm, make_local(&t, options, err), err);
  if (s == LM_OK) s = check_same(&t, options, err);
  if (s == LM_OK) s = share_config(&t, err);
  if (s == LM_OK) s = make_gradsync(&t, err);
  if (s == LM_OK) s = run(&t, options, err);
  end_last_save(&t);
  lm_journal_close(t.journal, s, err);
  release(&t);
  return s;
}
