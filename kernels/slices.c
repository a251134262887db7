/* kernels/slices.c - operations over many tensors: one call for all where that pays, else one after another. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/slices.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

size_t lm_slice_pieces(size_t elements)
{
  return (elements + LM_PIECE - 1) / LM_PIECE;
}

size_t lm_slices_bytes(size_t n, size_t pieces)
{
  return pieces * sizeof(lm_slice) + (n + 1) * sizeof(uint32_t);
}

static float *further(float *p, size_t by)
{
  return p == NULL ? NULL : p + by;
}

/* Elements [from, from + LM_PIECE) of a slice, as far as there are some. */
static lm_slice piece_of(const lm_slice *s, size_t from, lm_dtype t)
{
  return (lm_slice){.w = further(s->w, from),
                    .m = further(s->m, from),
                    .v = further(s->v, from),
                    .w16 = s->w16 == NULL ? NULL : (char *)s->w16 + from * lm_dtype_size(t),
                    .g_at = s->g_at + from,
                    .n = s->n - from < LM_PIECE ? s->n - from : LM_PIECE,
                    .decayed = s->decayed};
}

/* The pieces, cut on the host and handed over. */
static lm_status cut(lm_slices *s, const lm_kernels *k, lm_dtype t, lm_error *err)
{
  lm_slice *pieces = NULL;
  uint32_t *first = NULL;
  for (size_t i = 0; i < s->n; i++) s->n_pieces += lm_slice_pieces(s->host[i].n);
  lm_status r = k->alloc((void **)&s->pieces, s->n_pieces * sizeof *pieces, "the list of tensors", err);
  if (r == LM_OK) r = k->alloc((void **)&s->first, (s->n + 1) * sizeof *first, "the list of tensors", err);
  if (r == LM_OK) r = lm_alloc(&pieces, s->n_pieces, sizeof *pieces, "the list of tensors", err);
  if (r == LM_OK) r = lm_alloc(&first, s->n + 1, sizeof *first, "the list of tensors", err);
  if (r == LM_OK) {
    size_t at = 0;
    for (size_t i = 0; i < s->n; i++) {
      for (size_t from = 0; from < s->host[i].n; from += LM_PIECE) pieces[at++] = piece_of(&s->host[i], from, t);
      first[i + 1] = (uint32_t)at;
    }
    k->to_device(s->pieces, pieces, s->n_pieces * sizeof *pieces);
    k->to_device(s->first, first, (s->n + 1) * sizeof *first);
  }
  free(pieces);
  free(first);
  return r;
}

lm_status lm_slices_new(lm_slices *out, const lm_kernels *k, const lm_slice *list, size_t n, lm_dtype t, lm_error *err)
{
  *out = (lm_slices){.n = n};
  lm_status s = lm_alloc(&out->host, n, sizeof *list, "the list of tensors", err);
  if (s == LM_OK && n > 0) memcpy(out->host, list, n * sizeof *list);
  if (s == LM_OK && k->on_device) s = cut(out, k, t, err);
  if (s != LM_OK) lm_slices_free(out, k);
  return s;
}

void lm_slices_free(lm_slices *s, const lm_kernels *k)
{
  k->release(s->pieces);
  k->release(s->first);
  free(s->host);
  *s = (lm_slices){0};
}

void lm_slices_adamw(const lm_kernels *k, lm_dtype t, const lm_slices *s, const float *g, const lm_adamw_config *cfg,
                     float lr, float scale, int64_t step)
{
  lm_adamw_config plain = *cfg;
  plain.decay = 0;
  if (s->pieces != NULL) {
    k->adamw_all(t, s, g, cfg, lr, scale, step);
    return;
  }
  for (const lm_slice *x = s->host; x < s->host + s->n; x++)
    if (x->n > 0) k->adamw(t, x->w, x->m, x->v, g + x->g_at, x->w16, x->n, x->decayed ? cfg : &plain, lr, scale, step);
}

void lm_slices_sgd(const lm_kernels *k, lm_dtype t, const lm_slices *s, const float *g, const lm_sgd_config *cfg,
                   float lr, float scale)
{
  lm_sgd_config plain = *cfg;
  plain.decay = 0;
  if (s->pieces != NULL) {
    k->sgd_all(t, s, g, cfg, lr, scale);
    return;
  }
  for (const lm_slice *x = s->host; x < s->host + s->n; x++)
    if (x->n > 0) k->sgd(t, x->w, x->m, g + x->g_at, x->w16, x->n, x->decayed ? cfg : &plain, lr, scale);
}

void lm_slices_sum_squares(const lm_kernels *k, double *sums, const lm_slices *s, const float *g)
{
  if (s->pieces != NULL) {
    k->sum_squares_all(sums, s, g);
    return;
  }
  for (size_t i = 0; i < s->n; i++) k->sum_squares(sums + i, g + s->host[i].g_at, s->host[i].n);
}
