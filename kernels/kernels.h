/* kernels/kernels.h - the table of operations: formula, shapes, dtypes of each. A backend fills it. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_KERNELS_KERNELS_H
#define LM_KERNELS_KERNELS_H

#include "base/dtype.h"
#include "base/status.h"
#include "comm/fabric.h"
#include <stdbool.h>

/* Letters as on paper: B sequences, T positions, C channels, V vocabulary, H heads, D channels of a head.
 * `t` is the compute type, LM_F32, LM_BF16 or LM_F16: that of every `void *` tensor. Arithmetic inside an operation is
 * in f32 or better. Gradients of weights are f32 and are added to (+=), so that micro-batches accumulate; gradients of
 * activations are in t and are written (=) unless said otherwise. All tensors are row-major and live in the backend's
 * memory, and so does every other array that an operation takes: token, target, angles, start, slot, position, loss,
 * mean, rstd, lse, sum. Structs (lm_dropout, lm_attention, lm_cache, lm_objective, the configs) are the host's, and
 * read before the call returns; scalars are values. An operation may return before it is done: to_host() waits for all
 * that was asked for before it, to_device() has read the host's memory when it returns. Nothing overlaps unless said
 * so. All operations are Local and cannot fail: shapes are checked when the model is made, a backend that cannot go on
 * (a dead device) ends the job. Results do not depend on the number of threads. */

/** AdamW, as in Loshchilov & Hutter, arXiv:1711.05101, Algorithm 2 with alpha = 1 and eta_t = lr. */
typedef struct lm_adamw_config {
  float beta1, beta2; /* [0, 1) */
  float eps;          /* > 0 */
  float decay;        /* >= 0, scaled by lr at each step */
} lm_adamw_config;

/** Which elements a dropout takes out: element e of row r of part h (a head; 0 elsewhere) of sequence b goes where word
 *  e % 4 of Philox4x32-10 is below rate 2^32. Its key is the first two of lm_random_words(seed, LM_STREAM_DROPOUT,
 *  sample + b, 0), its counter (e / 4, r, h, place). So a mask depends on neither ranks, micro-batches nor threads, and
 *  the backward finds the one of the forward. What stays is divided by 1 - rate.
 *  Srivastava et al., JMLR 15 (2014), section 4. */
typedef struct lm_dropout {
  float rate;      /* [0, 1) */
  uint64_t seed;   /* of the run */
  uint64_t sample; /* position of sequence 0 in the endless sequence of samples: never the same twice in a run */
  uint32_t place;  /* in the model: no two dropouts of one pass share it */
} lm_dropout;

/** What an attention works on. */
typedef struct lm_attention {
  int B, T, H, H_kv, D; /* H a multiple of H_kv */
  const int32_t *start; /* [B,T]: query (b,t) sees keys start[b,t] .. t; 0 <= start[b,t] <= t, never falling with t.
                           NULL: from 0 */
  const lm_dropout *dropout; /* of the probabilities: part h, row query, element key; NULL: none */
} lm_attention;

/** Keys and values of sequences that grow a token at a time, and which of them a call is for. The arrays lie in the
 *  backend's memory. */
typedef struct lm_cache {
  void *keys, *values;             /* [slots,H_kv,capacity,D] in t: a slot is a sequence's place */
  int capacity;                    /* positions */
  int H, H_kv, D;                  /* H a multiple of H_kv */
  int B;                           /* sequences of this call */
  const int32_t *slot;             /* [B], no two the same */
  const int32_t *start, *position; /* [B]: the first position that is seen, and that of the (first) row;
                                      0 <= start <= position < capacity */
} lm_cache;

/** What is added to the negative log-likelihood of a target. */
typedef struct lm_objective {
  float z_loss;          /* >= 0: + z_loss lse^2.  Chowdhery et al., arXiv:2204.02311, section 5 */
  float label_smoothing; /* [0, 1): the target has 1 - s of the probability, and all V tokens share s evenly.
                            Szegedy et al., arXiv:1512.00567, section 7 */
} lm_objective;

/** Stochastic gradient descent with momentum, and decay decoupled from it as in AdamW. */
typedef struct lm_sgd_config {
  float momentum; /* [0, 1) */
  bool nesterov;  /* look ahead: Sutskever et al., ICML 2013, eq. 3-4, in the form that torch.optim.SGD has */
  float decay;    /* >= 0, scaled by lr at each step */
} lm_sgd_config;

/** What an update works on of one tensor, as adamw and sgd take it, but for its gradient, which lies at g + g_at of
 * what the call says. A sum of squares reads that alone. Plain data. */
typedef struct lm_slice {
  float *w, *m, *v;
  void *w16;
  size_t g_at, n;
  bool decayed; /* false: the config's decay is 0 for it */
} lm_slice;

/** Tensors that an operation takes all at once. Made by lm_slices_new(), in kernels/slices.h. */
typedef struct lm_slices {
  lm_slice *host; /* [n] */
  size_t n;
  lm_slice
      *pieces; /* on a device, in its memory: the slices, cut into pieces of LM_PIECE elements at most; else NULL */
  size_t n_pieces;
  uint32_t *first; /* [n + 1], likewise: slice i is pieces[first[i]] up to pieces[first[i + 1]] */
} lm_slices;
enum { LM_PIECE = 8192 };

enum { LM_FEW_ROWS = 16 };

/** Copies to the host that neither the host nor the operations wait for: a queue beside that of the operations. The
 *  copies between begin() and end() are one set; at most one is under way. Only the last function may be called from
 * any thread. */
typedef struct lm_copies {
  /** Host memory that copies reach at full speed. LM_OK or LM_ENOMEM, naming `what`. */
  lm_status (*alloc)(void **out, size_t bytes, const char *what, lm_error *err);
  void (*release)(void *p); /* NULL is fine */
  /** What is copied from here on is what the operations until now leave. */
  void (*begin)(void);
  void (*copy)(void *host, const void *device, size_t bytes);
  void (*end)(void);
  /** Operations from here on come after the copies: they may change what is copied. */
  void (*await)(void);
  /** Wait until the copies are there. */
  void (*wait)(void);
} lm_copies;

enum { LM_MARKS = 2 };

typedef struct lm_kernels {
  const char *name; /* "ref", "cpu", "cuda" */
  const char *isa;  /* what the loops were compiled for: "x86-64-v4", "sm_90a" */

  bool on_device; /* its memory is not the host's: the host reaches it through to_device and to_host alone */

  /** How ranks exchange what is on their devices. NULL: MPI does it in the host's memory, or there is one rank alone.
   */
  const lm_fabric *fabric;

  /** NULL: memory is the host's, and is copied there. */
  const lm_copies *copies;

  /** Calls that are the same each time, arguments included, and copy nothing from or to the host: a device that has
   * queued them before queues them at once. Between repeat() and recorded() they are made where repeat() says false,
   * and made again where recorded() says false. NULL: nothing is gained by it.
   * @param key  bytes that differ wherever an argument of a call does */
  bool (*repeat)(const void *key, size_t bytes);
  bool (*recorded)(void);

  /** Note the time at which the operations until now are done, as mark i; the seconds from one mark to another, once
   * the host has waited for both. NULL: operations are done when they return. */
  void (*mark)(int i);
  double (*between)(int from, int to);

  /** Product FLOP/s of type t that the machine can reach: what a run's speed is a share of. NULL: that of the CPU. */
  double (*product_rate)(lm_dtype t);
  /** The host enters a phase of its work, "compute", until the next one: shown in a profiler's timeline. NULL: nobody
   *  looks. @param name  a literal */
  void (*phase)(const char *name);
  /** Bytes of this backend's memory that are free now. NULL: not known. */
  size_t (*available)(void);

  /** Zeroed memory of this backend, aligned to 64 bytes. LM_OK or LM_ENOMEM, naming `what`. */
  lm_status (*alloc)(void **out, size_t bytes, const char *what, lm_error *err);
  void (*release)(void *p); /* NULL is fine */
  void (*zero)(void *p, size_t bytes);
  void (*to_device)(void *device, const void *host, size_t bytes);
  void (*to_host)(void *host, const void *device, size_t bytes);

  /** y[i] = x[i] for n elements; to bf16 or f16 it rounds to nearest even. */
  void (*cast)(void *y, lm_dtype to, const void *x, lm_dtype from, size_t n);

  /** y[b,t,:] = wte[token[b,t],:] + wpe[t,:].  y [B,T,C]; token [B,T] in [0,V); wte [V,C]; wpe [>=T,C] or NULL. */
  void (*embedding_fwd)(lm_dtype t, void *y, const int32_t *token, const void *wte, const void *wpe, int B, int T,
                        int C);
  /** dwte[token[b,t],:] += dy[b,t,:] in the order of (b,t); dwpe[t,:] += sum_b dy[b,t,:] in the order of b.
   *  dwte [V,C] f32; dwpe [>=T,C] f32 or NULL; dy [B,T,C]. */
  void (*embedding_bwd)(lm_dtype t, float *dwte, float *dwpe, const void *dy, const int32_t *token, int B, int T,
                        int C);

  /** LayerNorm over C: y = (x - mean) rstd gain + bias, rstd = 1/sqrt(var + eps), var biased (/C).
   *  Where branch is not NULL: first sum = x + branch, and the norm is of sum (residual and norm in one pass).
   *  y, x, branch, sum [rows,C]; gain, bias [C] (bias may be NULL); mean, rstd [rows] f32, kept for the backward.
   *  Ba, Kiros, Hinton, arXiv:1607.06450, eq. 3-4. */
  void (*layernorm_fwd)(lm_dtype t, void *y, float *mean, float *rstd, void *sum, const void *x, const void *branch,
                        const void *gain, const void *bias, size_t rows, int C, float eps);
  /** With xhat = (x - mean) rstd, a = gain dy: dx += rstd (a - mean_C(a) - xhat mean_C(a xhat)), added to dx because
   *  the residual's gradient is already there; dgain += sum_rows dy xhat; dbias += sum_rows dy.
   *  dx, dy, x [rows,C]; x is what was normed (sum of the forward); dgain, dbias [C] f32, dbias may be NULL. */
  void (*layernorm_bwd)(lm_dtype t, void *dx, float *dgain, float *dbias, const void *dy, const void *x,
                        const float *mean, const float *rstd, const void *gain, size_t rows, int C);

  /** RMSNorm over C: y = x rstd gain, rstd = 1/sqrt(mean_C(x^2) + eps); with branch as layernorm_fwd.
   *  y, x, branch, sum [rows,C]; gain [C]; rstd [rows] f32.  Zhang & Sennrich, arXiv:1910.07467, eq. 4. */
  void (*rmsnorm_fwd)(lm_dtype t, void *y, float *rstd, void *sum, const void *x, const void *branch, const void *gain,
                      size_t rows, int C, float eps);
  /** With xhat = x rstd, a = gain dy: dx += rstd (a - xhat mean_C(a xhat)); dgain += sum_rows dy xhat. */
  void (*rmsnorm_bwd)(lm_dtype t, void *dx, float *dgain, const void *dy, const void *x, const float *rstd,
                      const void *gain, size_t rows, int C);

  /** RMSNorm of each query head and each key head over D; values are copied.  y, x [rows,(H + 2 H_kv) D] as the qkv of
   *  attention_fwd; q_gain, k_gain [D]; rstd [rows,H + H_kv] f32.  Henry et al., arXiv:2010.04245, with RMSNorm. */
  void (*qk_norm_fwd)(lm_dtype t, void *y, float *rstd, const void *x, const void *q_gain, const void *k_gain,
                      size_t rows, int H, int H_kv, int D, float eps);
  /** dqkv is the gradient of y on entry, of x on return. dq_gain, dk_gain [D] f32 are added to. */
  void (*qk_norm_bwd)(lm_dtype t, void *dqkv, float *dq_gain, float *dk_gain, const void *x, const float *rstd,
                      const void *q_gain, const void *k_gain, size_t rows, int H, int H_kv, int D);

  /** Rotary positions of the query and key heads, in place: the pair (x[d], x[d + D/2]) of a head turns by the angle of
   *  (position, d): (x1 cos - x2 sin, x2 cos + x1 sin), Hugging Face's order. Row (b,t) has position first + t. inverse
   *  turns back, which is the backward.  qkv [B,T,(H + 2 H_kv) D], D even; angles [>= first + T,D] f32: D/2 cosines,
   *  then D/2 sines.  Su et al., arXiv:2104.09864, eq. 34. */
  void (*rope)(lm_dtype t, void *qkv, const float *angles, int first, bool inverse, int B, int T, int H, int H_kv,
               int D);

  /** y = x w^T + bias.  y [M,N]; x [M,K]; w [N,K] (output by input, as torch.nn.Linear); bias [N] or NULL.
   *  Up to M = LM_FEW_ROWS a row's result does not depend on how many there are. */
  void (*linear_fwd)(lm_dtype t, void *y, const void *x, const void *w, const void *bias, size_t M, int N, int K);
  /** dx = dy w.  dx [M,K]; dy [M,N]. */
  void (*linear_bwd_input)(lm_dtype t, void *dx, const void *dy, const void *w, size_t M, int N, int K);
  /** dw = dy^T x; dbias = sum_M dy; with `add` both are added to what is there.  dw [N,K] f32; dbias [N] f32 or NULL.
   */
  void (*linear_bwd_weight)(lm_dtype t, bool add, float *dw, float *dbias, const void *dy, const void *x, size_t M,
                            int N, int K);

  /** y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), n elements.  Hendrycks & Gimpel, arXiv:1606.08415. */
  void (*gelu_fwd)(lm_dtype t, void *y, const void *x, size_t n);
  /** dx = dy gelu'(x); dx may be dy. */
  void (*gelu_bwd)(lm_dtype t, void *dx, const void *dy, const void *x, size_t n);

  /** A product and GELU in one pass, where a backend has that for these shapes and this memory; false: it has not, and
   *  nothing was done. NULL: it never has. GELU sees z, or dy w, before it is rounded to t.
   *  z = x w^T + bias, y = gelu(z): y, z [M,N], the rest as linear_fwd. */
  bool (*linear_gelu_fwd)(lm_dtype t, void *y, void *z, const void *x, const void *w, const void *bias, size_t M, int N,
                          int K);
  /** dz = (dy w) gelu'(z): dz, z [M,K], the rest as linear_bwd_input. */
  bool (*linear_gelu_bwd)(lm_dtype t, void *dz, const void *dy, const void *w, const void *z, size_t M, int N, int K);

  /** y = silu(gate) up, silu(x) = x / (1 + exp(-x)).  y [rows,F]; x [rows,2F]: F gates, then F ups.
   *  Shazeer, arXiv:2002.05202, eq. 6. */
  void (*swiglu_fwd)(lm_dtype t, void *y, const void *x, size_t rows, int F);
  /** dgate = dy up silu'(gate), dup = dy silu(gate).  dx, x [rows,2F]; dy [rows,F]. */
  void (*swiglu_bwd)(lm_dtype t, void *dx, const void *dy, const void *x, size_t rows, int F);

  /** y = x with elements taken out: row (b,t) is row t of sequence b.  y, x [B,T,C]; y may be x. Its own backward. */
  void (*dropout)(lm_dtype t, void *y, const void *x, const lm_dropout *how, int B, int T, int C);

  /** Causal attention, y = softmax(q k^T / sqrt(D) + mask) v per head; memory linear in T (tiled, online softmax).
   *  qkv [B,T,(H + 2 H_kv) D]: the H query heads, then H_kv key heads, then H_kv value heads; query head h reads
   *  key/value head h H_kv / H.  y [B,T,H D]; lse [B,H,T] f32 = log sum_j exp(score_j), kept for the backward.
   *  Dao et al., arXiv:2205.14135, Algorithm 1. */
  void (*attention_fwd)(lm_dtype t, void *y, float *lse, const void *qkv, const lm_attention *a);
  /** dqkv [B,T,(H + 2 H_kv) D], dy, y [B,T,H D]. Same paper, Algorithm 4 (backward, from lse; scores recomputed). */
  void (*attention_bwd)(lm_dtype t, void *dqkv, const void *dy, const void *y, const float *lse, const void *qkv,
                        const lm_attention *a);

  /** Keep keys and values: those of row (b,t) become position[b] + t of their slot.
   *  qkv [B,T,(H + 2 H_kv) D] as for attention_fwd; position[b] + T <= capacity. start is not looked at. */
  void (*cache_store)(lm_dtype t, const lm_cache *c, const void *qkv, int T);
  /** One query a sequence against the keys and values kept: row position[b] of attention_fwd, from start[b] on.
   *  y [B,H D]; q [B,(H + 2 H_kv) D], of which the query heads are read; position[b] is kept already. A sequence's
   *  result does not depend on the others. */
  void (*attention_next)(lm_dtype t, void *y, const void *q, const lm_cache *c);

  /** loss[r] = lse - z[r,target[r]], lse = log sum_{v<V} exp(z[r,v]), and 0 where target[r] < 0 (ignored). With an
   *  objective (NULL: none): lse - (1 - s) z[r,target[r]] - s mean_{v<V} z[r,v] + z_loss lse^2, s = label_smoothing.
   *  Where scale is not 0: z[r,v] = scale (softmax(z[r])[v] (1 + 2 z_loss lse) - (1 - s) (v == target[r]) - s/V), the
   *  gradient of scale * loss, in place; rows that are ignored and the padded columns V <= v < Vp become 0. Where it is
   *  0, z stays.  z [rows,Vp]; target [rows] in [-1,V); loss [rows] f32; scale >= 0. */
  void (*cross_entropy)(lm_dtype t, float *loss, void *z, const int32_t *target, const lm_objective *objective,
                        size_t rows, int V, int Vp, float scale);

  /** *sum = sum_i x[i], or sum_i x[i]^2, in double; not finite where one x[i] is not. *sum lies in the backend's
   * memory, so that nobody waits for it before it is needed. */
  void (*sum)(double *sum, const float *x, size_t n);
  void (*sum_squares)(double *sum, const float *x, size_t n);
  /** x[i] *= a; x[i] += y[i]. */
  void (*scale)(float *x, float a, size_t n);
  void (*add)(float *x, const float *y, size_t n);

  /** One AdamW step with g' = scale g: m = beta1 m + (1-beta1) g'; v = beta2 v + (1-beta2) g'^2;
   *  w -= lr (m/(1-beta1^step) / (sqrt(v/(1-beta2^step)) + eps) + decay w).
   *  w, m, v, g [n] f32; step >= 1 counts applied updates.
   *  w16 [n] in t, 16 bits: receives w rounded to nearest even; NULL where t is f32. */
  void (*adamw)(lm_dtype t, float *w, float *m, float *v, const float *g, void *w16, size_t n,
                const lm_adamw_config *cfg, float lr, float scale, int64_t step);
  /** One step of SGD with g' = scale g: m = momentum m + g'; u = nesterov ? g' + momentum m : m; w -= lr (u + decay w).
   *  w, m, g [n] f32; m may be NULL: u = g' then. w16 as for adamw. */
  void (*sgd)(lm_dtype t, float *w, float *m, const float *g, void *w16, size_t n, const lm_sgd_config *cfg, float lr,
              float scale);

  /** adamw, sgd and sum_squares of all slices, to the same bits as one after another: a device is kept busy by one
   *  launch, not by hundreds. Called through kernels/slices.h. Only where memory is on a device; NULL elsewhere.
   *  sums [s->n] */
  void (*adamw_all)(lm_dtype t, const lm_slices *s, const float *g, const lm_adamw_config *cfg, float lr, float scale,
                    int64_t step);
  void (*sgd_all)(lm_dtype t, const lm_slices *s, const float *g, const lm_sgd_config *cfg, float lr, float scale);
  void (*sum_squares_all)(double *sums, const lm_slices *s, const float *g);
} lm_kernels;

typedef enum lm_backend { LM_BACKEND_CPU, LM_BACKEND_CUDA, LM_BACKEND_AUTO, LM_BACKEND_REF } lm_backend;
#define LM_BACKEND_WORDS "cpu|cuda|auto|ref" /* for option tables, in the order of the enum */

/** Choose a backend and start it. Local. LM_BACKEND_AUTO is the CPU here: lm_backend_start() looks for a GPU.
 *  @return LM_EINVAL where it was asked for by name and this machine or this build has none; *out is NULL then */
lm_status lm_kernels_select(const lm_kernels **out, lm_backend which, lm_error *err) LM_NODISCARD;

/** A GPU, as the driver describes it. */
typedef struct lm_cuda_device {
  char name[256];
  int major, minor; /* compute capability: 9, 0 for an H100 */
  int multiprocessors;
  size_t bytes; /* of memory */
  double rate;  /* FLOP/s of bf16 products, by the data sheet */
} lm_cuda_device;

/** Does this machine have NVIDIA's driver, and this build the CUDA backend? Local; opens neither CUDA nor the module.
 *  @return LM_EINVAL where not; the text is empty where the build has no CUDA */
lm_status lm_cuda_driver(lm_error *err) LM_NODISCARD;

/** The GPUs that this process sees, at most `most` of them; *count is how many there are. Local.
 *  @return LM_EINVAL where there is none: the driver's words, or that this build has no CUDA; *count is 0 then */
lm_status lm_cuda_devices(lm_cuda_device *list, int most, int *count, lm_error *err) LM_NODISCARD;

/** The GPU that the CUDA backend of this process starts on, 0 unless told so before lm_kernels_select(). Local.
 *  MPILM_CUDA_TF32=1 in the environment lets f32 products round their factors to 11 bits; MPILM_CUDA_TUNE=1 takes the
 *  fastest algorithm of each product, as timed in this run: another run may take another one and give other bits;
 *  MPILM_CUDA_PLAIN=1 keeps GELU out of products;
 *  MPILM_CUDA_GRAPH=0 queues every operation anew where a graph would repeat it. */
void lm_cuda_use_device(int device);

/** The definition of every operation: plain C, double accumulation, one thread. */
extern const lm_kernels lm_kernels_ref;

/** Does a bf16 product pay on this machine (AVX512_BF16, AMX, SVE bf16)? Local. */
bool lm_cpu_bf16_is_fast(void);

/** Product FLOP/s that this process' threads reach with oneDNN in type t, measured for a quarter of a second, after
 *  lm_kernels_select() of the CPU backend: the peak that a run's speed is a share of. Local. 0 where memory is short.
 */
double lm_cpu_product_rate(lm_dtype t);

/** Bytes a second that this process' threads read from memory, and that they copy (read and write, both counted):
 *  measured on 256 MiB for a fifth of a second. Local. 0 where memory is short. */
double lm_cpu_read_rate(void);
double lm_cpu_copy_rate(void);

#endif
