/* kernels/ref/rope.c - rotary positions. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/ref/ref.h"

void lm_rope_ref(lm_dtype t, void *qkv, const float *angles, int first, bool inverse, int B, int T, int H, int H_kv,
                 int D)
{
  size_t D_ = (size_t)D, half = D_ / 2, heads = (size_t)H + 2 * (size_t)H_kv, rows = (size_t)B * (size_t)T;
  for (size_t r = 0; r < rows; r++)
    for (size_t h = 0; h < (size_t)H + (size_t)H_kv; h++)
      for (size_t d = 0; d < half; d++) {
        const float *angle = angles + ((size_t)first + r % (size_t)T) * D_ + d;
        size_t i = (r * heads + h) * D_ + d;
        double x1 = lm_ref_load(t, qkv, i), x2 = lm_ref_load(t, qkv, i + half);
        double c = (double)angle[0], s = inverse ? -(double)angle[half] : (double)angle[half];
        lm_ref_store(t, qkv, i, x1 * c - x2 * s);
        lm_ref_store(t, qkv, i + half, x2 * c + x1 * s);
      }
}
