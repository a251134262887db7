/* kernels/cuda/scores.h - a lane's part of a tile of scores, as tensor cores give it: rows, dropout, probabilities. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_KERNELS_CUDA_SCORES_H
#define LM_KERNELS_CUDA_SCORES_H

#include "kernels/cuda/attention.h"

static constexpr float LOG2_E = 1.44269504088896f;

/* The sequence and head that a block works on, and a thread's part. */
struct place {
  int b, h, lane, g, q, warp; /* g, q: rows and columns of a lane in a C */
};

static __device__ __forceinline__ place place_of(int b, int h)
{
  place p;
  p.b = b, p.h = h;
  p.lane = threadIdx.x % WARP, p.warp = threadIdx.x / WARP;
  p.g = p.lane / 4, p.q = p.lane % 4;
  return p;
}

/* 2^x, 0 where that is not a normal number. */
static __device__ __forceinline__ float power_of_2(float x)
{
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

static __device__ __forceinline__ float quad_max(float x)
{
  x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 1));
  return fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 2));
}
static __device__ __forceinline__ float quad_sum(float x)
{
  x += __shfl_xor_sync(ALL_LANES, x, 1);
  return x + __shfl_xor_sync(ALL_LANES, x, 2);
}

/* What the four elements of a lane in a C of scores [queries,keys] are multiplied by: rows i and i + 8, keys j + 2q and
 * j + 2q + 1. Two lanes need two words each of the same counters: each computes one and they swap halves. */
static __device__ __forceinline__ void keep_queries(float (&out)[4], const attended &a, uint2 key, const place &p,
                                                    int i, int j)
{
  float mine[4];
  bool odd = p.q & 1;
  keep4(mine, a.keep, key, (j + 2 * p.q) / 4, odd ? i + 8 : i, p.h);
  float first = __shfl_xor_sync(ALL_LANES, odd ? mine[0] : mine[2], 1);
  float second = __shfl_xor_sync(ALL_LANES, odd ? mine[1] : mine[3], 1);
  out[0] = odd ? first : mine[0], out[1] = odd ? second : mine[1];
  out[2] = odd ? mine[2] : first, out[3] = odd ? mine[3] : second;
}

/* The same in a C of [keys,queries]: keys j and j + 8, j being g behind a multiple of 8, and queries i, i + 1. The four
 * lanes whose keys one counter decides on compute a counter each, of the four that they need. */
static __device__ __forceinline__ void keep_keys(float (&out)[4], const attended &a, uint2 key, const place &p, int h,
                                                 int i, int j)
{
  float mine[4];
  int r = p.g % 4; /* this lane computes for element r of a C, and needs word r of each */
  keep4(mine, a.keep, key, (r < 2 ? j : j + 8) / 4, i + r % 2, h);
  float got[4]; /* got[s]: word r of the counter that lane r ^ s computed */
#pragma unroll
  for (int s = 0; s < 4; s++) {
    int to = r ^ s;
    float word = to == 0 ? mine[0] : to == 1 ? mine[1] : to == 2 ? mine[2] : mine[3];
    got[s] = s == 0 ? word : __shfl_xor_sync(ALL_LANES, word, 4 * s);
  }
#pragma unroll
  for (int e = 0; e < 4; e++) {
    int s = r ^ e;
    out[e] = s == 0 ? got[0] : s == 1 ? got[1] : s == 2 ? got[2] : got[3];
  }
}

/* ---- on the host ---- */

/* f(E{}, W, DROP) for the type, the width and whether there is a dropout. */
template <typename F> static inline void by_kind(lm_dtype t, const lm_attention *a, F f)
{
  auto with = [&](auto e) {
    by_width<128>(a->D > 64, [&](auto wide) {
      constexpr int W = decltype(wide)::value == 128 ? 128 : 64;
      if (a->dropout != NULL)
        f(e, std::integral_constant<int, W>{}, std::true_type{});
      else
        f(e, std::integral_constant<int, W>{}, std::false_type{});
    });
  };
  if (t == LM_BF16)
    with(bf16{});
  else
    with(f16{});
}

#endif
