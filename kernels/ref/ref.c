/* kernels/ref/ref.c - the reference backend: the definition of every operation. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels/ref/ref.h"

const lm_kernels lm_kernels_ref = {
    .name = "ref",
    .isa = "C",
    .alloc = lm_alloc_ref,
    .release = lm_release_ref,
    .zero = lm_zero_ref,
    .to_device = lm_copy_ref,
    .to_host = lm_copy_ref,
    .cast = lm_cast_ref,
    .embedding_fwd = lm_embedding_fwd_ref,
    .embedding_bwd = lm_embedding_bwd_ref,
    .layernorm_fwd = lm_layernorm_fwd_ref,
    .layernorm_bwd = lm_layernorm_bwd_ref,
    .linear_fwd = lm_linear_fwd_ref,
    .linear_bwd_input = lm_linear_bwd_input_ref,
    .linear_bwd_weight = lm_linear_bwd_weight_ref,
    .gelu_fwd = lm_gelu_fwd_ref,
    .gelu_bwd = lm_gelu_bwd_ref,
    .attention_fwd = lm_attention_fwd_ref,
    .attention_bwd = lm_attention_bwd_ref,
    .cross_entropy = lm_cross_entropy_ref,
    .sum_squares = lm_sum_squares_ref,
    .scale = lm_scale_ref,
    .adamw = lm_adamw_ref,
};
