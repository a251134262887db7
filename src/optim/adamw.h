/* src/optim/adamw.h - summed gradients -> new parameters. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_OPTIM_ADAMW_H
#define LM_OPTIM_ADAMW_H

#include "base/param_table.h"
#include "kernels/kernels.h"

typedef struct lm_adamw lm_adamw; /* opaque: both moments, and the f32 master weights where the weights are 16-bit */

/** Make an optimizer for all parameters of a table, moments zero. Local.
 *  @param table   kept: which elements are parameters, and which of them are decayed
 *  @param weights kept: [elements] of the compute type on k's device, what is updated
 *  @param compute LM_F32: the weights are their own masters; LM_BF16: f32 masters are kept beside them
 *  @param cfg     copied; betas in [0, 1), eps > 0, decay >= 0
 *  @return LM_OK, LM_ENOMEM */
lm_status lm_adamw_new(lm_adamw **out, const lm_param_table *table, void *weights, lm_dtype compute,
                       const lm_kernels *k, const lm_adamw_config *cfg, lm_error *err) LM_NODISCARD;
void lm_adamw_free(lm_adamw *opt);

/** [elements] f32 of the flat parameter space, on the device. In f32 the masters are the weights themselves.
 */
float *lm_adamw_master(lm_adamw *opt);
float *lm_adamw_exp_avg(lm_adamw *opt);
float *lm_adamw_exp_avg_sq(lm_adamw *opt);

/** Are the master weights a block of their own, beside 16-bit ones? Local. */
bool lm_adamw_has_master(const lm_adamw *opt);

/** Make the weights from the masters. Local. After masters were set: a fresh start, a resume. */
void lm_adamw_publish(lm_adamw *opt);

/** One step with the gradient scale * g. Local; cannot fail. Formula: kernels.h, adamw.
 *  @param g     [elements] f32 on the device
 *  @param lr    learning rate of this step
 *  @param step  >= 1, the number of this applied update */
void lm_adamw_step(lm_adamw *opt, const float *g, float lr, float scale, int64_t step);

#endif
