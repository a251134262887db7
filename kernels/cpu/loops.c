/* kernels/cpu/loops.c - one level's table of loops. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "kernels/cpu/loop_files.h"
#include "kernels/cpu/loops.h"

const lm_cpu_loops LM_LEVEL(lm_cpu_loops) = {
    .table =
        {
            .isa = LM_LEVEL_NAME,
            .cast = LM_LEVEL(lm_cast),
            .embedding_fwd = LM_LEVEL(lm_embedding_fwd),
            .embedding_bwd = LM_LEVEL(lm_embedding_bwd),
            .layernorm_fwd = LM_LEVEL(lm_layernorm_fwd),
            .layernorm_bwd = LM_LEVEL(lm_layernorm_bwd),
            .rmsnorm_fwd = LM_LEVEL(lm_rmsnorm_fwd),
            .rmsnorm_bwd = LM_LEVEL(lm_rmsnorm_bwd),
            .qk_norm_fwd = LM_LEVEL(lm_qk_norm_fwd),
            .qk_norm_bwd = LM_LEVEL(lm_qk_norm_bwd),
            .rope = LM_LEVEL(lm_rope),
            .swiglu_fwd = LM_LEVEL(lm_swiglu_fwd),
            .swiglu_bwd = LM_LEVEL(lm_swiglu_bwd),
            .dropout = LM_LEVEL(lm_dropout),
            .gelu_fwd = LM_LEVEL(lm_gelu_fwd),
            .gelu_bwd = LM_LEVEL(lm_gelu_bwd),
            .attention_fwd = LM_LEVEL(lm_attention_fwd),
            .attention_bwd = LM_LEVEL(lm_attention_bwd),
            .cache_store = LM_LEVEL(lm_cache_store),
            .attention_next = LM_LEVEL(lm_attention_next),
            .cross_entropy = LM_LEVEL(lm_cross_entropy),
            .sum = LM_LEVEL(lm_sum),
            .sum_squares = LM_LEVEL(lm_sum_squares),
            .scale = LM_LEVEL(lm_scale),
            .add = LM_LEVEL(lm_add),
            .adamw = LM_LEVEL(lm_adamw),
            .sgd = LM_LEVEL(lm_sgd),
        },
    .column_sums = LM_LEVEL(lm_column_sums),
    .widen = LM_LEVEL(lm_widen),
    .narrow = LM_LEVEL(lm_narrow),
    .few_rows = LM_LEVEL(lm_few_rows),
};
