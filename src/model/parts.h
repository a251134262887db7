/* src/model/parts.h - what a model is made of; for the files of src/model alone. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_MODEL_PARTS_H
#define LM_MODEL_PARTS_H

#include "model/model.h"

/* A parameter by its offset in the flat space. */
#define LM_ABSENT SIZE_MAX

/** y = x w^T + bias. */
typedef struct lm_linear {
  size_t weight, bias; /* [out,in], [out] or absent */
  int out, in;
} lm_linear;

/** LayerNorm or RMSNorm, and what its backward needs. */
typedef struct lm_norm {
  size_t weight, bias; /* [C], [C] or absent */
  void *in, *out;      /* [B,T,C]: what is normed, which is also the residual stream here; the result */
  float *mean, *rstd;  /* [B,T] */
} lm_norm;

/** One block: x += out(attention(qkv(norm(x)))), x += down(activation(up(norm(x)))). */
typedef struct lm_layer {
  lm_norm attention_norm;
  lm_linear qkv;
  size_t q_norm, k_norm; /* [D] or absent */
  void *qkv_out;         /* [B,T,(H + 2 H_kv) D] */
  void *heads;       /* the same with queries and keys normed and turned: what attention reads. qkv_out where nothing
                        of it is needed again */
  float *heads_rstd; /* [B,T,H + H_kv]; NULL without norms of heads */
  void *mixed;       /* [B,T,C]: what attention gives */
  float *lse;        /* [B,H,T] */
  lm_linear out;
  lm_norm mlp_norm;
  lm_linear up;             /* F, or 2 F with SwiGLU */
  void *up_out, *activated; /* [B,T,F or 2 F], [B,T,F]: before and after the activation; backward reuses the latter */
  lm_linear down;
} lm_layer;

/** Memory that is shared by all layers. Rows are B T; t is the compute type. */
typedef struct lm_workspace {
  int32_t *tokens, *targets; /* [B,T] */
  int32_t *start;            /* [B,T]: the first token that each one sees */
  float *angles;             /* [n_ctx,D]: cosines and sines of the rotary positions; NULL without */
  float *loss;               /* [B,T] */
  double *sums;              /* [LM_MODEL_BEGUN]: of the losses of micro-batches; one more for an evaluation's */
  void *narrow;              /* [B,T,C] t: a branch on the way to the residual stream; a gradient on the way back */
  void *logits;              /* [head_rows,Vp] t, and their gradient */
  float *next;               /* [Vp]: the logits that lm_model_next() gives */
  void *dresidual;           /* [B,T,C] t: gradient of the residual stream; training only */
  void *wide;                /* [B,T,..] t: gradient inside a branch, of qkv or of gate and up; training only */
} lm_workspace;

/** How forward reads sequences that grow (generation.c). */
typedef struct lm_growth {
  lm_cache cache;          /* keys and values of layer 0 */
  size_t layer_bytes;      /* from a layer's keys to the next one's, as with values */
  const int32_t *position; /* [B], on the host: of each row */
  bool one_each;           /* rows are a token each of B sequences; else they begin one sequence */
} lm_growth;

struct lm_model {
  lm_model_config cfg;
  const lm_kernels *k;
  lm_dtype t;
  int max_B;
  bool training;
  int V, Vp, L, H, H_kv, D, C, F;
  int32_t end_of_text;     /* -1: documents are not told apart */
  lm_dropout dropout;      /* of this pass; rate 0: none */
  lm_objective objective;  /* of this pass */
  const lm_growth *growth; /* of this pass; NULL where nothing is kept of it */
  lm_param_table table;

  size_t token_embedding, position_embedding;
  lm_layer *layers; /* [L]; without training they share one layer's activations */
  lm_norm final_norm;
  lm_linear head; /* [Vp,C]: with the rows that pad the vocabulary, which are 0 */
  size_t head_rows;
  lm_workspace work;

  const lm_train_args *args; /* of the micro-batch under way; NULL: none */
  bool told;                 /* why micro-batches are not repeated as they were recorded */
  int begun;                 /* micro-batches whose losses have not been asked for */

  char *weights;       /* the three blocks, on the device */
  float *gradients;    /* NULL without training */
  char *activations;   /* what layers, final_norm and work point into */
  int32_t *host_start; /* [B,T] */
};

/** Look up every part's parameters in the table. Local. */
void lm_model_connect(lm_model *m);

/** Place layers, final_norm and work into the block of activations; where that is NULL, only measure it. Local.
 *  @return its bytes */
size_t lm_model_place(lm_model *m);

/** Cosines and sines of every position: angles [n_ctx,D] as kernels.h wants them, on the host. Local. */
void lm_model_angles(const lm_model_config *cfg, float *angles);

/** From tokens to the final norm: work.tokens [B,T] -> final_norm.out [B,T,C]. Local. */
void lm_model_forward(lm_model *m, int B, int T);

/** Back again: work.narrow [B,T,C], the gradient of final_norm.out, -> gradients of all parameters but the head. Local.
 */
void lm_model_backward(lm_model *m, int B, int T);

/** The head and the loss of the rows [0, rows), a chunk at a time: -> work.loss [rows]; where scale is not 0
 * also -> work.narrow [rows,C] and the head's gradient, of scale times the loss. Local. */
void lm_model_head(lm_model *m, size_t rows, float scale);

/** The logits of one row of final_norm.out -> logits [V], on the host. Local. */
void lm_model_head_row(lm_model *m, size_t row, float *logits);

/** Logits [Vp] of the compute type, z -> logits [V], on the host. Local. */
void lm_model_logits(lm_model *m, const void *z, float *logits);

/** y = x w^T + bias.  x [rows,in], y [rows,out]. Local. */
void lm_linear_fwd(lm_model *m, const lm_linear *l, void *y, const void *x, size_t rows);
/** dw = dy^T x, dbias = sum dy, dx = dy w; with `add` the first two are added. Local. */
void lm_linear_bwd(lm_model *m, const lm_linear *l, bool add, void *dx, const void *dy, const void *x, size_t rows);

/** Element i of a tensor of the compute type. */
static inline void *lm_model_at(const lm_model *m, void *tensor, size_t i)
{
  return (char *)tensor + i * lm_dtype_size(m->t);
}

/** The weights and the gradients of the parameter at an offset; NULL where it is absent. */
static inline const void *lm_model_weight(const lm_model *m, size_t offset)
{
  return offset == LM_ABSENT ? NULL : m->weights + offset * lm_dtype_size(m->t);
}
static inline float *lm_model_gradient(const lm_model *m, size_t offset)
{
  if (offset == LM_ABSENT) return NULL;
  const lm_param_group *g = m->table.groups;
  while (offset >= g->begin + g->count) g++;
  return m->gradients + g->window + (offset - g->begin);
}

/** Do the gradients of this micro-batch join those of others, or is it the first? */
static inline bool lm_model_adds(const lm_model *m)
{
  return m->args == NULL || !m->args->fresh;
}

/** Backward is through with this group, and with those after it. */
static inline void lm_model_group_done(const lm_model *m, size_t group)
{
  if (m->args != NULL && m->args->ready != NULL) m->args->ready(m->args->context, m->table.groups[group].begin);
}

#endif
