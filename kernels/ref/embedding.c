/* kernels/ref/embedding.c - token and position embedding. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/ref/ref.h"

void lm_embedding_fwd_ref(lm_dtype t, void *y, const int32_t *token, const void *wte, const void *wpe, int B, int T,
                          int C)
{
  size_t N = (size_t)B * (size_t)T, C_ = (size_t)C;
  for (size_t n = 0; n < N; n++) { /* n is (b,t) */
    size_t id = (size_t)token[n], pos = n % (size_t)T;
    for (size_t c = 0; c < C_; c++) {
      double position = wpe == NULL ? 0 : lm_ref_load(t, wpe, pos * C_ + c);
      lm_ref_store(t, y, n * C_ + c, lm_ref_load(t, wte, id * C_ + c) + position);
    }
  }
}

void lm_embedding_bwd_ref(lm_dtype t, float *dwte, float *dwpe, const void *dy, const int32_t *token, int B, int T,
                          int C)
{
  size_t N = (size_t)B * (size_t)T, C_ = (size_t)C;
  for (size_t n = 0; n < N; n++) /* in f32, in this order: the sum is part of the definition */
    for (size_t c = 0; c < C_; c++) dwte[(size_t)token[n] * C_ + c] += (float)lm_ref_load(t, dy, n * C_ + c);
  for (size_t i = 0; dwpe != NULL && i < (size_t)T * C_; i++) { /* i is (t,c) */
    double sum = 0;
    for (size_t b = 0; b < (size_t)B; b++) sum += lm_ref_load(t, dy, b * (size_t)T * C_ + i);
    dwpe[i] = (float)(dwpe[i] + sum);
  }
}
