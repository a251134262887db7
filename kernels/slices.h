/* kernels/slices.h - operations over many tensors: one call for all where that pays, else one after another. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_KERNELS_SLICES_H
#define LM_KERNELS_SLICES_H

#include "kernels/kernels.h"

/** Make a list of slices, once. Local.
 *  @param list  [n] copied; what its rows point to is kept. Slices may be empty
 *  @param t     of w16; any where it is NULL
 *  @return LM_ENOMEM; *out is empty then */
lm_status lm_slices_new(lm_slices *out, const lm_kernels *k, const lm_slice *list, size_t n, lm_dtype t,
                        lm_error *err) LM_NODISCARD;
void lm_slices_free(lm_slices *s, const lm_kernels *k);

/** What a list of n slices, of `pieces` pieces together, asks a device for: lm_slice_pieces() of each, added. Local. */
size_t lm_slices_bytes(size_t n, size_t pieces);
size_t lm_slice_pieces(size_t elements);

/** k->adamw, k->sgd or k->sum_squares of each slice, to the same bits. Local.
 *  @param sums  [s->n], of the backend */
void lm_slices_adamw(const lm_kernels *k, lm_dtype t, const lm_slices *s, const float *g, const lm_adamw_config *cfg,
                     float lr, float scale, int64_t step);
void lm_slices_sgd(const lm_kernels *k, lm_dtype t, const lm_slices *s, const float *g, const lm_sgd_config *cfg,
                   float lr, float scale);
void lm_slices_sum_squares(const lm_kernels *k, double *sums, const lm_slices *s, const float *g);

#endif
