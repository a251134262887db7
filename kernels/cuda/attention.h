/* kernels/cuda/attention.h - what the attention kernels share: where things lie, and who sees whom. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_KERNELS_CUDA_ATTENTION_H
#define LM_KERNELS_CUDA_ATTENTION_H

#include "kernels/cuda/keep.h"

/* An attention as a kernel takes it. Heads of qkv [B,T,(H + 2 H_kv) D] are counted through: queries, keys, values. */
struct attended {
  int T, H, H_kv, D;
  const int32_t *start; /* [B,T] or NULL */
  keeping keep;
  float scale; /* 1 / sqrt(D) */

  /* Element 0 of head `head` at position i of sequence b. */
  __device__ __forceinline__ size_t head_at(int b, int i, int head) const
  {
    return ((static_cast<size_t>(b) * T + i) * (H + 2 * H_kv) + head) * D;
  }
  __device__ __forceinline__ size_t output_at(int b, int i, int h) const /* y, dy [B,T,H D] */
  {
    return ((static_cast<size_t>(b) * T + i) * H + h) * D;
  }
  __device__ __forceinline__ size_t lse_at(int b, int h, int i) const /* lse [B,H,T] */
  {
    return (static_cast<size_t>(b) * H + h) * T + i;
  }
  /* The first key that query i sees. */
  __device__ __forceinline__ int first_key(int b, int i) const
  {
    return start == NULL ? 0 : start[static_cast<size_t>(b) * T + i];
  }
};

static inline attended attended_of(const lm_attention *a)
{
  return attended{a->T,
                  a->H,
                  a->H_kv,
                  a->D,
                  a->start,
                  keeping_of(a->dropout),
                  static_cast<float>(1 / sqrt(static_cast<double>(a->D)))};
}

/** delta[b,h,i] = dy . y of a query: what its softmax's backward subtracts. delta [B,H,T]. Local. */
void lm_cuda_attention_delta(lm_dtype t, float *delta, const void *dy, const void *y, const lm_attention *a);

/** For any type and any D that fits into shared memory. Local. */
void lm_cuda_attention_fwd_any(lm_dtype t, void *y, float *lse, const void *qkv, const lm_attention *a);
void lm_cuda_attention_bwd_any(lm_dtype t, void *dqkv, const void *dy, const float *delta, const float *lse,
                               const void *qkv, const lm_attention *a);

/** On tensor cores: 16-bit types, heads of a multiple of 8 channels up to 128. Local. */
bool lm_cuda_attention_has_mma(lm_dtype t, const lm_attention *a);
void lm_cuda_attention_fwd_mma(lm_dtype t, void *y, float *lse, const void *qkv, const lm_attention *a);
void lm_cuda_attention_bwd_mma(lm_dtype t, void *dqkv, const void *dy, const float *delta, const float *lse,
                               const void *qkv, const lm_attention *a);

/** On the tensor cores of sm_90a, by products of whole warpgroups: what mma.sync can do, and only where the device has
 *  compute capability 9.0, the module was compiled for it, and MPILM_CUDA_MMA_SYNC does not forbid it, which
 *  lm_cuda_attention_start() looks at. Backward makes its own delta of dy and y. Local. */
void lm_cuda_attention_start(void);
bool lm_cuda_attention_has_wgmma(void);
void lm_cuda_attention_fwd_wgmma(lm_dtype t, void *y, float *lse, const void *qkv, const lm_attention *a);
void lm_cuda_attention_bwd_wgmma(lm_dtype t, void *dqkv, const void *dy, const void *y, const float *lse,
                                 const void *qkv, const lm_attention *a);

#endif
