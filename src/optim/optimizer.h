/* src/optim/optimizer.h - summed gradients -> new parameters. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_OPTIM_OPTIMIZER_H
#define LM_OPTIM_OPTIMIZER_H

#include "base/param_table.h"
#include "kernels/kernels.h"

typedef enum lm_optimizer_kind { LM_OPTIMIZER_ADAMW, LM_OPTIMIZER_SGD } lm_optimizer_kind;

/** Which optimizer, and its constants. Plain data; the config of the other kind is not read. */
typedef struct lm_optimizer_config {
  lm_optimizer_kind kind;
  lm_adamw_config adamw;
  lm_sgd_config sgd;
} lm_optimizer_config;

/** What an optimizer remembers of past gradients, one of these for each of its moments. */
typedef struct lm_moment {
  const char *name; /* "exp_avg", "exp_avg_sq", "momentum": where it lies in a checkpoint */
  float *data;      /* [elements] of the flat parameter space, on the device */
} lm_moment;
enum { LM_MOMENTS = 2 /* at most */ };

typedef struct lm_optimizer lm_optimizer; /* opaque: moments, and the f32 master weights where the weights are 16-bit */

/** Make an optimizer for all parameters of a table, moments zero. Local.
 *  @param table   kept: which elements are parameters, and which of them are decayed
 *  @param weights kept: [elements] of the compute type on k's device, what is updated
 *  @param compute LM_F32: the weights are their own masters; LM_BF16, LM_F16: f32 masters are kept beside them
 *  @param cfg     copied; ranges as in kernels.h
 *  @return LM_OK, LM_ENOMEM */
lm_status lm_optimizer_new(lm_optimizer **out, const lm_param_table *table, void *weights, lm_dtype compute,
                           const lm_kernels *k, const lm_optimizer_config *cfg, lm_error *err) LM_NODISCARD;
void lm_optimizer_free(lm_optimizer *opt);

/** [elements] f32 of the flat parameter space, on the device. In f32 the masters are the weights themselves. Local. */
float *lm_optimizer_master(lm_optimizer *opt);

/** Are the master weights a block of their own, beside 16-bit ones? Local. */
bool lm_optimizer_has_master(const lm_optimizer *opt);

/** The moments: AdamW has two, SGD one, SGD without momentum none. Local. @return how many */
int lm_optimizer_moments(const lm_optimizer *opt, lm_moment out[LM_MOMENTS]);

/** Make the weights from the masters. Local. After masters were set: a fresh start, a resume. */
void lm_optimizer_publish(lm_optimizer *opt);

/** One step with the gradient scale * g. Local; cannot fail. Formulas: kernels.h, adamw and sgd. Parameters whose row
 *  says so are decayed, no others.
 *  @param g     [elements] f32 on the device
 *  @param lr    learning rate of this step
 *  @param step  >= 1, the number of this applied update */
void lm_optimizer_step(lm_optimizer *opt, const float *g, float lr, float scale, int64_t step);

#endif
