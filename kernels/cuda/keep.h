/* kernels/cuda/keep.h - what a dropout keeps: the Philox words of lm_dropout, on the device. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_KERNELS_CUDA_KEEP_H
#define LM_KERNELS_CUDA_KEEP_H

#include "base/rng.h"
#include "kernels/cuda/device.h"

/* A dropout as a kernel takes it: by value, since lm_dropout is the host's. */
struct keeping {
  uint64_t seed, sample;
  uint64_t below; /* a word below this is taken out: rate 2^32, rounded up */
  float factor;   /* of what stays; 0: there is no dropout */
  uint32_t place;
};

static inline keeping keeping_of(const lm_dropout *how)
{
  if (how == NULL) return keeping{0, 0, 0, 0, 0};
  double words = static_cast<double>(how->rate) * 0x1p32;
  uint64_t below = static_cast<uint64_t>(words);
  return keeping{how->seed, how->sample, below + (static_cast<double>(below) < words),
                 static_cast<float>(1 / (1 - static_cast<double>(how->rate))), how->place};
}

/* The key of sequence b. */
static __device__ __forceinline__ uint2 key_of(const keeping &how, uint64_t b)
{
  uint32_t words[4];
  lm_random_words(how.seed, LM_STREAM_DROPOUT, how.sample + b, 0, words);
  return make_uint2(words[0], words[1]);
}

/* What elements 4 group .. 4 group + 3 of a row are multiplied by. */
static __device__ __forceinline__ void keep4(float (&out)[4], const keeping &how, uint2 key, uint32_t group,
                                             uint32_t row, uint32_t part)
{
  const uint32_t counter[4] = {group, row, part, how.place}, k[2] = {key.x, key.y};
  uint32_t words[4];
  lm_philox4x32(counter, k, words);
#pragma unroll
  for (int i = 0; i < 4; i++) out[i] = words[i] < how.below ? 0 : how.factor;
}

/* The same for one element. */
static __device__ __forceinline__ float keep1(const keeping &how, uint2 key, uint32_t element, uint32_t row,
                                              uint32_t part)
{
  float four[4];
  keep4(four, how, key, element / 4, row, part);
  uint32_t i = element % 4;
  return i == 0 ? four[0] : i == 1 ? four[1] : i == 2 ? four[2] : four[3];
}

#endif
