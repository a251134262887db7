/* kernels/ref/dropout.c - which elements a dropout takes out. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/rng.h"
#include "kernels/ref/ref.h"

double lm_dropout_factor_ref(const lm_dropout *how, size_t b, size_t part, size_t row, size_t element)
{
  uint32_t key[4], w[4];
  lm_random_words(how->seed, LM_STREAM_DROPOUT, how->sample + b, 0, key);
  const uint32_t counter[4] = {(uint32_t)(element / 4), (uint32_t)row, (uint32_t)part, how->place};
  lm_philox4x32(counter, key, w);
  return (double)w[element % 4] < (double)how->rate * 0x1p32 ? 0 : 1 / (1 - (double)how->rate);
}

void lm_dropout_ref(lm_dtype t, void *y, const void *x, const lm_dropout *how, int B, int T, int C)
{
  size_t rows = (size_t)B * (size_t)T, C_ = (size_t)C;
  for (size_t r = 0; r < rows; r++)
    for (size_t c = 0; c < C_; c++) {
      double factor = lm_dropout_factor_ref(how, r / (size_t)T, 0, r % (size_t)T, c);
      lm_ref_store(t, y, r * C_ + c, factor == 0 ? 0 : lm_ref_load(t, x, r * C_ + c) * factor);
    }
}
