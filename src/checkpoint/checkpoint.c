/* src/checkpoint/checkpoint.c - which checkpoint is the newest good one, and which go. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/folder.h"

#include "base/file.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- how many stay ---- */

static bool is_milestone(uint64_t step, int64_t every)
{
  return every > 0 && step % (uint64_t)every == 0;
}

/* Which of [0, n), by step, go: all complete ones but the newest, the milestones, and what is known to be whole. */
static void choose(lm_checkpoint *c, size_t n, const lm_checkpoint_rule *rule, bool *goes)
{
  int64_t kept = 0;
  for (size_t i = 0; i < n; i++) kept += c[i].step == rule->always;
  for (size_t i = n; i-- > 0;) {
    goes[i] = false;
    if (c[i].step == rule->always) continue;
    if (kept >= rule->keep && is_milestone(c[i].step, rule->milestone_every)) continue; /* stays, whatever it is */
    lm_checkpoint_inspect(&c[i]);
    if (!c[i].complete) continue;
    bool counts = kept < rule->keep;
    goes[i] = !counts;
    kept += counts;
  }
}

lm_status lm_checkpoint_surplus(const char *run, const lm_checkpoint_rule *rule, lm_buffer *out, lm_error *err)
{
  lm_checkpoint *c;
  size_t n;
  bool *goes;
  if (rule->keep < 1)
    return lm_fail(err, LM_EINVAL, "%s: %" PRId64 " checkpoints to keep; want at least 1", run, rule->keep);
  LM_TRY(lm_checkpoint_find(run, &c, &n, err));
  lm_status s = lm_alloc(&goes, n, sizeof *goes, "the list of checkpoints", err);
  if (s == LM_OK) choose(c, n, rule, goes);
  for (size_t i = 0; s == LM_OK && i < n; i++)
    if (goes[i]) s = lm_buffer_append(out, c[i].path, strlen(c[i].path) + 1, err);
  free(goes);
  free(c);
  return s;
}

lm_status lm_checkpoint_remove(const lm_buffer *paths, lm_error *err)
{
  lm_status s = LM_OK;
  for (size_t at = 0; at < paths->size; at += strlen(paths->data + at) + 1) {
    const char *path = paths->data + at;
    lm_verbose("removes %s", path);
    if (unlink(path) != 0 && errno != ENOENT && s == LM_OK) s = lm_checkpoint_fail(err, LM_EIO, "remove", path);
  }
  return s;
}

/* ---- resuming ---- */

static lm_status find_shared(const lm_comm *comm, const char *run, lm_checkpoint **out, size_t *n, lm_error *err)
{
  *out = NULL;
  *n = 0;
  LM_TRY(lm_agree(comm, comm->rank == 0 ? lm_checkpoint_find(run, out, n, err) : LM_OK, err));
  lm_bcast(comm, n, sizeof *n, 0);
  lm_status s = LM_OK;
  if (comm->rank != 0) s = lm_alloc(out, *n, sizeof **out, "the list of checkpoints", err);
  s = lm_agree(comm, s, err);
  if (s != LM_OK) return s;
  LM_ASSERT(*n == 0 || *out != NULL);
  lm_bcast(comm, *out, *n * sizeof **out, 0);
  return LM_OK;
}

static lm_status load_newest(const lm_comm *comm, const char *run, const lm_checkpoint *c, size_t n,
                             const lm_state_slice *slices, size_t n_slices, uint64_t *step, lm_error *err)
{
  lm_error newest = {0}, why = {0};
  for (size_t i = n; i-- > 0;) {
    lm_status s = lm_state_read(comm, c[i].path, slices, n_slices, &why);
    if (s == LM_OK) {
      *step = c[i].step;
      return LM_OK;
    }
    /* An unreadable sector is damage too; a shape that does not fit is not. */
    if (s != LM_EDAMAGED && s != LM_EIO) {
      if (err != NULL) *err = why;
      return s;
    }
    lm_warn("a checkpoint is passed over: %s", why.text);
    if (i == n - 1) newest = why;
  }
  return lm_fail(err, LM_EDAMAGED, "%s: none of its %zu checkpoints is good; of the newest: %s", run, n, newest.text);
}

/* Of [0, *n), only what has this step. */
static lm_status keep_only(lm_checkpoint *c, size_t *n, const char *run, uint64_t only, lm_error *err)
{
  size_t i = 0;
  while (i < *n && c[i].step != only) i++;
  if (i == *n) return lm_fail(err, LM_EINVAL, "%s: has no checkpoint of step %" PRIu64, run, only);
  c[0] = c[i];
  *n = 1;
  return LM_OK;
}

lm_status lm_checkpoint_resume(const lm_comm *comm, const char *run, uint64_t only, const lm_state_slice *slices,
                               size_t n, uint64_t *step, bool *found, lm_error *err)
{
  lm_checkpoint *c;
  size_t n_found;
  *found = false;
  *step = 0;
  lm_status s = find_shared(comm, run, &c, &n_found, err);
  if (s == LM_OK && only != UINT64_MAX) s = keep_only(c, &n_found, run, only, err); /* the same list on all ranks */
  if (s == LM_OK && n_found > 0) {
    *found = true;
    s = load_newest(comm, run, c, n_found, slices, n, step, err);
  }
  free(c);
  return s;
}

lm_status lm_checkpoint_file(char *out, const char *run, uint64_t step, lm_error *err)
{
  char name[64];
  lm_checkpoint_name(name, step);
  return lm_checkpoint_path(out, run, name, err);
}

/* A run may go back several times: each of its futures keeps its files. */
static lm_status abandon(const lm_checkpoint *c, const char *run, lm_error *err)
{
  char name[64], to_name[128], to[PATH_MAX];
  lm_checkpoint_name(name, c->step);
  snprintf(to_name, sizeof to_name, "abandoned-%s", name);
  LM_TRY(lm_checkpoint_path(to, run, to_name, err));
  for (int i = 2; lm_file_exists(to); i++) {
    snprintf(to_name, sizeof to_name, "abandoned-%d-%s", i, name);
    LM_TRY(lm_checkpoint_path(to, run, to_name, err));
  }
  return lm_file_commit(c->path, to, err);
}

lm_status lm_checkpoint_abandon_after(const char *run, uint64_t step, size_t *n, lm_error *err)
{
  lm_checkpoint *c;
  size_t found;
  *n = 0;
  LM_TRY(lm_checkpoint_find(run, &c, &found, err));
  lm_status s = LM_OK;
  for (size_t i = 0; s == LM_OK && i < found; i++) {
    if (c[i].step <= step) continue;
    s = abandon(&c[i], run, err);
    *n += s == LM_OK;
  }
  free(c);
  return s;
}
