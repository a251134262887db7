/* src/base/dtype.h - element types of tensors, in memory and in files. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_BASE_DTYPE_H
#define LM_BASE_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum lm_dtype {
  LM_F32,  /* IEEE binary32 */
  LM_BF16, /* the upper half of a binary32: 8 exponent bits, 7 of fraction */
  LM_F16,  /* IEEE binary16: 5 exponent bits, 10 of fraction; from 6e-8 to 65504 */
  LM_U64,  /* counters */
  LM_TEXT, /* bytes of a string: the element is one byte */
} lm_dtype;

typedef uint16_t lm_bf16;
typedef uint16_t lm_f16;

/** Bytes of an element. Local. */
static inline size_t lm_dtype_size(lm_dtype t)
{
  return t == LM_F32 ? 4 : t == LM_BF16 || t == LM_F16 ? 2 : t == LM_U64 ? 8 : 1;
}

/** "f32", "bf16", "f16", "u64", "text". Local. */
static inline const char *lm_dtype_name(lm_dtype t)
{
  return t == LM_F32 ? "f32" : t == LM_BF16 ? "bf16" : t == LM_F16 ? "f16" : t == LM_U64 ? "u64" : "text";
}

static inline float lm_bf16_to_f32(lm_bf16 x)
{
  uint32_t bits = (uint32_t)x << 16;
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

/** Round to nearest, ties to even; a NaN stays a (quiet) NaN. Local. */
static inline lm_bf16 lm_bf16_from_f32(float f)
{
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16, quiet = (bits >> 16) | 0x40;
  return (lm_bf16)((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

/** Exact; a NaN stays one. Local. Integers and one product alone, so that a loop over it becomes vectors anywhere. */
static inline float lm_f16_to_f32(lm_f16 x)
{
  const float shift = 0x1p112f; /* the exponents' biases differ by 112; a product also normalises subnormals */
  uint32_t bits = (uint32_t)(x & 0x7fff) << 13, sign = (uint32_t)(x & 0x8000) << 16;
  float f;
  memcpy(&f, &bits, sizeof f);
  f *= shift;
  memcpy(&bits, &f, sizeof bits);
  bits |= (x & 0x7c00) == 0x7c00 ? 0x7f800000 : 0; /* infinity, NaN */
  bits |= sign;
  memcpy(&f, &bits, sizeof f);
  return f;
}

/** Round to nearest, ties to even: infinity from 65520 on, subnormals below 6.1e-5; a NaN stays a (quiet) NaN. Local.
 */
static inline lm_f16 lm_f16_from_f32(float f)
{
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
  float small; /* beside 0.5 the last bit of a float is worth 2^-24, as that of a subnormal */
  memcpy(&small, &magnitude, sizeof small);
  small += 0.5f;
  uint32_t subnormal;
  memcpy(&subnormal, &small, sizeof subnormal);
  subnormal -= 0x3f000000;
  uint32_t result = magnitude < 0x38800000 ? subnormal : normal; /* 2^-14 */
  result = magnitude >= 0x47800000 ? 0x7c00 : result;            /* 2^16 */
  result = magnitude > 0x7f800000 ? 0x7e00 | (magnitude >> 13 & 0x3ff) : result;
  return (lm_f16)(sign | result);
}

/** An element of a 16-bit type. Local. */
static inline float lm_half_to_f32(lm_dtype t, uint16_t x)
{
  return t == LM_F16 ? lm_f16_to_f32(x) : lm_bf16_to_f32(x);
}
static inline uint16_t lm_half_from_f32(lm_dtype t, float f)
{
  return t == LM_F16 ? lm_f16_from_f32(f) : lm_bf16_from_f32(f);
}

#endif
