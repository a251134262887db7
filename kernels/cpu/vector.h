/* kernels/cpu/vector.h - what loops are made of: elements of any type, and exp, without a call or a branch. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_KERNELS_CPU_VECTOR_H
#define LM_KERNELS_CPU_VECTOR_H

#include "base/dtype.h"

#include <math.h>

/* A loop is written once for all types: an LM_INLINE function with a parameter `t`, called as LM_FOR_TYPE(t,
 * f(LM_TYPE, ...)). There LM_TYPE is a constant, and nothing of the choice is left inside the loop. */
#define LM_INLINE static inline __attribute__((always_inline))
#define LM_FOR_TYPE(t, ...)                                                                                            \
  do {                                                                                                                 \
    if ((t) == LM_F32) {                                                                                               \
      const lm_dtype LM_TYPE = LM_F32;                                                                                 \
      __VA_ARGS__;                                                                                                     \
    } else if ((t) == LM_BF16) {                                                                                       \
      const lm_dtype LM_TYPE = LM_BF16;                                                                                \
      __VA_ARGS__;                                                                                                     \
    } else {                                                                                                           \
      const lm_dtype LM_TYPE = LM_F16;                                                                                 \
      __VA_ARGS__;                                                                                                     \
    }                                                                                                                  \
  } while (0)

LM_INLINE float lm_load(lm_dtype t, const void *p, size_t i)
{
  return t == LM_F32 ? ((const float *)p)[i] : lm_half_to_f32(t, ((const uint16_t *)p)[i]);
}

LM_INLINE void lm_store(lm_dtype t, void *p, size_t i, float value)
{
  if (t == LM_F32)
    ((float *)p)[i] = value;
  else
    ((uint16_t *)p)[i] = lm_half_from_f32(t, value);
}

/** exp(x) to 1.2 ulp for -87.33 <= x <= 88.37; below that 0, above it infinity; NaN for NaN.
 *  x = n ln 2 + r, |r| <= ln(2)/2; exp(x) = 2^n (1 + r + r^2 q(r)), q interpolated at Chebyshev's nodes: 1.1e-8. */
LM_INLINE float lm_exp(float x)
{
  const float shift = 0x1.8p23f; /* adding it rounds to an integer and leaves that in the low bits */
  float shifted = x * 1.44269502f + shift, n = shifted - shift;
  float r = x - n * 0x1.62e4p-1f - n * 1.42860677e-06f; /* ln 2 in two parts: n times the first is exact */
  float q = (((0x1.6d117cp-10f * r + 0x1.120be2p-7f) * r + 0x1.555518p-5f) * r + 0x1.5554dcp-3f) * r + 0.5f;
  uint32_t bits;
  memcpy(&bits, &shifted, sizeof bits);
  bits = (bits + 127) << 23; /* of 2^n */
  float power;
  memcpy(&power, &bits, sizeof power);
  float y = (1 + (r + r * r * q)) * power;
  y = x < -87.33f ? 0 : y;
  return x > 88.37f ? INFINITY : y;
}

#endif
