/* src/train/state.c - what a run is at a step, as the slices that checkpoints keep. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The weights, their masters, the moments. */
enum { BLOCKS = 2 + LM_MOMENTS };

/* A block of elements, and where its tensors go in the file. */
struct block {
  char folder[32];
  lm_dtype dtype;
  char *data;
  bool whole;          /* over the flat parameter space; else of what this rank owns of it */
  const lm_kernels *k; /* whose memory it is in */
};

static int blocks_of(struct block out[BLOCKS], lm_model *m, lm_optimizer *opt, lm_dtype compute)
{
  int n = 0;
  out[n++] = (struct block){"/model", compute, lm_model_weights(m), true, lm_model_kernels(m)};
  if (opt == NULL) return n;
  if (lm_optimizer_has_master(opt))
    out[n++] = (struct block){"/optimizer/master", LM_F32, (char *)lm_optimizer_master(opt), false, out->k};
  lm_moment moments[LM_MOMENTS];
  int n_moments = lm_optimizer_moments(opt, moments);
  for (int i = 0; i < n_moments; i++, n++) {
    out[n] = (struct block){.dtype = LM_F32, .data = (char *)moments[i].data, .k = out->k};
    snprintf(out[n].folder, sizeof out[n].folder, "/optimizer/%s", moments[i].name);
  }
  return n;
}

/* Elements [begin, begin + count) of `p`, of which this rank has at least those. */
static lm_state_slice slice_of(const struct block *b, const lm_param *p, size_t begin, size_t count)
{
  size_t at = b->whole ? p->offset + begin : p->own_at + (begin - p->own_begin);
  lm_state_slice s = {.dtype = b->dtype,
                      .ndim = p->ndim,
                      .begin = begin,
                      .count = count,
                      .data = count > 0 ? b->data + at * lm_dtype_size(b->dtype) : NULL};
  if (b->k->on_device) s.on_device = true, s.put = b->k->to_device;
  snprintf(s.name, sizeof s.name, "%.31s/%.95s", b->folder, p->name);
  for (int d = 0; d < p->ndim; d++) s.shape[d] = p->shape[d];
  return s;
}

static lm_state_slice f32_scalar(const char *name, float *value, bool mine)
{
  lm_state_slice s = {.dtype = LM_F32, .count = mine, .data = value};
  snprintf(s.name, sizeof s.name, "%s", name);
  return s;
}

static lm_state_slice scalar(const char *name, uint64_t *value, bool mine)
{
  lm_state_slice s = {.dtype = LM_U64, .ndim = 0, .count = mine, .data = value};
  snprintf(s.name, sizeof s.name, "%s", name);
  return s;
}

static void add_scaler(lm_state *out, lm_scaler *s, bool mine)
{
  out->slices[out->n++] = f32_scalar("/scaler/scale", &s->scale, mine);
  out->slices[out->n++] = scalar("/scaler/good_steps", &s->good_steps, mine);
  out->slices[out->n++] = scalar("/scaler/overflows_left", &s->overflows_left, mine);
}

static void add_progress(lm_state *out, lm_progress *p, bool mine)
{
  out->slices[out->n++] = scalar("/progress/step", &p->step, mine);
  out->slices[out->n++] = scalar("/progress/applied_step", &p->applied, mine);
  out->slices[out->n++] = scalar("/progress/tokens", &p->tokens, mine);
  out->slices[out->n++] = scalar("/progress/position", &p->position, mine);
  out->slices[out->n++] = scalar("/progress/skipped_in_a_row", &p->skipped, mine);
  out->slices[out->n++] = scalar("/rng/key", &p->key, mine);
}

/* What checkpoints of older versions lack. */
static void add_monitor(lm_state *out, lm_progress *p, bool mine)
{
  lm_state_slice losses = {.name = "/monitor/losses",
                           .dtype = LM_F32,
                           .ndim = 1,
                           .shape = {LM_MONITOR_MOST},
                           .count = mine ? LM_MONITOR_MOST : 0,
                           .data = p->monitor.losses};
  out->slices[out->n++] = losses;
  out->slices[out->n++] = scalar("/monitor/count", &p->monitor.count, mine);
  out->slices[out->n++] = scalar("/progress/rollbacks", &p->rollbacks, mine);
}

/* A column a source, a row an era. */
static void add_sources(lm_state *out, lm_mixture *m, bool mine)
{
  const lm_state_slice all[] = {
      {.name = "/progress/sources/checksum", .ndim = 1, .shape = {m->sources}, .data = m->checksum},
      {.name = "/progress/sources/from", .ndim = 1, .shape = {m->eras}, .data = m->from},
      {.name = "/progress/sources/weight", .ndim = 2, .shape = {m->eras, m->sources}, .data = m->weight},
      {.name = "/progress/sources/drawn", .ndim = 2, .shape = {m->eras, m->sources}, .data = m->drawn},
  };
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
    lm_state_slice *s = &out->slices[out->n++];
    *s = all[i];
    s->dtype = LM_U64;
    s->count = mine ? s->shape[0] * (s->ndim == 2 ? s->shape[1] : 1) : 0;
  }
}

static void add_text(lm_state *out, const char *name, const char *text, bool mine)
{
  size_t n = strlen(text);
  lm_state_slice s = {.dtype = LM_TEXT, .ndim = 1, .shape = {n}, .count = mine ? n : 0};
  s.data = malloc(n + 1); /* a slice's data can be read into, so it is not const */
  if (s.data != NULL) memcpy(s.data, text, n + 1);
  snprintf(s.name, sizeof s.name, "%s", name);
  out->slices[out->n++] = s;
}

static lm_status make(lm_state *out, const lm_param_table *table, lm_error *err)
{
  enum { OTHERS = 32 };
  *out = (lm_state){.slices = calloc(BLOCKS * table->n + OTHERS, sizeof *out->slices)};
  return out->slices != NULL ? LM_OK
                             : lm_fail(err, LM_ENOMEM, "no memory for the list of %zu tensors", BLOCKS * table->n);
}

/* All of what this rank has. */
/* In f32 weights and masters are the same; a file of another precision has them under the other name, and the masters
 * are the better ones. */
static void prefer_master(lm_state_slice *s, const lm_param *p)
{
  snprintf(s->name, sizeof s->name, "/optimizer/master/%.95s", p->name);
  snprintf(s->instead, sizeof s->instead, "/model/%.95s", p->name);
}

/* @param only_masters  neither 16-bit weights, which follow from them, nor moments */
static void add_to_load(lm_state *out, lm_model *m, lm_optimizer *opt, bool only_masters)
{
  const lm_param_table *table = lm_model_params(m);
  struct block blocks[BLOCKS];
  int n = blocks_of(blocks, m, opt, lm_model_compute(m)), masters = opt != NULL && lm_optimizer_has_master(opt);
  for (int b = only_masters ? masters : 0; b < (only_masters ? masters + 1 : n); b++)
    for (size_t i = 0; i < table->n; i++) {
      const lm_param *p = &table->params[i];
      bool whole = blocks[b].whole;
      lm_state_slice *s = &out->slices[out->n++];
      *s = slice_of(&blocks[b], p, whole ? 0 : p->own_begin, whole ? p->count : p->own_count);
      if (opt != NULL && b == masters) prefer_master(s, p);
    }
}

/* What lies in [begin, end) of the flat space. */
static void part_of(const lm_param *p, size_t begin, size_t end, size_t *from, size_t *count)
{
  size_t first = begin > p->offset ? begin : p->offset, last = p->offset + p->count;
  if (last > end) last = end;
  *from = first < last ? first - p->offset : 0;
  *count = first < last ? last - first : 0;
}

/* Each element on one rank: on its owner, or, where all ranks have all, on the one whose even cut it lies in. */
static void add_to_save(lm_state *out, const lm_comm *comm, lm_model *m, lm_optimizer *opt)
{
  const lm_param_table *table = lm_model_params(m);
  size_t rank = (size_t)comm->rank, size = (size_t)comm->size, each = table->elements / size;
  size_t begin = rank * each, end = rank + 1 == size ? table->elements : begin + each, from, count;
  struct block blocks[BLOCKS];
  int n = blocks_of(blocks, m, opt, lm_model_compute(m));
  for (int b = 0; b < n; b++)
    for (size_t i = 0; i < table->n; i++) {
      const lm_param *p = &table->params[i];
      part_of(p, begin, end, &from, &count);
      if (table->sharding != LM_SHARD_NOTHING) from = p->own_begin, count = p->own_count;
      out->slices[out->n++] = slice_of(&blocks[b], p, from, count);
    }
}

lm_status lm_state_to_save(lm_state *out, const lm_comm *comm, lm_model *m, lm_optimizer *opt, lm_progress *p,
                           lm_provenance *from, lm_error *err)
{
  const lm_param_table *table = lm_model_params(m);
  LM_TRY(make(out, table, err));
  add_to_save(out, comm, m, opt);
  add_progress(out, p, comm->rank == 0);
  add_monitor(out, p, comm->rank == 0);
  add_sources(out, from->mixture, comm->rank == 0);
  if (lm_model_compute(m) == LM_F16) add_scaler(out, &p->scaler, comm->rank == 0);
  out->slices[out->n++] = scalar("/provenance/world", &from->world, comm->rank == 0);
  out->slices[out->n++] = scalar("/provenance/vocab_fingerprint", &from->vocab, comm->rank == 0);
  out->slices[out->n++] = scalar("/provenance/data_checksum", &from->data, comm->rank == 0);
  out->slices[out->n++] = f32_scalar("/provenance/loss", &from->loss, comm->rank == 0);
  out->slices[out->n++] = f32_scalar("/provenance/validation_loss", &from->validation_loss, comm->rank == 0);
  add_text(out, "/config", from->config, comm->rank == 0);
  add_text(out, "/provenance/program", from->program, comm->rank == 0);
  if (out->slices[out->n - 1].data == NULL || out->slices[out->n - 2].data == NULL) {
    lm_state_free(out);
    return lm_fail(err, LM_ENOMEM, "no memory for the texts of a checkpoint");
  }
  return LM_OK;
}

lm_status lm_state_to_load(lm_state *out, lm_model *m, lm_optimizer *opt, lm_progress *p, lm_error *err)
{
  LM_TRY(make(out, lm_model_params(m), err));
  add_to_load(out, m, opt, false);
  add_progress(out, p, true);
  size_t before = out->n;
  add_monitor(out, p, true);
  if (opt != NULL && lm_model_compute(m) == LM_F16) add_scaler(out, &p->scaler, true);
  for (size_t i = before; i < out->n; i++) out->slices[i].optional = true;
  return LM_OK;
}

lm_status lm_state_to_begin(lm_state *out, lm_model *m, lm_optimizer *opt, lm_error *err)
{
  LM_TRY(make(out, lm_model_params(m), err));
  add_to_load(out, m, opt, true);
  return LM_OK;
}

void lm_state_free(lm_state *s)
{
  for (size_t i = 0; i < s->n; i++)
    if (s->slices[i].dtype == LM_TEXT) free(s->slices[i].data);
  free(s->slices);
  *s = (lm_state){0};
}
