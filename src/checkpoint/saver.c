/* src/checkpoint/saver.c - saves of a run: a snapshot between two steps, written while training goes on. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/saver.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/folder.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct lm_saver {
  const lm_comm *comm;
  char run[PATH_MAX], path[PATH_MAX]; /* path: of the checkpoint under way */
  lm_saver_policy policy;
  lm_state_save *save; /* under way */
  uint64_t step;
  double begun, seconds; /* of the save under way, and of the one before */
  double loss, best;     /* best: of best.h5; NaN: not looked yet */
  lm_state_slice *slices;
  size_t n;
  char *snapshot; /* one block, [snapshot_bytes]; NULL until needed */
  size_t snapshot_bytes;
  lm_state_kept *kept; /* where the tensors went */
  lm_buffer going;     /* paths that the remover removes; rank 0 */
  bool removing;
  pthread_t remover;
  lm_error why; /* of the remover */
  lm_status removed;
};

lm_status lm_saver_new(lm_saver **out, const lm_comm *comm, const char *run, const lm_saver_policy *policy,
                       lm_error *err)
{
  LM_TRY(lm_alloc(out, 1, sizeof **out, "the saver", err));
  (*out)->comm = comm;
  (*out)->policy = *policy;
  (*out)->policy.how.kept = &(*out)->kept;
  if (policy->copies != NULL) (*out)->policy.how.wait = policy->copies->wait;
  (*out)->best = NAN;
  snprintf((*out)->run, sizeof(*out)->run, "%s", run);
  return LM_OK;
}

bool lm_saver_busy(const lm_saver *s, uint64_t *step)
{
  if (step != NULL) *step = s->step;
  return s->save != NULL;
}

bool lm_saver_done(const lm_saver *s)
{
  return s->save != NULL && lm_state_write_done(s->save);
}

double lm_saver_seconds(const lm_saver *s)
{
  return s->seconds;
}

/* ---- the snapshot ---- */

static size_t room_of(const lm_state_slice *slice)
{
  return (slice->count * lm_dtype_size(slice->dtype) + 63) / 64 * 64;
}

static bool needs_snapshot(const lm_saver *s, const lm_state_slice *slices, size_t n)
{
  bool on_device = false;
  for (size_t i = 0; i < n; i++) on_device = on_device || slices[i].on_device;
  return (s->policy.how.background && !s->policy.how.together) || on_device;
}

static void release_snapshot(lm_saver *s)
{
  if (s->policy.copies != NULL)
    s->policy.copies->release(s->snapshot);
  else
    free(s->snapshot);
  s->snapshot = NULL;
  s->snapshot_bytes = 0;
}

static lm_status allocate_snapshot(lm_saver *s, size_t bytes, lm_error *err)
{
  const char *what = "the snapshot of the state";
  LM_TRY(s->policy.copies != NULL ? s->policy.copies->alloc((void **)&s->snapshot, bytes, what, err)
                                  : lm_alloc(&s->snapshot, bytes, 1, what, err));
  s->snapshot_bytes = bytes;
  return LM_OK;
}

/* Texts may grow by a few bytes from save to save. */
static lm_status reserve_snapshot(lm_saver *s, const lm_state_slice *slices, size_t n, lm_error *err)
{
  size_t bytes = 0;
  for (size_t i = 0; i < n; i++) bytes += room_of(&slices[i]);
  if (n > s->n) {
    free(s->slices);
    s->n = 0;
    LM_TRY(lm_alloc(&s->slices, n, sizeof *s->slices, "the list of tensors", err));
    s->n = n;
  }
  if (!needs_snapshot(s, slices, n) || bytes <= s->snapshot_bytes) return LM_OK;
  release_snapshot(s);
  return allocate_snapshot(s, bytes + 4096, err);
}

/* By the rank's threads, as pieces of a few MB: one thread does not use all that memory gives. The next to read the
 * copy is the writer, long after. */
static void copy_in_memory(const lm_saver *s, const lm_state_slice *slices, size_t n)
{
  enum { PIECE = 4 << 20 };
#pragma omp parallel
#pragma omp single
  for (size_t i = 0; i < n; i++) {
    size_t bytes = slices[i].on_device ? 0 : slices[i].count * lm_dtype_size(slices[i].dtype);
    for (size_t at = 0; at < bytes; at += PIECE) {
      char *to = (char *)s->slices[i].data + at;
      const char *from = (const char *)slices[i].data + at;
      size_t piece = bytes - at < PIECE ? bytes - at : PIECE;
#pragma omp task
      lm_copy_far(to, from, piece);
    }
  }
}

static void take_snapshot(lm_saver *s, const lm_state_slice *slices, size_t n)
{
  const lm_copies *copies = s->policy.copies;
  char *at = s->snapshot;
  memcpy(s->slices, slices, n * sizeof *slices);
  if (!needs_snapshot(s, slices, n)) return;
  if (copies != NULL) copies->begin();
  for (size_t i = 0; i < n; i++) {
    lm_state_slice *slice = &s->slices[i];
    size_t bytes = slice->count * lm_dtype_size(slice->dtype);
    LM_ASSERT(!slice->on_device || copies != NULL);
    if (bytes > 0 && slice->on_device) copies->copy(at, slice->data, bytes);
    slice->data = at;
    slice->on_device = false;
    at += room_of(slice);
  }
  if (copies != NULL) copies->end();
  copy_in_memory(s, slices, n);
}

static lm_status ask_for_room(const lm_saver *s, const lm_state_slice *slices, size_t n, lm_error *err)
{
  char path[PATH_MAX];
  LM_TRY(lm_checkpoint_path(path, s->run, ".step-room.part", err));
  return lm_state_room(path, lm_state_bytes(slices, n, s->comm->size, s->policy.how.align), err);
}

lm_status lm_saver_prepare(lm_saver *s, const lm_state_slice *slices, size_t n, lm_error *err)
{
  LM_TRY(lm_agree(s->comm, reserve_snapshot(s, slices, n, err), err));
  return lm_agree(s->comm, s->comm->rank == 0 ? ask_for_room(s, slices, n, err) : LM_OK, err);
}

/* ---- removing, in a thread: a file of some GB takes a second to remove ---- */

static void *remove_in_thread(void *saver)
{
  lm_saver *s = saver;
  s->removed = lm_checkpoint_remove(&s->going, &s->why);
  return NULL;
}

static void wait_for_remover(lm_saver *s)
{
  if (!s->removing) return;
  pthread_join(s->remover, NULL);
  s->removing = false;
  s->going.size = 0;
  if (s->removed != LM_OK) lm_warn("an old checkpoint stays: %s", s->why.text);
}

static void start_remover(lm_saver *s)
{
  const lm_checkpoint_rule rule = {s->policy.keep, s->policy.milestone_every, s->step};
  lm_error why;
  if (s->policy.keep == 0) return;
  lm_status chosen = lm_checkpoint_surplus(s->run, &rule, &s->going, &why);
  if (chosen != LM_OK) lm_warn("old checkpoints stay: %s", why.text);
  if (chosen != LM_OK || s->going.size == 0) return;
  s->removing = pthread_create(&s->remover, NULL, remove_in_thread, s) == 0;
  if (s->removing) return;
  s->removed = lm_checkpoint_remove(&s->going, &s->why);
  s->going.size = 0;
}

/* ---- the best ---- */

/* The validation loss in a checkpoint; infinite where there is no file, or it says none. */
static double loss_of(const char *path)
{
  float loss;
  lm_comm self;
  const lm_state_slice slice = {.name = "/provenance/validation_loss", .dtype = LM_F32, .count = 1, .data = &loss};
  lm_comm_self(&self);
  return lm_state_read(&self, path, &slice, 1, NULL) == LM_OK && !isnan(loss) ? (double)loss : INFINITY;
}

/* A hard link, not a copy: it keeps the file when retention takes the other name. */
static void keep_best(lm_saver *s)
{
  char best[PATH_MAX], part[PATH_MAX];
  lm_error why;
  if (!s->policy.keep_best || isnan(s->loss)) return;
  lm_status ok = lm_checkpoint_path(best, s->run, "best.h5", &why);
  if (ok == LM_OK) ok = lm_checkpoint_path(part, s->run, ".step-best.part", &why);
  if (ok == LM_OK && isnan(s->best)) s->best = loss_of(best);
  if (ok == LM_OK && s->loss >= s->best) return;
  if (ok == LM_OK) unlink(part);
  if (ok == LM_OK && link(s->path, part) != 0) ok = lm_checkpoint_fail(&why, LM_EIO, "make a hard link", part);
  if (ok == LM_OK) ok = lm_file_commit(part, best, &why);
  if (ok == LM_OK)
    s->best = s->loss;
  else
    lm_warn("the best checkpoint is not kept: %s", why.text);
}

/* ---- a save ---- */

static lm_status open_folder(lm_saver *s, lm_error *err)
{
  char folder[PATH_MAX], name[64];
  lm_checkpoint_name(name, s->step);
  LM_TRY(lm_checkpoint_path(folder, s->run, "", err));
  LM_TRY(lm_checkpoint_path(s->path, s->run, name, err));
  return s->comm->rank == 0 ? lm_folder_make(folder, err) : LM_OK;
}

lm_status lm_saver_begin(lm_saver *s, uint64_t step, const lm_state_slice *slices, size_t n, double validation_loss,
                         lm_error *err)
{
  LM_ASSERT(s->save == NULL);
  wait_for_remover(s);
  s->step = step;
  s->begun = lm_clock();
  s->loss = validation_loss;
  lm_status mine = open_folder(s, err);
  if (mine == LM_OK) mine = reserve_snapshot(s, slices, n, err);
  LM_TRY(lm_agree(s->comm, mine, err));
  take_snapshot(s, slices, n);
  return lm_state_write_begin(&s->save, s->comm, s->path, s->slices, n, &s->policy.how, err);
}

/* Nothing goes before the new one is seen to be there, by its own description. */
static lm_status check_new(const lm_saver *s, lm_error *err)
{
  lm_checkpoint c = {.step = s->step};
  snprintf(c.path, sizeof c.path, "%s", s->path);
  lm_checkpoint_inspect(&c);
  return c.complete ? LM_OK : lm_fail(err, LM_EDAMAGED, "just saved, and not good: %s", c.reason);
}

lm_status lm_saver_end(lm_saver *s, lm_error *err)
{
  LM_ASSERT(s->save != NULL);
  lm_state_save *save = s->save;
  s->save = NULL;
  LM_TRY(lm_state_write_end(save, err));
  s->seconds = lm_clock() - s->begun;
  lm_status mine = s->comm->rank == 0 ? check_new(s, err) : LM_OK;
  LM_TRY(lm_agree(s->comm, mine, err));
  if (s->comm->rank == 0) {
    keep_best(s);
    start_remover(s);
  }
  return LM_OK;
}

void lm_saver_free(lm_saver *s)
{
  if (s == NULL) return;
  LM_ASSERT(s->save == NULL);
  wait_for_remover(s);
  lm_buffer_free(&s->going);
  lm_state_kept_free(s->kept);
  release_snapshot(s);
  free(s->slices);
  free(s);
}
