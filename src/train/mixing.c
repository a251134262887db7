/* src/train/mixing.c - the sources of a run over its restarts. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/mixing.h"

#include "base/log.h"
#include "hdf5/state_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- from a checkpoint ---- */

/* How many eras and sources a checkpoint tells of; 0 where it is older than that. */
static lm_status find_shape(const char *path, size_t *eras, size_t *sources, lm_error *err)
{
  lm_state_entry *entries;
  size_t n;
  *eras = *sources = 0;
  LM_TRY(lm_state_list(path, &entries, &n, err));
  for (size_t i = 0; i < n; i++) {
    if (strcmp(entries[i].name, "/progress/sources/weight") != 0 || entries[i].ndim != 2) continue;
    *eras = entries[i].shape[0];
    *sources = entries[i].shape[1];
  }
  free(entries);
  return LM_OK;
}

static lm_status read_slices(lm_mixture *m, bool old, uint64_t *position, const char *path, lm_error *err)
{
  lm_comm self;
  size_t eras = m->eras, sources = m->sources, cells = eras * sources;
  lm_state_slice one[] = {
      {.name = "/progress/position", .dtype = LM_U64, .count = 1, .data = position},
      {.name = "/provenance/data_checksum", .dtype = LM_U64, .count = 1, .data = m->checksum, .optional = true},
  };
  lm_state_slice many[] = {
      {.name = "/progress/position", .dtype = LM_U64, .count = 1, .data = position},
      {.name = "/progress/sources/checksum",
       .dtype = LM_U64,
       .ndim = 1,
       .shape = {sources},
       .count = sources,
       .data = m->checksum},
      {.name = "/progress/sources/from", .dtype = LM_U64, .ndim = 1, .shape = {eras}, .count = eras, .data = m->from},
      {.name = "/progress/sources/weight",
       .dtype = LM_U64,
       .ndim = 2,
       .shape = {eras, sources},
       .count = cells,
       .data = m->weight},
      {.name = "/progress/sources/drawn",
       .dtype = LM_U64,
       .ndim = 2,
       .shape = {eras, sources},
       .count = cells,
       .data = m->drawn},
  };
  lm_comm_self(&self);
  lm_status s = lm_state_read(&self, path, old ? one : many, old ? 2 : 5, err);
  lm_comm_end(&self);
  return s;
}

lm_status lm_mixing_read(lm_mixture *out, uint64_t *position, const char *path, lm_error *err)
{
  size_t eras, sources;
  uint64_t drawn;
  *out = (lm_mixture){0};
  LM_TRY(find_shape(path, &eras, &sources, err));
  bool old = eras == 0 || sources == 0;
  LM_TRY(lm_mixture_new(out, old ? 1 : eras, old ? 1 : sources, err));
  if (old) out->weight[0] = 1;
  lm_status s = read_slices(out, old, position != NULL ? position : &drawn, path, err);
  if (s == LM_OK && !lm_mixture_valid(out))
    s = lm_fail(err, LM_EDAMAGED, "%s: the parts of /progress/sources do not fit together", path);
  if (s != LM_OK) lm_mixture_free(out);
  return s;
}

/* ---- what changed ---- */

static const uint64_t *last_weights(const lm_mixture *m)
{
  return m->weight + (m->eras - 1) * m->sources;
}

/* A source that is new, and the checksum of one that is gone. */
struct difference {
  const lm_source *added;
  const uint64_t *gone;
};

static struct difference compare(const lm_mixture *m, const lm_sources *sources)
{
  struct difference d = {0};
  for (size_t i = 0; i < sources->n; i++)
    if (lm_mixture_column(m, lm_dataset_info(sources->items[i].data)->checksum) == m->sources)
      d.added = &sources->items[i];
  for (size_t i = 0; i < m->sources; i++)
    if (last_weights(m)[i] > 0 && lm_sources_find(sources, m, i) == NULL) d.gone = &m->checksum[i];
  return d;
}

static lm_status check_replaced(const lm_mixture *m, const lm_sources *sources, const char *path, bool allowed,
                                lm_error *err)
{
  struct difference d = compare(m, sources);
  if (d.added == NULL || d.gone == NULL) return LM_OK;
  uint64_t now = lm_dataset_info(d.added->data)->checksum;
  bool single = m->sources == 1 && sources->n == 1;
  const char *then_what = single ? "the data's checksum" : "the checksum of a source that is gone",
             *now_what = single ? "data.train" : lm_dataset_path(d.added->data);
  if (allowed) {
    lm_info("changed since %s: %s was %016" PRIx64 ", that of %s is %016" PRIx64 " from the next step on", path,
            then_what, *d.gone, now_what, now);
    return LM_OK;
  }
  return lm_fail(err, LM_EINVAL,
                 "%s was %016" PRIx64 " in %s, that of %s is %016" PRIx64
                 ": other data; run.allow_change=data goes on with it",
                 then_what, *d.gone, path, now_what, now);
}

static void log_shares(const lm_mixture *then, const lm_mixture *now, const lm_sources *sources, const char *path)
{
  for (size_t i = 0; i < now->sources; i++) {
    double before = 100 * lm_mixture_share(then, i), after = 100 * lm_mixture_share(now, i);
    const lm_source *source = lm_sources_find(sources, now, i);
    char name[40];
    snprintf(name, sizeof name, "data with checksum %016" PRIx64, now->checksum[i]);
    if (before != after)
      lm_info("changed since %s: %s was %.4g %% of the samples, is %.4g %% from the next step on", path,
              source != NULL ? lm_dataset_path(source->data) : name, before, after);
  }
}

static lm_status copy_mixture(lm_mixture *out, const lm_mixture *m, lm_error *err)
{
  LM_TRY(lm_mixture_new(out, m->eras, m->sources, err));
  memcpy(out->checksum, m->checksum, m->sources * sizeof *m->checksum);
  memcpy(out->from, m->from, m->eras * sizeof *m->from);
  memcpy(out->weight, m->weight, m->eras * m->sources * sizeof *m->weight);
  memcpy(out->drawn, m->drawn, m->eras * m->sources * sizeof *m->drawn);
  return LM_OK;
}

lm_status lm_mixing_follow(lm_mixture *m, const lm_sources *sources, uint64_t position, const char *path,
                           bool allow_data, lm_error *err)
{
  lm_mixture then;
  if (m->sources == 1 && m->checksum[0] == 0) /* the file does not say which data it was */
    m->checksum[0] = lm_dataset_info(sources->items[0].data)->checksum;
  LM_TRY(check_replaced(m, sources, path, allow_data, err));
  LM_TRY(copy_mixture(&then, m, err));
  lm_status s = lm_sources_mix(sources, m, position, err);
  if (s == LM_OK) log_shares(&then, m, sources, path);
  lm_mixture_free(&then);
  return s;
}

/* ---- to all ranks, and to people ---- */

lm_status lm_mixing_share(const lm_comm *comm, lm_mixture *m, lm_error *err)
{
  uint64_t shape[2] = {m->eras, m->sources};
  lm_bcast(comm, shape, sizeof shape, 0);
  lm_status s = LM_OK;
  if (comm->rank != 0) {
    lm_mixture_free(m);
    s = lm_mixture_new(m, shape[0], shape[1], err);
  }
  LM_TRY(lm_agree(comm, s, err));
  lm_bcast(comm, m->checksum, m->sources * sizeof *m->checksum, 0);
  lm_bcast(comm, m->from, m->eras * sizeof *m->from, 0);
  lm_bcast(comm, m->weight, m->eras * m->sources * sizeof *m->weight, 0);
  lm_bcast(comm, m->drawn, m->eras * m->sources * sizeof *m->drawn, 0);
  return LM_OK;
}

lm_status lm_mixing_report(const lm_mixture *m, const lm_sources *sources, uint64_t position, lm_error *err)
{
  uint64_t *drawn;
  LM_TRY(lm_alloc(&drawn, m->sources, sizeof *drawn, "the samples drawn of each source", err));
  lm_status s = lm_mixture_drawn(m, position, drawn, err);
  for (size_t i = 0; s == LM_OK && i < sources->n; i++) {
    const lm_source *source = &sources->items[i];
    size_t column = lm_mixture_column(m, lm_dataset_info(source->data)->checksum);
    lm_info("data: %s, %.4g %% of the samples, %" PRIu64 " tokens, %" PRIu64 " windows an epoch, %.3f epochs so far",
            lm_dataset_path(source->data), 100 * lm_mixture_share(m, column), lm_dataset_info(source->data)->tokens,
            source->windows, (double)drawn[column] / (double)source->windows);
  }
  free(drawn);
  return s;
}
