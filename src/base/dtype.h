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
  LM_U64,  /* counters */
  LM_TEXT, /* bytes of a string: the element is one byte */
} lm_dtype;

typedef uint16_t lm_bf16;

/** Bytes of an element. Local. */
static inline size_t lm_dtype_size(lm_dtype t)
{
  return t == LM_F32 ? 4 : t == LM_BF16 ? 2 : t == LM_U64 ? 8 : 1;
}

/** "f32", "bf16", "u64", "text". Local. */
static inline const char *lm_dtype_name(lm_dtype t)
{
  return t == LM_F32 ? "f32" : t == LM_BF16 ? "bf16" : t == LM_U64 ? "u64" : "text";
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

#endif
