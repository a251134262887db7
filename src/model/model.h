/* src/model/model.h - a GPT: what it is, its parameter table, forward and backward. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_MODEL_MODEL_H
#define LM_MODEL_MODEL_H

#include "base/param_table.h"
#include "kernels/kernels.h"
#include <stdint.h>

typedef enum lm_norm_kind { LM_NORM_LAYERNORM, LM_NORM_RMSNORM } lm_norm_kind;
typedef enum lm_mlp_kind { LM_MLP_GELU, LM_MLP_SWIGLU } lm_mlp_kind;
typedef enum lm_position_kind { LM_POSITION_LEARNED, LM_POSITION_ROPE } lm_position_kind;
typedef enum lm_rope_scaling { LM_ROPE_PLAIN, LM_ROPE_LLAMA3 } lm_rope_scaling;

/** Which activations backward makes again instead of keeping them: the same bits, less memory, more time. */
typedef enum lm_recompute {
  LM_RECOMPUTE_NONE,
  LM_RECOMPUTE_ATTENTION, /* what lies between the norm and the projection that ends attention */
  LM_RECOMPUTE_BLOCK,     /* all of a block but its input */
} lm_recompute;

/** Rotary positions: pair d of a head turns by position * base^(-2d/D), slowed down as `scaling` says. */
typedef struct lm_rope_config {
  double base; /* 0: 10000 */
  int scaling; /* lm_rope_scaling. llama3: wavelengths above ctx / low are `factor` times as long, those below
                  ctx / high stay, between them lies a ramp.  Llama 3.1's model card */
  double factor, low, high;
  int64_t ctx;
} lm_rope_config;

/** What the model is. Plain data; lm_model_config_check() says whether it makes sense. Zeros are GPT-2's choices. */
typedef struct lm_model_config {
  int64_t vocab_size; /* V: ids are [0, V); inside, rows are padded to a multiple of 128 */
  int64_t n_layer;    /* L */
  int64_t n_head;     /* H */
  int64_t n_kv_head;  /* key and value heads, a divisor of H; 0: H */
  int64_t n_embd;     /* C, a multiple of H */
  int64_t n_ff;       /* F, width of the MLP; 0: 4 C, and with SwiGLU 8 C / 3 rounded up to a multiple of 64 */
  int64_t n_ctx;      /* T, the longest sequence */
  bool tied;          /* the head is the token embedding */
  bool bias;          /* linear layers and LayerNorms have biases */
  bool qk_norm;       /* queries and keys are normed, a head at a time, by RMSNorm */
  int norm;           /* lm_norm_kind */
  int mlp;            /* lm_mlp_kind */
  int position;       /* lm_position_kind */
  double norm_eps;    /* 0: 1e-5 */
  lm_rope_config rope;
  double dropout; /* [0, 1), in training: of the embedding, attention's probabilities, what a block adds */
  int recompute;  /* lm_recompute */
} lm_model_config;

/** Local. LM_EINVAL names the key, its value and what was wanted; for heads that do not divide the width, near counts
 *  that do. */
lm_status lm_model_config_check(const lm_model_config *cfg, lm_error *err) LM_NODISCARD;

/** The config with every 0 that stands for something replaced by it. Local. */
lm_model_config lm_model_config_resolved(const lm_model_config *cfg);

/** Rows of the token embedding and columns of the logits inside: vocab_size rounded up to a multiple of 128. Local. */
int64_t lm_model_padded_vocab(const lm_model_config *cfg);

/* ---- the parameter table ---- */

/** The table of a model, in closed form: nothing is allocated but the rows. Local. Free with lm_param_table_free(). */
lm_status lm_param_table_new(lm_param_table *out, const lm_model_config *cfg, lm_error *err) LM_NODISCARD;
void lm_param_table_free(lm_param_table *t);

/** The row of a name, or NULL where the model has no such parameter. Local. */
const lm_param *lm_param_find(const lm_param_table *t, const char *name);

/** The initial value of elements [begin, begin + n) of the flat space, on the host. Local. A value depends on seed,
 * name and element alone: any layout, any thread count gives the same. */
void lm_param_init(const lm_param_table *t, const lm_model_config *cfg, uint64_t seed, size_t begin, size_t n,
                   float *out);

/* ---- the model ---- */

typedef struct lm_model lm_model; /* opaque: weights, gradients, activations, one block each */

/** What a micro-batch gave. */
typedef struct lm_loss {
  double sum;     /* of -log p(target), nats */
  uint64_t count; /* of targets that are not ignored */
} lm_loss;

/** Make a model; weights are zero until they are set. Local.
 *  @param k        kept
 *  @param compute  LM_F32, LM_BF16 or LM_F16: of weights as used, and of activations
 *  @param max_B    the largest micro-batch, sequences
 *  @param training with gradients and what backward needs; else for eval and generate only
 *  @return LM_EINVAL (cfg), LM_ENOMEM with the bytes wanted */
lm_status lm_model_new(lm_model **out, const lm_model_config *cfg, const lm_kernels *k, lm_dtype compute, int max_B,
                       bool training, lm_error *err) LM_NODISCARD;
/** As lm_model_new() for training, as one of the ranks that share parameters: its table says what this rank owns, and
 * the block of gradients is [table.gradient_elements], which is less than all of them with LM_SHARD_GRADIENTS. Local.
 */
lm_status lm_model_new_shared(lm_model **out, const lm_model_config *cfg, const lm_kernels *k, lm_dtype compute,
                              int max_B, lm_sharding sharding, int rank, int size, lm_error *err) LM_NODISCARD;
void lm_model_free(lm_model *m);

/** Bytes of the three blocks of a model. */
typedef struct lm_model_bytes {
  size_t weights, gradients, activations;
} lm_model_bytes;

/** What lm_model_new() with the same arguments would ask the backend for: the same code, nothing allocated. Local.
 *  @return LM_EINVAL as lm_model_new() */
lm_status lm_model_measure(lm_model_bytes *out, const lm_model_config *cfg, lm_dtype compute, int max_B, bool training,
                           lm_error *err) LM_NODISCARD;

const lm_model_config *lm_model_config_of(const lm_model *m);
const lm_param_table *lm_model_params(const lm_model *m);
lm_dtype lm_model_compute(const lm_model *m);
const lm_kernels *lm_model_kernels(const lm_model *m);

void *lm_model_weights(lm_model *m); /* [elements] of the compute type, on the device */
/** [gradient_elements] f32, on the device; NULL without training. Local. */
float *lm_model_gradients(lm_model *m);

/** From now on a token sees only its own document: what follows an end of text does not look back behind it. Local.
 *  @param end_of_text  its id; -1: documents are not told apart, as at first */
void lm_model_mask_documents(lm_model *m, int32_t end_of_text);

/** What else a micro-batch of a training step needs. */
typedef struct lm_train_args {
  float loss_scale; /* > 0: gradients are those of loss_scale times the losses, which fp16 needs to stay in range */
  uint64_t seed;    /* of the run: what dropout takes out follows from it, */
  uint64_t sample;  /* from the first sequence's position in the endless sequence of samples, and from nothing else */
  lm_objective objective;
  bool fresh; /* the first micro-batch: gradients of parameters that are .stored are written over, not added to */
  /** Called in backward whenever the gradients of elements [from, elements) of the flat space are final for this
   *  micro-batch: `from` is where a group of the parameter table begins, from the last group to the first. What it
   * needs of the gradients it takes; where gradients pass through windows, it makes the next group's window 0. NULL:
   * none. */
  void (*ready)(void *context, size_t from);
  void *context;
} lm_train_args;

/** Forward and backward of one micro-batch; gradients of the *sum* of the losses are added to the gradients (but
 *  see args->fresh). Local.
 *  On a device the work is under way when _begin returns, and _end waits for it.
 *  @param tokens, targets  [B,T] on the host; a target of -1 is ignored; 1 <= B <= max_B, 1 <= T <= n_ctx
 *  @param args  borrowed; NULL: a loss scale of 1, seed and sample 0, no further terms
 *  @return how many targets are not ignored */
uint64_t lm_model_train_begin(lm_model *m, const int32_t *tokens, const int32_t *targets, int B, int T,
                              const lm_train_args *args);
enum { LM_MODEL_BEGUN = 64 /* micro-batches at most, from one _end to the next */ };
/** What the micro-batches begun since the last call gave: the sums of their losses, with the objective's terms, not
 *  scaled. Local. @param[out] sums  [LM_MODEL_BEGUN] in the order in which they were begun @return how many */
int lm_model_train_end(lm_model *m, double *sums);
/** Both, for one micro-batch. Local. */
lm_loss lm_model_train(lm_model *m, const int32_t *tokens, const int32_t *targets, int B, int T,
                       const lm_train_args *args);

/** Forward only. Local. */
lm_loss lm_model_eval(lm_model *m, const int32_t *tokens, const int32_t *targets, int B, int T);

/** Logits of the token after the T given ones. Local. @param tokens [T] on the host @param[out] logits [V] f32, host */
void lm_model_next(lm_model *m, const int32_t *tokens, int T, float *logits);

/** Floating-point operations of a training step per token at length T: 6 N + 6 L C T. Local.
 *  N counts what is multiplied: all parameters but the tables that are only looked up (positions; the token embedding
 *  where it is not also the head), without the vocabulary's padding. The causal half of attention is counted, once.
 *  Recomputed activations and norms of heads count nothing.
 *  GPT-2 124M, T = 1024: 798543360. llm.c (6 N with positions and padding) says 803478528, PaLM's appendix B (attention
 *  without the causal half, 12 L C T) 860101632 with the same N. */
double lm_model_flops_per_token(const lm_model_config *cfg, int T);

#endif
