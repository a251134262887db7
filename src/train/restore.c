/* src/train/restore.c - a checkpoint -> a model to use: for eval and generate. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/restore.h"

#include "checkpoint/checkpoint.h"
#include "train/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A run folder stands for its newest complete checkpoint. */
static lm_status find_file(const char *path, char out[4096], lm_error *err)
{
  struct stat st;
  if (stat(path, &st) != 0) return lm_fail(err, LM_EINVAL, "%s: no such checkpoint or run folder", path);
  if (!S_ISDIR(st.st_mode)) {
    snprintf(out, 4096, "%s", path);
    return LM_OK;
  }
  lm_checkpoint *list;
  size_t n;
  LM_TRY(lm_checkpoint_scan(path, &list, &n, err));
  while (n > 0 && !list[n - 1].complete) n--;
  if (n > 0) snprintf(out, 4096, "%s", list[n - 1].path);
  free(list);
  return n > 0 ? LM_OK : lm_fail(err, LM_EINVAL, "%s: holds no complete checkpoint", path);
}

static const lm_state_entry *find_entry(const lm_state_entry *entries, size_t n, const char *name)
{
  for (size_t i = 0; i < n; i++)
    if (strcmp(entries[i].name, name) == 0) return &entries[i];
  return NULL;
}

static lm_status read_config(lm_restored *r, const lm_comm *comm, const char *path, const lm_state_entry *entries,
                             size_t n, lm_error *err)
{
  const lm_state_entry *config = find_entry(entries, n, "/config"),
                       *embedding = find_entry(entries, n, "/model/token_embedding/weight");
  if (config == NULL || embedding == NULL)
    return lm_fail(err, LM_EINVAL, "%s: is a state file without %s", path, config ? "a model" : "/config");
  char *text = malloc(config->shape[0] + 1);
  if (text == NULL) return lm_fail(err, LM_ENOMEM, "no memory for a config of %zu bytes", config->shape[0]);
  lm_state_slice slices[] = {
      {.name = "/config",
       .dtype = LM_TEXT,
       .ndim = 1,
       .shape = {config->shape[0]},
       .count = config->shape[0],
       .data = text},
      {.name = "/provenance/vocab_fingerprint", .dtype = LM_U64, .count = 1, .data = &r->vocab_fingerprint},
  };
  lm_status s = lm_state_read(comm, path, slices, 2, err);
  if (s == LM_OK) s = lm_config_parse(&r->cfg, &r->options, text, config->shape[0], path, err);
  free(text);
  if (s == LM_OK) r->cfg.model.shape.vocab_size = (int64_t)embedding->shape[0];
  return s;
}

static lm_status read_weights(lm_restored *r, const lm_comm *comm, const char *path, lm_error *err)
{
  lm_state state = {0};
  lm_progress at = {0};
  LM_TRY(lm_agree(comm, lm_state_to_load(&state, r->model, NULL, &at, err), err));
  lm_status s = lm_state_read(comm, path, state.slices, state.n, err);
  lm_state_free(&state);
  r->step = at.step;
  return s;
}

lm_status lm_restore(lm_restored *out, const lm_comm *comm, const char *path, int backend, int precision, int max_B,
                     lm_error *err)
{
  char file[4096];
  lm_state_entry *entries = NULL;
  size_t n = 0;
  *out = (lm_restored){0};
  lm_status s = find_file(path, file, err);
  if (s == LM_OK) s = lm_state_list(file, &entries, &n, err);
  s = lm_agree(comm, s, err);
  if (s == LM_OK) s = read_config(out, comm, file, entries, n, err);
  free(entries);
  if (s == LM_OK) s = lm_kernels_select(&out->k, (lm_backend)backend, err);
  if (s == LM_OK) {
    out->cfg.precision = precision;
    lm_dtype compute = lm_config_compute(&out->cfg, out->k);
    s = lm_agree(comm, lm_model_new(&out->model, &out->cfg.model.shape, out->k, compute, max_B, false, err), err);
  }
  if (s == LM_OK) s = read_weights(out, comm, file, err);
  if (s != LM_OK) lm_restored_free(out);
  return s;
}

void lm_restored_free(lm_restored *r)
{
  lm_model_free(r->model);
  lm_options_free(r->options);
  *r = (lm_restored){0};
}
