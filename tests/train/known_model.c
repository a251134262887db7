/* tests/train/known_model.c - a model whose losses are known: known_model FILE. The letter b is predicted with a loss
 * of 2, the end of text with a loss of 3, whatever came before. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/log.h"
#include "base/memory.h"
#include "hdf5/state_file.h"
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { V = 257, C = 32, END = 256 };

/* All weights are 0, and so is all that reaches the last norm, but its bias is the first unit vector: the logits are
 * the first column of the head. They are logarithms of probabilities that add up to 1. */
static void fill(const lm_param *p, float *w)
{
  if (strcmp(p->name, "final_norm/bias") == 0) w[0] = 1;
  if (strcmp(p->name, "head/weight") != 0) return;
  for (int v = 0; v < V; v++) w[v * C] = (float)log((1 - exp(-2) - exp(-3)) / (V - 2));
  w['b' * C] = -2;
  w[END * C] = -3;
}

static lm_status write_model(const lm_comm *comm, const char *path, const lm_param_table *t, lm_error *err)
{
  const lm_state_how how = {0};
  lm_state_save *save;
  lm_state_slice *s;
  float *weights;
  LM_TRY(lm_alloc(&s, t->n, sizeof *s, "the slices", err));
  LM_TRY(lm_alloc(&weights, t->elements, sizeof *weights, "the weights", err));
  for (size_t i = 0; i < t->n; i++) {
    const lm_param *p = &t->params[i];
    s[i] = (lm_state_slice){.dtype = LM_F32,
                            .ndim = p->ndim,
                            .count = p->count,
                            .data = weights + p->offset,
                            .shape = {p->shape[0], p->shape[1]}};
    snprintf(s[i].name, sizeof s[i].name, "/model/%s", p->name);
    fill(p, weights + p->offset);
  }
  LM_TRY(lm_state_write_begin(&save, comm, path, s, t->n, &how, err));
  LM_TRY(lm_state_write_end(save, err));
  free(weights);
  free(s);
  return LM_OK;
}

int main(int argc, char **argv)
{
  const lm_model_config cfg = {.vocab_size = V, .n_layer = 1, .n_head = 1, .n_embd = C, .n_ctx = 1, .bias = true};
  lm_comm comm;
  lm_error err;
  lm_param_table t;
  lm_status s = lm_comm_world(&comm, &argc, &argv, &err);
  if (s == LM_OK) s = lm_param_table_new(&t, &cfg, &err);
  if (s == LM_OK) s = write_model(&comm, argv[1], &t, &err);
  if (s != LM_OK) lm_log_error(&err);
  if (s == LM_OK) lm_param_table_free(&t);
  lm_comm_end(&comm);
  return lm_exit_code(s);
}
