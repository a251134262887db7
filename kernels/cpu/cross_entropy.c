/* kernels/cpu/cross_entropy.c - softmax and negative log-likelihood, a row of logits at a time. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/cpu/loop_files.h"
#include "kernels/cpu/vector.h"

#include <float.h>

enum {
  BLOCK = 1 << 10, /* logits that stay in the first cache between their maximum and their sum */
  SMALL = 1 << 14, /* logits that do not pay for a second thread */
};

LM_INLINE float larger(float a, float b)
{
  return b > a ? b : a;
}

/* A NaN is passed over here and found again in the sum. The maxima of WIDTH columns are kept apart, because not every
 * compiler makes vectors of a single maximum where NaN may occur. */
LM_INLINE float largest_of(lm_dtype t, const void *z, size_t begin, size_t end)
{
  enum { WIDTH = 64 };
  float lane[WIDTH], largest = -FLT_MAX;
  size_t i = begin;
  for (size_t j = 0; j < WIDTH; j++) lane[j] = -FLT_MAX;
  for (; end - i >= WIDTH; i += WIDTH) {
#pragma omp simd
    for (size_t j = 0; j < WIDTH; j++) lane[j] = larger(lane[j], lm_load(t, z, i + j));
  }
  for (; i < end; i++) largest = larger(largest, lm_load(t, z, i));
  for (size_t j = 0; j < WIDTH; j++) largest = larger(largest, lane[j]);
  return largest;
}

LM_INLINE float sum_of_exp(lm_dtype t, const void *z, size_t begin, size_t end, float largest)
{
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (size_t i = begin; i < end; i++) sum += lm_exp(lm_load(t, z, i) - largest);
  return sum;
}

/* In double over few at a time, so that a mean over the vocabulary is good to the last digits of f32. */
LM_INLINE double mean_of(lm_dtype t, const void *z, size_t begin, size_t end)
{
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (size_t i = begin; i < end; i++) sum += (double)lm_load(t, z, i);
  return sum / (double)(end - begin);
}

/* z[i] = exp(z[i] - largest) share - all, and `one` less at the target. */
LM_INLINE void gradient_of(lm_dtype t, void *z, size_t begin, size_t end, size_t target, float largest, float share,
                           float all, float one)
{
  float at_target = lm_exp(lm_load(t, z, target) - largest) * share - all - one;
#pragma omp simd
  for (size_t i = begin; i < end; i++) lm_store(t, z, i, lm_exp(lm_load(t, z, i) - largest) * share - all);
  lm_store(t, z, target, at_target);
}

/* The V logits that begin at element `at`. One pass for the sum, relative to the largest logit so far, and one for the
 * gradient. */
LM_INLINE float row(lm_dtype t, void *z, size_t at, size_t V, size_t target, const lm_objective *objective, float scale)
{
  float largest = -FLT_MAX;
  double sum = 0, smoothing = (double)objective->label_smoothing, z_loss = (double)objective->z_loss;
  for (size_t i = at; i < at + V; i += BLOCK) {
    size_t end = at + V - i < BLOCK ? at + V : i + BLOCK;
    float here = largest_of(t, z, i, end);
    if (here > largest) {
      sum *= exp((double)largest - (double)here);
      largest = here;
    }
    sum += (double)sum_of_exp(t, z, i, end, largest);
  }
  double lse = log(sum) + (double)largest, wanted = (1 - smoothing) * (double)lm_load(t, z, at + target);
  if (smoothing > 0) wanted += smoothing * mean_of(t, z, at, at + V);
  double a = (double)scale;
  if (scale != 0)
    gradient_of(t, z, at, at + V, at + target, largest, (float)(a * (1 + 2 * z_loss * lse) / sum),
                (float)(a * smoothing / (double)V), (float)(a * (1 - smoothing)));
  return (float)(lse - wanted + z_loss * lse * lse);
}

void LM_LEVEL(lm_cross_entropy)(lm_dtype t, float *loss, void *z, const int32_t *target, const lm_objective *objective,
                                size_t rows, int V, int Vp, float scale)
{
  static const lm_objective plain = {0};
  size_t V_ = (size_t)V, Vp_ = (size_t)Vp, size = lm_dtype_size(t);
  if (objective == NULL) objective = &plain;
#pragma omp parallel for schedule(static) if (rows * V_ > SMALL)
  for (size_t r = 0; r < rows; r++) {
    bool ignored = target[r] < 0;
    if (ignored)
      loss[r] = 0;
    else
      LM_FOR_TYPE(t, loss[r] = row(LM_TYPE, z, r * Vp_, V_, (size_t)target[r], objective, scale));
    size_t kept = ignored ? 0 : V_; /* behind them, zeros */
    if (scale != 0) memset((char *)z + (r * Vp_ + kept) * size, 0, (Vp_ - kept) * size);
  }
}
