/* src/optim/adamw.h - summed gradients -> new parameters. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_OPTIM_ADAMW_H
#define LM_OPTIM_ADAMW_H

#include "model/model.h"

typedef struct lm_adamw lm_adamw; /* opaque: both moments, and the f32 master weights where the model's are 16-bit */

/** Make an optimizer for all parameters of a model, moments zero. Local.
 *  @param model kept: its weights are what is updated; its table says what is decayed
 *  @param cfg   copied; betas in [0, 1), eps > 0, decay >= 0
 *  @return LM_OK, LM_ENOMEM */
lm_status lm_adamw_new(lm_adamw **out, lm_model *model, const lm_kernels *k, lm_dtype compute,
                       const lm_adamw_config *cfg, lm_error *err) LM_NODISCARD;
void lm_adamw_free(lm_adamw *opt);

/** [elements] f32 of the flat parameter space, on the device. The master weights are the model's own where it is f32.
 */
float *lm_adamw_master(lm_adamw *opt);
float *lm_adamw_exp_avg(lm_adamw *opt);
float *lm_adamw_exp_avg_sq(lm_adamw *opt);

/** Are the master weights a block of their own, beside the model's 16-bit ones? Local. */
bool lm_adamw_has_master(const lm_adamw *opt);

/** Make the model's weights from the masters. Local. After masters were set: a fresh start, a resume. */
void lm_adamw_publish(lm_adamw *opt);

/** One step with the gradient `scale * lm_model_gradients()`. Local; cannot fail. Formula: kernels.h, adamw.
 *  @param lr    learning rate of this step
 *  @param step  >= 1, the number of this applied update */
void lm_adamw_step(lm_adamw *opt, float lr, float scale, int64_t step);

#endif
