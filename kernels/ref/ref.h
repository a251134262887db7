/* kernels/ref/ref.h - what the files of the reference backend share. Formulas and shapes are in kernels.h. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_KERNELS_REF_REF_H
#define LM_KERNELS_REF_REF_H

#include "kernels/kernels.h"

/* Element i of a tensor stored as t. Everything between a load and a store is in double. */
static inline double lm_ref_load(lm_dtype t, const void *p, size_t i)
{
  LM_ASSERT(t == LM_F32 || t == LM_BF16 || t == LM_F16);
  return t == LM_F32 ? ((const float *)p)[i] : lm_half_to_f32(t, ((const uint16_t *)p)[i]);
}

static inline void lm_ref_store(lm_dtype t, void *p, size_t i, double value)
{
  LM_ASSERT(t == LM_F32 || t == LM_BF16 || t == LM_F16);
  if (t == LM_F32)
    ((float *)p)[i] = (float)value;
  else
    ((uint16_t *)p)[i] = lm_half_from_f32(t, (float)value);
}

lm_status lm_alloc_ref(void **out, size_t bytes, const char *what, lm_error *err);
void lm_release_ref(void *p);
void lm_zero_ref(void *p, size_t bytes);
void lm_copy_ref(void *to, const void *from, size_t bytes);
void lm_cast_ref(void *y, lm_dtype to, const void *x, lm_dtype from, size_t n);

void lm_embedding_fwd_ref(lm_dtype t, void *y, const int32_t *token, const void *wte, const void *wpe, int B, int T,
                          int C);
void lm_embedding_bwd_ref(lm_dtype t, float *dwte, float *dwpe, const void *dy, const int32_t *token, int B, int T,
                          int C);

void lm_layernorm_fwd_ref(lm_dtype t, void *y, float *mean, float *rstd, void *sum, const void *x, const void *branch,
                          const void *gain, const void *bias, size_t rows, int C, float eps);
void lm_layernorm_bwd_ref(lm_dtype t, void *dx, float *dgain, float *dbias, const void *dy, const void *x,
                          const float *mean, const float *rstd, const void *gain, size_t rows, int C);

void lm_linear_fwd_ref(lm_dtype t, void *y, const void *x, const void *w, const void *bias, size_t M, int N, int K);
void lm_linear_bwd_input_ref(lm_dtype t, void *dx, const void *dy, const void *w, size_t M, int N, int K);
void lm_linear_bwd_weight_ref(lm_dtype t, bool add, float *dw, float *dbias, const void *dy, const void *x, size_t M,
                              int N, int K);

void lm_gelu_fwd_ref(lm_dtype t, void *y, const void *x, size_t n);
void lm_gelu_bwd_ref(lm_dtype t, void *dx, const void *dy, const void *x, size_t n);

void lm_rmsnorm_fwd_ref(lm_dtype t, void *y, float *rstd, void *sum, const void *x, const void *branch,
                        const void *gain, size_t rows, int C, float eps);
void lm_rmsnorm_bwd_ref(lm_dtype t, void *dx, float *dgain, const void *dy, const void *x, const float *rstd,
                        const void *gain, size_t rows, int C);
void lm_qk_norm_fwd_ref(lm_dtype t, void *y, float *rstd, const void *x, const void *q_gain, const void *k_gain,
                        size_t rows, int H, int H_kv, int D, float eps);
void lm_qk_norm_bwd_ref(lm_dtype t, void *dqkv, float *dq_gain, float *dk_gain, const void *x, const float *rstd,
                        const void *q_gain, const void *k_gain, size_t rows, int H, int H_kv, int D);

void lm_rope_ref(lm_dtype t, void *qkv, const float *angles, int first, bool inverse, int B, int T, int H, int H_kv,
                 int D);

void lm_swiglu_fwd_ref(lm_dtype t, void *y, const void *x, size_t rows, int F);
void lm_swiglu_bwd_ref(lm_dtype t, void *dx, const void *dy, const void *x, size_t rows, int F);

/* 0 where the element is taken out, else 1 / (1 - rate). */
double lm_dropout_factor_ref(const lm_dropout *how, size_t b, size_t part, size_t row, size_t element);
void lm_dropout_ref(lm_dtype t, void *y, const void *x, const lm_dropout *how, int B, int T, int C);

void lm_attention_fwd_ref(lm_dtype t, void *y, float *lse, const void *qkv, const lm_attention *a);
void lm_attention_bwd_ref(lm_dtype t, void *dqkv, const void *dy, const void *y, const float *lse, const void *qkv,
                          const lm_attention *a);

void lm_cache_store_ref(lm_dtype t, const lm_cache *c, const void *qkv, int T);
void lm_attention_next_ref(lm_dtype t, void *y, const void *q, const lm_cache *c);

void lm_cross_entropy_ref(lm_dtype t, float *loss, void *z, const int32_t *target, const lm_objective *objective,
                          size_t rows, int V, int Vp, float scale);

void lm_sum_ref(double *sum, const float *x, size_t n);
void lm_sum_squares_ref(double *sum, const float *x, size_t n);
void lm_scale_ref(float *x, float a, size_t n);
void lm_add_ref(float *x, const float *y, size_t n);
void lm_adamw_ref(lm_dtype t, float *w, float *m, float *v, const float *g, void *w16, size_t n,
                  const lm_adamw_config *cfg, float lr, float scale, int64_t step);
void lm_sgd_ref(lm_dtype t, float *w, float *m, const float *g, void *w16, size_t n, const lm_sgd_config *cfg, float lr,
                float scale);

#endif
