/* kernels/cuda/cuda.h - what the files of the CUDA module share: the stream, errors, launches, scratch memory. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_KERNELS_CUDA_CUDA_H
#define LM_KERNELS_CUDA_CUDA_H

#include "kernels/cuda/module.h"

#include <cuda_runtime.h>

/* An operation queues its work on one stream, in the order of the calls, and returns. to_host() waits for what
 * was queued before it, since the host looks at the result. What fails after it was queued cannot be agreed on: the
 * job ends, with the operation's name and CUDA's words. */

typedef struct lm_cuda_state {
  const lm_cuda_host *host;
  cudaStream_t compute;
  int device;
  int major, minor;    /* compute capability */
  size_t shared_bytes; /* of shared memory that a block can ask for */
  size_t cache_bytes;  /* L2 */
  int multiprocessors; /* a grid much larger than this many blocks has waves enough to balance */
} lm_cuda_state;

extern lm_cuda_state lm_cuda; /* of this process: one device */

/** End the job where e is a failure: "attention_fwd: an illegal memory access was encountered". Local. */
void lm_cuda_check(cudaError_t e, const char *what);

/** End the job with a sentence. Does not return. Local. */
void lm_cuda_stop(const char *format, ...) LM_PRINTF(1, 2);

/** Memory for intermediate results of one operation: valid until the next call of it by an operation on the stream.
 *  Grows to the largest request, so that a step allocates nothing once warmed up. Aligned to 256 bytes. Local. */
void *lm_cuda_scratch(size_t bytes, const char *what);

/** Queue kernel<<<grid, block, shared>>>(args...) on the stream of computation. More than 48 KiB of shared memory have
 *  been asked for with lm_cuda_allow_shared(). Local. */
template <typename... P, typename... A>
static inline void lm_cuda_launch(const char *what, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                                  A... args)
{
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return; /* nothing to do */
  kernel<<<grid, block, shared, lm_cuda.compute>>>(static_cast<P>(args)...);
  lm_cuda_check(cudaGetLastError(), what);
}

/** Let kernel have up to `bytes` of dynamic shared memory. Local. */
template <typename... P> static inline void lm_cuda_allow_shared(const char *what, void (*kernel)(P...), size_t bytes)
{
  if (bytes <= 48 << 10) return;
  lm_cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
                what);
}

/** How GPUs exchange: nccl.cu. Local. */
const lm_fabric *lm_cuda_fabric(void);

/** The queue of copies, and marks in that of operations: copies.cu. Local. */
cudaError_t lm_cuda_start_copies(void);
const lm_copies *lm_cuda_copies(void);
void lm_mark_cuda(int i);
double lm_between_cuda(int from, int to);

/** Graphs of what repeats: graph.cu. Local. */
bool lm_repeat_cuda(const void *key, size_t bytes);
bool lm_recorded_cuda(void);
/** Memory that graphs may use goes away. */
void lm_cuda_forget_graphs(void);
/** Is e the end of a recording, rather than of the job? */
bool lm_cuda_spoils_graph(cudaError_t e);

/* ---- the operations: those of kernels.h, a file each ---- */

lm_status lm_alloc_cuda(void **out, size_t bytes, const char *what, lm_error *err);
void lm_release_cuda(void *p);
void lm_zero_cuda(void *p, size_t bytes);
void lm_to_device_cuda(void *device, const void *host, size_t bytes);
void lm_to_host_cuda(void *host, const void *device, size_t bytes);

void lm_cast_cuda(void *y, lm_dtype to, const void *x, lm_dtype from, size_t n);

void lm_embedding_fwd_cuda(lm_dtype t, void *y, const int32_t *token, const void *wte, const void *wpe, int B, int T,
                           int C);
void lm_embedding_bwd_cuda(lm_dtype t, float *dwte, float *dwpe, const void *dy, const int32_t *token, int B, int T,
                           int C);

void lm_layernorm_fwd_cuda(lm_dtype t, void *y, float *mean, float *rstd, void *sum, const void *x, const void *branch,
                           const void *gain, const void *bias, size_t rows, int C, float eps);
void lm_layernorm_bwd_cuda(lm_dtype t, void *dx, float *dgain, float *dbias, const void *dy, const void *x,
                           const float *mean, const float *rstd, const void *gain, size_t rows, int C);

void lm_linear_fwd_cuda(lm_dtype t, void *y, const void *x, const void *w, const void *bias, size_t M, int N, int K);
void lm_linear_bwd_input_cuda(lm_dtype t, void *dx, const void *dy, const void *w, size_t M, int N, int K);
void lm_linear_bwd_weight_cuda(lm_dtype t, bool add, float *dw, float *dbias, const void *dy, const void *x, size_t M,
                               int N, int K);

bool lm_linear_gelu_fwd_cuda(lm_dtype t, void *y, void *z, const void *x, const void *w, const void *bias, size_t M,
                             int N, int K);
bool lm_linear_gelu_bwd_cuda(lm_dtype t, void *dz, const void *dy, const void *w, const void *z, size_t M, int N,
                             int K);

void lm_gelu_fwd_cuda(lm_dtype t, void *y, const void *x, size_t n);
void lm_gelu_bwd_cuda(lm_dtype t, void *dx, const void *dy, const void *x, size_t n);

void lm_rmsnorm_fwd_cuda(lm_dtype t, void *y, float *rstd, void *sum, const void *x, const void *branch,
                         const void *gain, size_t rows, int C, float eps);
void lm_rmsnorm_bwd_cuda(lm_dtype t, void *dx, float *dgain, const void *dy, const void *x, const float *rstd,
                         const void *gain, size_t rows, int C);
void lm_qk_norm_fwd_cuda(lm_dtype t, void *y, float *rstd, const void *x, const void *q_gain, const void *k_gain,
                         size_t rows, int H, int H_kv, int D, float eps);
void lm_qk_norm_bwd_cuda(lm_dtype t, void *dqkv, float *dq_gain, float *dk_gain, const void *x, const float *rstd,
                         const void *q_gain, const void *k_gain, size_t rows, int H, int H_kv, int D);

void lm_rope_cuda(lm_dtype t, void *qkv, const float *angles, int first, bool inverse, int B, int T, int H, int H_kv,
                  int D);

void lm_swiglu_fwd_cuda(lm_dtype t, void *y, const void *x, size_t rows, int F);
void lm_swiglu_bwd_cuda(lm_dtype t, void *dx, const void *dy, const void *x, size_t rows, int F);

void lm_dropout_cuda(lm_dtype t, void *y, const void *x, const lm_dropout *how, int B, int T, int C);

void lm_attention_fwd_cuda(lm_dtype t, void *y, float *lse, const void *qkv, const lm_attention *a);
void lm_attention_bwd_cuda(lm_dtype t, void *dqkv, const void *dy, const void *y, const float *lse, const void *qkv,
                           const lm_attention *a);

void lm_cache_store_cuda(lm_dtype t, const lm_cache *c, const void *qkv, int T);
void lm_attention_next_cuda(lm_dtype t, void *y, const void *q, const lm_cache *c);

void lm_cross_entropy_cuda(lm_dtype t, float *loss, void *z, const int32_t *target, const lm_objective *objective,
                           size_t rows, int V, int Vp, float scale);

void lm_sum_cuda(double *sum, const float *x, size_t n);
void lm_sum_squares_cuda(double *sum, const float *x, size_t n);
void lm_scale_cuda(float *x, float a, size_t n);
void lm_add_cuda(float *x, const float *y, size_t n);
void lm_adamw_cuda(lm_dtype t, float *w, float *m, float *v, const float *g, void *w16, size_t n,
                   const lm_adamw_config *cfg, float lr, float scale, int64_t step);
void lm_sgd_cuda(lm_dtype t, float *w, float *m, const float *g, void *w16, size_t n, const lm_sgd_config *cfg,
                 float lr, float scale);
void lm_adamw_all_cuda(lm_dtype t, const lm_slices *s, const float *g, const lm_adamw_config *cfg, float lr,
                       float scale, int64_t step);
void lm_sgd_all_cuda(lm_dtype t, const lm_slices *s, const float *g, const lm_sgd_config *cfg, float lr, float scale);
void lm_sum_squares_all_cuda(double *sums, const lm_slices *s, const float *g);

/** Start cuBLASLt. Local. LM_EINVAL, LM_ENOMEM. */
lm_status lm_cuda_linear_start(lm_error *err);

#endif
