/* kernels/cpu/rope.c - rotary positions. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cpu/loop_files.h"
#include "kernels/cpu/vector.h"

enum { SMALL = 1 << 14 /* elements that do not pay for a second thread */ };

/* The heads of a row that begins at element `at` turn by its angles; sign is -1 to turn back. */
LM_INLINE void turn(lm_dtype t, void *qkv, size_t at, const float *angle, float sign, size_t heads, size_t D)
{
  size_t half = D / 2;
  for (size_t h = 0; h < heads; h++, at += D) {
#pragma omp simd
    for (size_t d = 0; d < half; d++) {
      float x1 = lm_load(t, qkv, at + d), x2 = lm_load(t, qkv, at + half + d);
      float c = angle[d], s = sign * angle[half + d];
      lm_store(t, qkv, at + d, x1 * c - x2 * s);
      lm_store(t, qkv, at + half + d, x2 * c + x1 * s);
    }
  }
}

void LM_LEVEL(lm_rope)(lm_dtype t, void *qkv, const float *angles, int first, bool inverse, int B, int T, int H,
                       int H_kv, int D)
{
  size_t rows = (size_t)B * (size_t)T, D_ = (size_t)D, heads = (size_t)H + (size_t)H_kv,
         row = (heads + (size_t)H_kv) * D_;
  float sign = inverse ? -1 : 1;
#pragma omp parallel for schedule(static) if (rows * row > SMALL)
  for (size_t r = 0; r < rows; r++) {
    const float *angle = angles + ((size_t)first + r % (size_t)T) * D_;
    LM_FOR_TYPE(t, turn(LM_TYPE, qkv, r * row, angle, sign, heads, D_));
  }
}
