/* src/train/changes.c - what a run's config, and its vocabulary, were when its checkpoint was written, and are now. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/changes.h"

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "hdf5/state_file.h"
#include "train/run_config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a checkpoint says of the run that wrote it; older ones say less. */
struct past {
  char *config; /* NULL: none */
  size_t n;
  uint64_t vocab; /* 0: unknown */
};

static lm_status read_past(struct past *p, const char *path, lm_error *err)
{
  lm_comm self;
  lm_state_entry *entries;
  size_t n;
  lm_state_slice slices[] = {
      {.name = "/provenance/vocab_fingerprint", .dtype = LM_U64, .count = 1, .data = &p->vocab, .optional = true},
      {.name = "/config", .dtype = LM_TEXT, .ndim = 1},
  };
  *p = (struct past){0};
  lm_comm_self(&self);
  LM_TRY(lm_state_list(path, &entries, &n, err));
  for (size_t i = 0; i < n; i++)
    if (strcmp(entries[i].name, "/config") == 0 && entries[i].dtype == LM_TEXT) p->n = entries[i].shape[0];
  free(entries);
  if (p->n > 0) LM_TRY(lm_alloc(&p->config, p->n + 1, 1, "a config", err));
  slices[1].shape[0] = slices[1].count = p->n;
  slices[1].data = p->config;
  return lm_state_read(&self, path, slices, p->n > 0 ? 2 : 1, err);
}

static bool begins(const char *text, const char *with)
{
  return strncmp(text, with, strlen(with)) == 0;
}

/* Which keys change what the next steps compute. The vocabulary's size follows from the data; paths do not matter, what
 * is in the files does. */
static bool matters(const char *key)
{
  static const char *const sections[] = {
      "model.", "batch.", "optim.", "schedule.", "train.", "scaler.", "data.document_mask"};
  if (strcmp(key, "precision") == 0) return true;
  if (strcmp(key, "model.preset") == 0 || strcmp(key, "model.vocab_size") == 0) return false;
  for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++)
    if (begins(key, sections[i])) return true;
  return strcmp(key, "run.steps") == 0;
}

static bool is_shape(const char *key)
{
  return begins(key, "model.") && strcmp(key, "model.dropout") != 0 && strcmp(key, "model.recompute") != 0;
}

static lm_status compare_row(const char *path, const lm_option *row, const lm_options *then, const lm_options *now,
                             lm_error *err)
{
  lm_buffer a = {0}, b = {0};
  lm_status s = lm_options_value(then, row, &a, err);
  if (s == LM_OK) s = lm_options_value(now, row, &b, err);
  if (s == LM_OK && strcmp(a.data, b.data) != 0) {
    if (is_shape(row->name))
      s = lm_fail(err, LM_EINVAL, "%s was %s in %s, the config says %s: a run keeps its model", row->name, a.data, path,
                  b.data);
    else
      lm_info("changed since %s: %s was %s, is %s from the next step on", path, row->name, a.data, b.data);
  }
  lm_buffer_free(&a);
  lm_buffer_free(&b);
  return s;
}

static lm_status compare_configs(const char *path, const struct past *p, const lm_options *now, lm_error *err)
{
  lm_config then_config;
  lm_options *then;
  lm_error why;
  if (p->config == NULL) return LM_OK;
  if (lm_config_parse(&then_config, &then, p->config, p->n, path, &why) != LM_OK) {
    lm_warn("the config in %s cannot be compared with this one: %s", path, why.text);
    return LM_OK;
  }
  lm_status s = LM_OK;
  for (const lm_option *row = lm_config_options; s == LM_OK && row->name != NULL; row++)
    if (matters(row->name)) s = compare_row(path, row, then, now, err);
  lm_options_free(then);
  return s;
}

static lm_status compare_vocab(const char *path, uint64_t then, uint64_t now, bool allowed, lm_error *err)
{
  if (then == 0 || then == now) return LM_OK;
  if (!allowed)
    return lm_fail(err, LM_EINVAL,
                   "the vocabulary's fingerprint was %016" PRIx64 " in %s, that of data.train is %016" PRIx64
                   ": other data; run.allow_change=data goes on with it",
                   then, path, now);
  lm_info("changed since %s: the vocabulary's fingerprint was %016" PRIx64 ", is %016" PRIx64 " from the next step on",
          path, then, now);
  return LM_OK;
}

lm_status lm_compare_run(const char *path, const lm_options *now, uint64_t vocab, bool allow, lm_error *err)
{
  struct past p;
  lm_status s = read_past(&p, path, err);
  if (s == LM_OK) s = compare_vocab(path, p.vocab, vocab, allow, err);
  if (s == LM_OK) s = compare_configs(path, &p, now, err);
  free(p.config);
  return s;
}

/* Was this checkpoint saved by a start whose run.resume was that step? What cannot be read does not say so. */
static bool went_back(const char *path, uint64_t step)
{
  lm_config cfg;
  lm_options *options = NULL;
  struct past p;
  char *end = NULL;
  lm_status s = read_past(&p, path, NULL);
  if (s == LM_OK && p.config != NULL) s = lm_config_parse(&cfg, &options, p.config, p.n, path, NULL);
  bool did = s == LM_OK && options != NULL && strtoull(cfg.run.resume, &end, 10) == step && *end == '\0';
  lm_options_free(options);
  free(p.config);
  return did;
}

lm_status lm_resume_again(uint64_t *step, const char *run, lm_error *err)
{
  lm_checkpoint *list;
  size_t n;
  LM_TRY(lm_checkpoint_scan(run, &list, &n, err));
  while (n > 0 && !list[n - 1].complete) n--;
  if (n > 0 && list[n - 1].step > *step && went_back(list[n - 1].path, *step)) {
    lm_info("run.resume=%" PRIu64 " was done by an earlier start: this one goes on from step %" PRIu64
            "; to go back once more, move the later checkpoints away",
            *step, list[n - 1].step);
    *step = UINT64_MAX;
  }
  free(list);
  return LM_OK;
}
