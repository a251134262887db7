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
  float *data;      /* [own_elements] of the table, on the device: a parameter's at its own_at */
} lm_moment;
enum { LM_MOMENTS = 2 /* at most */ };

typedef struct lm_optimizer lm_optimizer; /* opaque: moments, and the f32 master weights where the weights are 16-bit */

/** Make an optimizer for what this rank owns of a table, moments zero. Local.
 *  @param table   kept, and cut up by now: which elements are parameters, which of them this rank updates, and which
 * are decayed
 *  @param weights kept: [elements] of the compute type on k's device, what is updated
 *  @param compute LM_F32: the weights are their own masters; LM_BF16, LM_F16: f32 masters are kept beside them
 *  @param cfg     copied; ranges as in kernels.h
 *  @return LM_OK, LM_ENOMEM */
lm_status lm_optimizer_new(lm_optimizer **out, const lm_param_table *table, void *weights, lm_dtype compute,
                           const lm_kernels *k, const lm_optimizer_config *cfg, lm_error *err) LM_NODISCARD;
/** What lm_optimizer_new() asks the backend for. Local. */
size_t lm_optimizer_bytes(const lm_param_table *table, lm_dtype compute, const lm_optimizer_config *cfg);
/** And, besides that, where its memory is a device's. Local. */
size_t lm_optimizer_list_bytes(const lm_param_table *table);
void lm_optimizer_free(lm_optimizer *opt);

/** The masters, on the device: [own_elements] f32, a parameter's at its own_at. In f32 they are the weights themselves,
 * [elements] of the flat space. Local. */
float *lm_optimizer_master(lm_optimizer *opt);

/** Are the master weights a block of their own, beside 16-bit ones? Local. */
bool lm_optimizer_has_master(const lm_optimizer *opt);

/** The moments: AdamW has two, SGD one, SGD without momentum none. Local. @return how many */
int lm_optimizer_moments(const lm_optimizer *opt, lm_moment out[LM_MOMENTS]);

/** Make the weights that this rank owns from its masters. Local. After masters were set: a fresh start, a resume. */
void lm_optimizer_publish(lm_optimizer *opt);

/** As if no update had been made: the moments are 0. Local. The weights and masters are the caller's. */
void lm_optimizer_forget(lm_optimizer *opt);

/** One step with the gradient scale * g. Local; cannot fail. Formulas: kernels.h, adamw and sgd. Parameters whose row
 *  says so are decayed, no others.
 *  @param g     f32 on the device: a parameter's owned elements at its gradient_at
 *  @param lr    learning rate of this step
 *  @param step  >= 1, the number of this applied update */
void lm_optimizer_step(lm_optimizer *opt, const float *g, float lr, float scale, int64_t step);

/** What a gradient of this norm is multiplied by, so that its norm is at most `most`. Local. @param most  0: any */
double lm_clip_factor(double norm, double most);

#endif
