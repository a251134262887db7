/* src/train/state.c - what a run is at a step, as the slices that checkpoints keep. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The weights, their masters, the moments. */
enum { BLOCKS = 2 + LM_MOMENTS };

/* A block over the flat parameter space, and where its tensors go in the file. */
struct block {
  char folder[32];
  lm_dtype dtype;
  char *data;
};

static int blocks_of(struct block out[BLOCKS], lm_model *m, lm_optimizer *opt, lm_dtype compute)
{
  int n = 0;
  out[n++] = (struct block){"/model", compute, lm_model_weights(m)};
  if (opt == NULL) return n;
  if (lm_optimizer_has_master(opt))
    out[n++] = (struct block){"/optimizer/master", LM_F32, (char *)lm_optimizer_master(opt)};
  lm_moment moments[LM_MOMENTS];
  int n_moments = lm_optimizer_moments(opt, moments);
  for (int i = 0; i < n_moments; i++, n++) {
    out[n] = (struct block){.dtype = LM_F32, .data = (char *)moments[i].data};
    snprintf(out[n].folder, sizeof out[n].folder, "/optimizer/%s", moments[i].name);
  }
  return n;
}

/* The elements of `p` that lie in [begin, end) of the flat space. */
static lm_state_slice slice_of(const struct block *b, const lm_param *p, size_t begin, size_t end)
{
  size_t from = begin > p->offset ? begin : p->offset, to = p->offset + p->count;
  if (to > end) to = end;
  if (from > to) from = to = p->offset;
  lm_state_slice s = {.dtype = b->dtype,
                      .ndim = p->ndim,
                      .begin = from - p->offset,
                      .count = to - from,
                      .data = b->data + from * lm_dtype_size(b->dtype)};
  snprintf(s.name, sizeof s.name, "%.31s/%.95s", b->folder, p->name);
  for (int d = 0; d < p->ndim; d++) s.shape[d] = p->shape[d];
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
  lm_state_slice scale = {.name = "/scaler/scale", .dtype = LM_F32, .count = mine, .data = &s->scale};
  out->slices[out->n++] = scale;
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
  enum { OTHERS = 16 };
  *out = (lm_state){.slices = calloc(BLOCKS * table->n + OTHERS, sizeof *out->slices)};
  return out->slices != NULL ? LM_OK
                             : lm_fail(err, LM_ENOMEM, "no memory for the list of %zu tensors", BLOCKS * table->n);
}

static void add_tensors(lm_state *out, lm_model *m, lm_optimizer *opt, size_t begin, size_t end)
{
  const lm_param_table *table = lm_model_params(m);
  struct block blocks[BLOCKS];
  int n = blocks_of(blocks, m, opt, lm_model_compute(m));
  for (int b = 0; b < n; b++)
    for (size_t i = 0; i < table->n; i++) out->slices[out->n++] = slice_of(&blocks[b], &table->params[i], begin, end);
}

lm_status lm_state_to_save(lm_state *out, const lm_comm *comm, lm_model *m, lm_optimizer *opt, lm_progress *p,
                           lm_provenance *from, lm_error *err)
{
  const lm_param_table *table = lm_model_params(m);
  LM_TRY(make(out, table, err));
  size_t rank = (size_t)comm->rank, size = (size_t)comm->size, each = table->elements / size;
  add_tensors(out, m, opt, rank * each, rank + 1 == size ? table->elements : (rank + 1) * each);
  add_progress(out, p, comm->rank == 0);
  if (lm_model_compute(m) == LM_F16) add_scaler(out, &p->scaler, comm->rank == 0);
  out->slices[out->n++] = scalar("/provenance/world", &from->world, comm->rank == 0);
  out->slices[out->n++] = scalar("/provenance/vocab_fingerprint", &from->vocab, comm->rank == 0);
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
  add_tensors(out, m, opt, 0, lm_model_params(m)->elements);
  add_progress(out, p, true);
  if (opt != NULL && lm_model_compute(m) == LM_F16) add_scaler(out, &p->scaler, true);
  return LM_OK;
}

void lm_state_free(lm_state *s)
{
  for (size_t i = 0; i < s->n; i++)
    if (s->slices[i].dtype == LM_TEXT) free(s->slices[i].data);
  free(s->slices);
  *s = (lm_state){0};
}
