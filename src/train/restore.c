/* src/train/restore.c - a checkpoint -> a model to use: for eval and generate. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/restore.h"

#include "checkpoint/checkpoint.h"
#include "train/backend.h"
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

/* What a rank must have before all read: room for the config, and the size of the vocabulary. */
static lm_status look_into(const char *path, char **text, size_t *n, int64_t *vocab_size, lm_error *err)
{
  lm_state_entry *entries;
  size_t n_entries;
  LM_TRY(lm_state_list(path, &entries, &n_entries, err));
  const lm_state_entry *config = find_entry(entries, n_entries, "/config"),
                       *embedding = find_entry(entries, n_entries, "/model/token_embedding/weight");
  lm_status s = LM_OK;
  if (config == NULL || embedding == NULL)
    s = lm_fail(err, LM_EINVAL, "%s: is a state file without %s", path, config ? "a model" : "/config");
  else
    s = lm_alloc(text, config->shape[0] + 1, 1, "a config", err);
  if (s == LM_OK) {
    *n = config->shape[0];
    *vocab_size = (int64_t)embedding->shape[0];
  }
  free(entries);
  return s;
}

static lm_status read_config(lm_restored *r, const lm_comm *comm, const char *path, lm_error *err)
{
  char *text = NULL;
  size_t n = 0;
  int64_t vocab_size = 0;
  lm_status s = lm_agree(comm, look_into(path, &text, &n, &vocab_size, err), err);
  lm_state_slice slices[] = {
      {.name = "/config", .dtype = LM_TEXT, .ndim = 1, .shape = {n}, .count = n, .data = text},
      {.name = "/provenance/vocab_fingerprint", .dtype = LM_U64, .count = 1, .data = &r->vocab_fingerprint},
  };
  if (s == LM_OK) s = lm_state_read(comm, path, slices, 2, err);
  if (s == LM_OK) s = lm_agree(comm, lm_config_parse(&r->cfg, &r->options, text, n, path, err), err);
  free(text);
  r->cfg.model.shape.vocab_size = vocab_size;
  return s;
}

static lm_status make_model(lm_restored *r, const lm_comm *comm, int backend, int precision, int max_B, lm_error *err)
{
  LM_TRY(lm_backend_start(&r->k, comm, (lm_backend)backend, err));
  r->cfg.precision = precision;
  lm_dtype compute = lm_config_compute(&r->cfg, r->k);
  return lm_model_new(&r->model, &r->cfg.model.shape, r->k, compute, max_B, false, err);
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
  char file[4096] = "";
  *out = (lm_restored){0};
  LM_TRY(lm_agree(comm, comm->rank == 0 ? find_file(path, file, err) : LM_OK, err));
  lm_bcast(comm, file, sizeof file, 0); /* which is the newest, rank 0 says */
  lm_status s = read_config(out, comm, file, err);
  if (s == LM_OK) s = lm_agree(comm, make_model(out, comm, backend, precision, max_B, err), err);
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
