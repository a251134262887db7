/* tests/model/fixture.h - models with known weights, and a measure of how far two tensors are apart. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TESTS_MODEL_FIXTURE_H
#define LM_TESTS_MODEL_FIXTURE_H

#include "model/model.h"

/** A model, or the end of the test. Its weights are 0. */
lm_model *fixture_model(const lm_model_config *cfg, const lm_kernels *k, lm_dtype compute, int max_B, bool training);

/** The small model of the tests: 257 tokens, 2 layers, 2 heads of 16 channels, 16 positions. */
lm_model_config fixture_config(bool tied, bool bias);

/** As small, with all that makes a Llama: four heads on two key/value heads, whose context was made longer. */
lm_model_config fixture_llama(void);

/** A model with fixture_weights(.., 1). */
lm_model *fixture_loaded(const lm_model_config *cfg, const lm_kernels *k, lm_dtype compute, int max_B, bool training);

/** Gradients of the reference's model m at weights w against differences of the loss along three vectors of random
 *  signs in each parameter: the largest |error| / |gradient|, and whose it is. Changes m's gradients. */
double fixture_finite_differences(lm_model *m, float *w, const float *g, const int32_t *tokens, const int32_t *targets,
                                  int B, int T, const lm_train_args *args, const char **name);

/** Weights that make every part matter: 0.02-normal matrices are too small to see attention. [elements], malloc'd. */
float *fixture_weights(const lm_param_table *t, uint64_t seed);

/** Copy [elements] weights to the model, in its compute type. */
void fixture_set(lm_model *m, const lm_kernels *k, const float *w);

/** The gradients, on the host. [elements], malloc'd. */
float *fixture_gradients(lm_model *m, const lm_kernels *k);

/** n ids in [0, V); where ignore is set, about one in five is -1. */
void fixture_tokens(int32_t *tokens, size_t n, int V, uint64_t seed, bool ignore);

/** How far a is from b: max |a - b| / max |b|, or |a - b| / |b| in the Euclidean norm; infinite where an element is not
 *  finite. */
typedef double fixture_metric(const float *a, const float *b, size_t n);
fixture_metric fixture_distance, fixture_distance_l2;

/** The largest distance of any one parameter, padding included, and which it was. */
double fixture_worst(const lm_param_table *t, fixture_metric *metric, const float *a, const float *b,
                     const char **name);

#endif
