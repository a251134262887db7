/* src/model/model.c - batches -> loss and gradients. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/log.h"
#include "base/memory.h"
#include "model/parts.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* Everything about a model but its three blocks. */
static lm_status describe(lm_model *m, lm_error *err)
{
  LM_TRY(lm_param_table_new(&m->table, &m->cfg, err));
  m->cfg = lm_model_config_resolved(&m->cfg);
  m->end_of_text = -1;
  if (m->max_B < 1 || m->max_B > INT_MAX / m->cfg.n_ctx)
    return lm_fail(err, LM_EINVAL, "a micro-batch of %d sequences of %lld tokens; want 1 to %lld sequences", m->max_B,
                   (long long)m->cfg.n_ctx, INT_MAX / (long long)m->cfg.n_ctx);
  m->V = (int)m->cfg.vocab_size;
  m->Vp = (int)lm_model_padded_vocab(&m->cfg);
  m->L = (int)m->cfg.n_layer;
  m->H = (int)m->cfg.n_head;
  m->H_kv = (int)m->cfg.n_kv_head;
  m->C = (int)m->cfg.n_embd;
  m->D = m->C / m->H;
  m->F = (int)m->cfg.n_ff;
  /* C rows of logits are as large as the head's matrix: a chunk then reads and writes as much for the one as for the
   * other. */
  size_t rows = (size_t)m->max_B * (size_t)m->cfg.n_ctx, chunk = m->C > 64 ? (size_t)m->C : 64;
  m->head_rows = rows < chunk ? rows : chunk;
  LM_TRY(lm_alloc(&m->layers, (size_t)m->L, sizeof *m->layers, "the layers of the model", err));
  lm_model_connect(m);
  return LM_OK;
}

static lm_model_bytes measure(lm_model *m)
{
  return (lm_model_bytes){.weights = (m->table.elements + m->table.slack) * lm_dtype_size(m->t),
                          .gradients =
                              m->training ? (m->table.gradient_elements + m->table.slack) * sizeof *m->gradients : 0,
                          .activations = lm_model_place(m)};
}

static lm_status alloc_block(const lm_model *m, void *out, size_t bytes, const char *of, lm_error *err)
{
  char what[160];
  snprintf(what, sizeof what, "the %s of %zu parameters and %d x %lld tokens in %s", of, m->table.parameters, m->max_B,
           (long long)m->cfg.n_ctx, lm_dtype_name(m->t));
  return m->k->alloc((void **)out, bytes, what, err);
}

static lm_status put_angles(lm_model *m, lm_error *err)
{
  float *angles;
  size_t n = (size_t)m->cfg.n_ctx * (size_t)m->D;
  if (m->work.angles == NULL) return LM_OK;
  LM_TRY(lm_alloc(&angles, n, sizeof *angles, "the angles of the positions", err));
  lm_model_angles(&m->cfg, angles);
  m->k->to_device(m->work.angles, angles, n * sizeof *angles);
  free(angles);
  return LM_OK;
}

static lm_status make(lm_model *m, lm_error *err)
{
  lm_model_bytes bytes = measure(m);
  LM_TRY(alloc_block(m, &m->weights, bytes.weights, "weights", err));
  if (m->training) LM_TRY(alloc_block(m, &m->gradients, bytes.gradients, "gradients", err));
  LM_TRY(alloc_block(m, &m->activations, bytes.activations, "activations", err));
  lm_model_place(m);
  size_t rows = (size_t)m->max_B * (size_t)m->cfg.n_ctx;
  LM_TRY(lm_alloc(&m->host_start, rows, sizeof *m->host_start, "where documents start", err));
  return put_angles(m, err);
}

/* How a model's parameters are shared. */
struct share {
  lm_sharding sharding;
  int rank, size;
};

static lm_status new_model(lm_model **out, const lm_model *like, const struct share *share, lm_error *err)
{
  LM_ASSERT(like->t == LM_F32 || like->t == LM_BF16 || like->t == LM_F16);
  LM_TRY(lm_alloc(out, 1, sizeof **out, "a model", err));
  **out = *like;
  lm_status s = describe(*out, err);
  if (s == LM_OK) lm_param_table_shard(&(*out)->table, share->sharding, share->rank, share->size);
  if (s == LM_OK) s = make(*out, err);
  if (s != LM_OK) {
    lm_model_free(*out);
    *out = NULL;
  }
  return s;
}

lm_status lm_model_new(lm_model **out, const lm_model_config *cfg, const lm_kernels *k, lm_dtype compute, int max_B,
                       bool training, lm_error *err)
{
  lm_model like = {.cfg = *cfg, .k = k, .t = compute, .max_B = max_B, .training = training};
  return new_model(out, &like, &(struct share){LM_SHARD_NOTHING, 0, 1}, err);
}

lm_status lm_model_new_shared(lm_model **out, const lm_model_config *cfg, const lm_kernels *k, lm_dtype compute,
                              int max_B, lm_sharding sharding, int rank, int size, lm_error *err)
{
  lm_model like = {.cfg = *cfg, .k = k, .t = compute, .max_B = max_B, .training = true};
  return new_model(out, &like, &(struct share){sharding, rank, size}, err);
}

void lm_model_free(lm_model *m)
{
  if (m == NULL) return;
  m->k->release(m->weights);
  m->k->release(m->gradients);
  m->k->release(m->activations);
  free(m->host_start);
  free(m->layers);
  lm_param_table_free(&m->table);
  free(m);
}

lm_status lm_model_measure(lm_model_bytes *out, const lm_model_config *cfg, lm_dtype compute, int max_B, bool training,
                           lm_error *err)
{
  lm_model m = {.cfg = *cfg, .t = compute, .max_B = max_B, .training = training};
  lm_status s = describe(&m, err);
  *out = s == LM_OK ? measure(&m) : (lm_model_bytes){0};
  free(m.layers);
  lm_param_table_free(&m.table);
  return s;
}

const lm_model_config *lm_model_config_of(const lm_model *m)
{
  return &m->cfg;
}

const lm_param_table *lm_model_params(const lm_model *m)
{
  return &m->table;
}

lm_dtype lm_model_compute(const lm_model *m)
{
  return m->t;
}

const lm_kernels *lm_model_kernels(const lm_model *m)
{
  return m->k;
}

void *lm_model_weights(lm_model *m)
{
  return m->weights;
}

float *lm_model_gradients(lm_model *m)
{
  return m->gradients;
}

/* A document starts behind an end of text, and at the start of a sequence. */
static void put_starts(lm_model *m, const int32_t *tokens, int B, int T)
{
  size_t rows = (size_t)B * (size_t)T;
  if (m->end_of_text < 0) return;
  for (size_t i = 0; i < rows; i++) {
    int32_t t = (int32_t)(i % (size_t)T);
    m->host_start[i] = t == 0 ? 0 : tokens[i - 1] == m->end_of_text ? t : m->host_start[i - 1];
  }
  m->k->to_device(m->work.start, m->host_start, rows * sizeof *m->host_start);
}

/* An id outside the vocabulary would read, and write, someone else's memory. */
static void put_tokens(lm_model *m, const int32_t *tokens, int B, int T)
{
  LM_ASSERT(B >= 1 && B <= m->max_B && T >= 1 && T <= m->cfg.n_ctx);
  size_t rows = (size_t)B * (size_t)T;
  for (size_t i = 0; i < rows; i++) LM_ASSERT(tokens[i] >= 0 && tokens[i] < m->V);
  m->k->to_device(m->work.tokens, tokens, rows * sizeof *tokens);
  put_starts(m, tokens, B, T);
}

static uint64_t put_targets(lm_model *m, const int32_t *targets, size_t rows)
{
  uint64_t count = 0;
  for (size_t i = 0; i < rows; i++) {
    LM_ASSERT(targets[i] >= -1 && targets[i] < m->V);
    count += targets[i] >= 0;
  }
  m->k->to_device(m->work.targets, targets, rows * sizeof *targets);
  return count;
}

/* Operations whose arguments are the same in every pass of the same key. */
static void pass(lm_model *m, int B, int T, float scale)
{
  lm_model_forward(m, B, T);
  lm_model_head(m, (size_t)B * (size_t)T, scale);
  if (scale != 0) lm_model_backward(m, B, T);
}

/* What differs from one pass to the next, so that it cannot be repeated; NULL: nothing. */
static const char *varies(const lm_model *m)
{
  if (m->args == NULL) return "an evaluation";
  if (m->dropout.rate > 0) return "dropout takes out others each time";
  return m->args->ready != NULL ? "gradients are sent while others are computed" : NULL;
}

static void repeat_pass(lm_model *m, int B, int T, float scale)
{
  const struct { /* without padding: its bytes are compared */
    const void *weights;
    int64_t B, T;
    float scale, z_loss, label_smoothing, fresh;
  } key = {m->weights, B, T, scale, m->objective.z_loss, m->objective.label_smoothing, m->args->fresh};
  if (m->k->repeat(&key, sizeof key)) return;
  do pass(m, B, T, scale);
  while (!m->k->recorded());
}

static void run_pass(lm_model *m, int B, int T, float scale)
{
  const char *why = m->k->repeat == NULL ? NULL : varies(m);
  if (m->k->repeat != NULL && why == NULL) {
    repeat_pass(m, B, T, scale);
    return;
  }
  if (why != NULL && m->args != NULL && !m->told) {
    lm_verbose("micro-batches are queued anew each time: %s", why);
    m->told = true;
  }
  pass(m, B, T, scale);
}

/* @param sum  on the device: where the sum of the losses goes @return how many targets count */
static uint64_t run(lm_model *m, const int32_t *tokens, const int32_t *targets, int B, int T, float scale, double *sum)
{
  size_t rows = (size_t)B * (size_t)T;
  put_tokens(m, tokens, B, T);
  uint64_t count = put_targets(m, targets, rows);
  run_pass(m, B, T, scale);
  m->k->sum(sum, m->work.loss, rows);
  return count;
}

void lm_model_mask_documents(lm_model *m, int32_t end_of_text)
{
  LM_ASSERT(end_of_text >= -1 && end_of_text < m->V);
  m->end_of_text = end_of_text;
}

uint64_t lm_model_train_begin(lm_model *m, const int32_t *tokens, const int32_t *targets, int B, int T,
                              const lm_train_args *args)
{
  static const lm_train_args plain = {.loss_scale = 1};
  if (args == NULL) args = &plain;
  LM_ASSERT(m->training && args->loss_scale > 0 && m->begun < LM_MODEL_BEGUN);
  m->dropout = (lm_dropout){.rate = (float)m->cfg.dropout, .seed = args->seed, .sample = args->sample};
  m->objective = args->objective;
  m->args = args;
  uint64_t count = run(m, tokens, targets, B, T, args->loss_scale, m->work.sums + m->begun++);
  m->dropout = (lm_dropout){0}; /* evaluation and generation use all of the model */
  m->objective = (lm_objective){0};
  m->args = NULL;
  return count;
}

int lm_model_train_end(lm_model *m, double *sums)
{
  int n = m->begun;
  m->k->to_host(sums, m->work.sums, (size_t)n * sizeof *sums);
  m->begun = 0;
  return n;
}

lm_loss lm_model_train(lm_model *m, const int32_t *tokens, const int32_t *targets, int B, int T,
                       const lm_train_args *args)
{
  lm_loss loss;
  LM_ASSERT(m->begun == 0);
  loss.count = lm_model_train_begin(m, tokens, targets, B, T, args);
  lm_model_train_end(m, &loss.sum);
  return loss;
}

lm_loss lm_model_eval(lm_model *m, const int32_t *tokens, const int32_t *targets, int B, int T)
{
  lm_loss loss;
  double *sum = m->work.sums + LM_MODEL_BEGUN;
  loss.count = run(m, tokens, targets, B, T, 0, sum);
  m->k->to_host(&loss.sum, sum, sizeof loss.sum);
  return loss;
}

void lm_model_next(lm_model *m, const int32_t *tokens, int T, float *logits)
{
  put_tokens(m, tokens, 1, T);
  lm_model_forward(m, 1, T);
  lm_model_head_row(m, (size_t)T - 1, logits);
}
