/* kernels/cpu/loop_files.h - what each file of loops gives to its level's table, loops.c. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_KERNELS_CPU_LOOP_FILES_H
#define LM_KERNELS_CPU_LOOP_FILES_H

#include "kernels/cpu/level.h"
#include "kernels/kernels.h"

/* attention.c */
void LM_LEVEL(lm_attention_fwd)(lm_dtype t, void *y, float *lse, const void *qkv, const lm_attention *a);
void LM_LEVEL(lm_attention_bwd)(lm_dtype t, void *dqkv, const void *dy, const void *y, const float *lse,
                                const void *qkv, const lm_attention *a);

/* cache.c */
void LM_LEVEL(lm_cache_store)(lm_dtype t, const lm_cache *c, const void *qkv, int T);
void LM_LEVEL(lm_attention_next)(lm_dtype t, void *y, const void *q, const lm_cache *c);

/* few_rows.c */
void LM_LEVEL(lm_few_rows)(lm_dtype t, void *y, const void *x, const void *w, const void *bias, size_t M, size_t N,
                           size_t K);

/* column_sums.c */
void LM_LEVEL(lm_column_sums)(lm_dtype t, float *sum, const void *x, size_t rows, int C);

/* widen.c */
void LM_LEVEL(lm_widen)(lm_dtype t, float *y, const uint16_t *x, size_t x_row, size_t rows, size_t n);
void LM_LEVEL(lm_narrow)(lm_dtype t, uint16_t *y, size_t y_row, const float *x, const uint16_t *bias, size_t rows,
                         size_t n);

/* cast.c */
void LM_LEVEL(lm_cast)(void *y, lm_dtype to, const void *x, lm_dtype from, size_t n);

/* embedding.c */
void LM_LEVEL(lm_embedding_fwd)(lm_dtype t, void *y, const int32_t *token, const void *wte, const void *wpe, int B,
                                int T, int C);
void LM_LEVEL(lm_embedding_bwd)(lm_dtype t, float *dwte, float *dwpe, const void *dy, const int32_t *token, int B,
                                int T, int C);

/* layernorm.c */
void LM_LEVEL(lm_layernorm_fwd)(lm_dtype t, void *y, float *mean, float *rstd, void *sum, const void *x,
                                const void *branch, const void *gain, const void *bias, size_t rows, int C, float eps);
void LM_LEVEL(lm_layernorm_bwd)(lm_dtype t, void *dx, float *dgain, float *dbias, const void *dy, const void *x,
                                const float *mean, const float *rstd, const void *gain, size_t rows, int C);

/* rmsnorm.c */
void LM_LEVEL(lm_rmsnorm_fwd)(lm_dtype t, void *y, float *rstd, void *sum, const void *x, const void *branch,
                              const void *gain, size_t rows, int C, float eps);
void LM_LEVEL(lm_rmsnorm_bwd)(lm_dtype t, void *dx, float *dgain, const void *dy, const void *x, const float *rstd,
                              const void *gain, size_t rows, int C);
void LM_LEVEL(lm_qk_norm_fwd)(lm_dtype t, void *y, float *rstd, const void *x, const void *q_gain, const void *k_gain,
                              size_t rows, int H, int H_kv, int D, float eps);
void LM_LEVEL(lm_qk_norm_bwd)(lm_dtype t, void *dqkv, float *dq_gain, float *dk_gain, const void *x, const float *rstd,
                              const void *q_gain, const void *k_gain, size_t rows, int H, int H_kv, int D);

/* rope.c */
void LM_LEVEL(lm_rope)(lm_dtype t, void *qkv, const float *angles, int first, bool inverse, int B, int T, int H,
                       int H_kv, int D);

/* swiglu.c */
void LM_LEVEL(lm_swiglu_fwd)(lm_dtype t, void *y, const void *x, size_t rows, int F);
void LM_LEVEL(lm_swiglu_bwd)(lm_dtype t, void *dx, const void *dy, const void *x, size_t rows, int F);

/* dropout.c */
void LM_LEVEL(lm_dropout)(lm_dtype t, void *y, const void *x, const lm_dropout *how, int B, int T, int C);

/* gelu.c */
void LM_LEVEL(lm_gelu_fwd)(lm_dtype t, void *y, const void *x, size_t n);
void LM_LEVEL(lm_gelu_bwd)(lm_dtype t, void *dx, const void *dy, const void *x, size_t n);

/* cross_entropy.c */
void LM_LEVEL(lm_cross_entropy)(lm_dtype t, float *loss, void *z, const int32_t *target, const lm_objective *objective,
                                size_t rows, int V, int Vp, float scale);

/* optimizer.c */
void LM_LEVEL(lm_sum)(double *sum, const float *x, size_t n);
void LM_LEVEL(lm_sum_squares)(double *sum, const float *x, size_t n);
void LM_LEVEL(lm_scale)(float *x, float a, size_t n);
void LM_LEVEL(lm_add)(float *x, const float *y, size_t n);
void LM_LEVEL(lm_adamw)(lm_dtype t, float *w, float *m, float *v, const float *g, void *w16, size_t n,
                        const lm_adamw_config *cfg, float lr, float scale, int64_t step);
void LM_LEVEL(lm_sgd)(lm_dtype t, float *w, float *m, const float *g, void *w16, size_t n, const lm_sgd_config *cfg,
                      float lr, float scale);

#endif
