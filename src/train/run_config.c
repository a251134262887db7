/* src/train/run_config.c - everything a run is made of: one struct, filled from the option table. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/run_config.h"

#include "hdf5/state_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define AT(field) offsetof(lm_config, field)

const lm_option lm_config_options[] = {
    {"backend", LM_OPT_CHOICE, AT(backend), "auto", LM_BACKEND_WORDS, NULL,
     "what computes; auto is the first GPU backend that works, else the CPU; ref is slow and exact, for tests"},
    {"precision", LM_OPT_CHOICE, AT(precision), "auto", LM_PRECISION_WORDS, NULL,
     "type of weights and activations; bf16 and fp16 keep f32 master weights; auto is bf16 where the hardware is fast "
     "at it"},
    {"verbose", LM_OPT_BOOL, AT(verbose), "false", NULL, NULL,
     "say more: how each matrix product is computed, buckets of gradients, seconds of each phase of a step, what saves "
     "took and removed"},

    {"run.folder", LM_OPT_STRING, AT(run.folder), "runs/default", NULL, NULL,
     "where checkpoints, metrics.jsonl and config.used.yaml go"},
    {"run.seed", LM_OPT_INT, AT(run.seed), "1", "[0, 9007199254740992]", NULL,
     "initial weights and the order of the data follow from it"},
    {"run.steps", LM_OPT_INT, AT(run.steps), "1000", "[1, 1e12]", "steps", "the last step"},
    {"run.stop_after", LM_OPT_INT, AT(run.stop_after), "0", "[0, 1e12]", "steps",
     "stop after this step as a stop request would: checkpoint, exit code 75; 0 is never"},
    {"run.lock_timeout", LM_OPT_FLOAT, AT(run.lock_timeout), "30", "[1, 3600]", "s",
     "a run folder's owner on another host is taken for gone when it gave no sign of life for so long"},
    {"run.resume", LM_OPT_STRING, AT(run.resume), "auto", NULL, NULL,
     "auto: from the newest good checkpoint in run.folder, where there is one; never: from the start, in a folder "
     "without checkpoints; a number: from the checkpoint of that step, giving up later ones, once: started again the "
     "run goes on"},
    {"run.init_from", LM_OPT_STRING, AT(run.init_from), "", NULL, NULL,
     "a checkpoint whose weights a new run begins with, and nothing else of it"},
    {"run.allow_change", LM_OPT_CHOICE, AT(run.allow_change), "nothing", "nothing|data", NULL,
     "data: go on from a checkpoint with other training data, or another vocabulary of the same size"},
    {"run.threads", LM_OPT_INT, AT(run.threads), "0", "[0, 4096]", "threads",
     "threads of a rank; 0 is OMP_NUM_THREADS where set, else the cores divided by the ranks of the node"},
    {"run.check_replicas", LM_OPT_INT, AT(run.check_replicas), "0", "[0, 1e12]", "steps",
     "every so many steps the ranks compare a hash of each weight tensor, and a difference ends the run; 0 is never. "
     "Ranks that share the optimizer (parallel.zero) get all weights from their owners in each step"},
    {"run.hang_timeout", LM_OPT_FLOAT, AT(run.hang_timeout), "600", "[0, 1e6]", "seconds",
     "the longest that one phase of a step may last (data, compute, gradients, checkpoint ...): then the rank that "
     "never "
     "arrived is named and the job ends with exit code 1; 0 is for ever"},
    {"run.max_skipped", LM_OPT_INT, AT(run.max_skipped), "20", "[0, 1e9]", "steps",
     "so many updates in a row are left out (train.nonfinite, train.spike); one more ends the run with exit code 1"},
    {"run.max_stalled", LM_OPT_INT, AT(run.max_stalled), "3", "[0, 1e6]", "starts",
     "after so many starts in a row that saved no new step, the next ends with exit code 76; 0 is never"},
    {"run.deadline_margin", LM_OPT_FLOAT, AT(run.deadline_margin), "60", "[0, 86400]", "seconds",
     "under Slurm, be saved and stopped so long before the time limit of the job, with no signal needed"},
    {"run.reproducible", LM_OPT_BOOL, AT(run.reproducible), "false", NULL, NULL,
     "the same bits on any number of ranks: sequences are computed one by one and summed as a fixed binary tree"},

    {"model.preset", LM_OPT_CHOICE, AT(model.preset), "tiny",
     "tiny|gpt2-124m|gpt2-350m|gpt2-774m|gpt2-1558m|gpt3-125m|gpt3-350m|gpt3-760m|gpt3-1.3b|gpt3-2.7b|gpt3-6.7b|"
     "gpt3-13b|gpt3-175b|llama-1b|llama-8b|tinyllama-1.1b",
     NULL, "a known model; the other keys of this section change it"},
    {"model.n_layer", LM_OPT_INT, AT(model.shape.n_layer), "2", "[1, 1000]", "layers", "number of blocks"},
    {"model.n_head", LM_OPT_INT, AT(model.shape.n_head), "2", "[1, 1000]", "heads", "attention heads of a block"},
    {"model.n_kv_head", LM_OPT_INT, AT(model.shape.n_kv_head), "0", "[0, 1000]", "heads",
     "key and value heads, each shared by as many query heads; 0 is model.n_head"},
    {"model.n_embd", LM_OPT_INT, AT(model.shape.n_embd), "32", "[1, 100000]", "channels",
     "width of the residual stream, a multiple of model.n_head"},
    {"model.n_ff", LM_OPT_INT, AT(model.shape.n_ff), "0", "[0, 1000000]", "channels",
     "width of the MLP; 0 is 4 model.n_embd, and with swiglu 8/3 of it rounded up to a multiple of 64"},
    {"model.n_ctx", LM_OPT_INT, AT(model.shape.n_ctx), "16", "[1, 1000000]", "tokens", "length of a sequence"},
    {"model.vocab_size", LM_OPT_INT, AT(model.shape.vocab_size), "0", "[0, 10000000]", "tokens",
     "size of the vocabulary; 0 is that of the training data"},
    {"model.tied", LM_OPT_BOOL, AT(model.shape.tied), "true", NULL, NULL, "the head is the token embedding"},
    {"model.bias", LM_OPT_BOOL, AT(model.shape.bias), "true", NULL, NULL, "linear layers and layernorms have biases"},
    {"model.norm", LM_OPT_CHOICE, AT(model.shape.norm), "layernorm", "layernorm|rmsnorm", NULL,
     "what precedes attention, MLP and head"},
    {"model.norm_eps", LM_OPT_FLOAT, AT(model.shape.norm_eps), "1e-5", "(0, 1)", NULL,
     "added to the variance, or to the mean square"},
    {"model.mlp", LM_OPT_CHOICE, AT(model.shape.mlp), "gelu", "gelu|swiglu", NULL,
     "gelu is in its tanh form; swiglu multiplies two projections, one through SiLU"},
    {"model.position", LM_OPT_CHOICE, AT(model.shape.position), "learned", "learned|rope", NULL,
     "a learned vector for each position, or queries and keys that turn with it"},
    {"model.rope_base", LM_OPT_FLOAT, AT(model.shape.rope.base), "10000", "(1, 1e12]", NULL,
     "the slowest pair of a head turns about this many times slower than the fastest"},
    {"model.rope_scaling", LM_OPT_CHOICE, AT(model.shape.rope.scaling), "none", "none|llama3", NULL,
     "llama3 slows down what turns less than rope_low times in rope_ctx tokens, by rope_factor"},
    {"model.rope_factor", LM_OPT_FLOAT, AT(model.shape.rope.factor), "8", "[1, 1e6]", NULL, "how much slower"},
    {"model.rope_low", LM_OPT_FLOAT, AT(model.shape.rope.low), "1", "(0, 1e6]", "turns", "below: slowed down in full"},
    {"model.rope_high", LM_OPT_FLOAT, AT(model.shape.rope.high), "4", "(0, 1e6]", "turns",
     "above: not slowed down; between model.rope_low and this by a ramp"},
    {"model.rope_ctx", LM_OPT_INT, AT(model.shape.rope.ctx), "8192", "[1, 1e9]", "tokens",
     "the context that the turns are counted in: that before it was made longer"},
    {"model.qk_norm", LM_OPT_BOOL, AT(model.shape.qk_norm), "false", NULL, NULL,
     "each query head and key head goes through an RMSNorm"},
    {"model.dropout", LM_OPT_FLOAT, AT(model.shape.dropout), "0", "[0, 1)", NULL,
     "share of the embedding, of attention's probabilities and of what each branch adds that training leaves out"},
    {"model.recompute", LM_OPT_CHOICE, AT(model.shape.recompute), "none", "none|attention|block", NULL,
     "activations that backward computes again instead of keeping them: less memory, the same result"},

    {"data.train", LM_OPT_LIST, AT(data.train), "", NULL, NULL,
     "token datasets to train on (mpilm tokenize): FILE, or FILE:WEIGHT for the share of the samples that it gives; "
     "without weights each gives as much as it has"},
    {"data.val", LM_OPT_STRING, AT(data.val), "", NULL, NULL, "token dataset to evaluate on; empty is none"},
    {"data.vocab", LM_OPT_STRING, AT(data.vocab), "", NULL, NULL,
     "vocabulary of the data; kept in the checkpoint so that generate finds it"},
    {"data.document_mask", LM_OPT_BOOL, AT(data.document_mask), "false", NULL, NULL,
     "a token sees its own document alone, not what stands before the last end of text"},
    {"data.prefetch", LM_OPT_INT, AT(data.prefetch), "2", "[0, 1024]", "micro-batches",
     "a thread of each rank reads so many ahead; 0: no thread; the samples are the same"},

    {"train.z_loss", LM_OPT_FLOAT, AT(train.z_loss), "0", "[0, 1]", NULL,
     "times the square of log sum exp of the logits is added to the loss of training; PaLM used 1e-4"},
    {"train.label_smoothing", LM_OPT_FLOAT, AT(train.label_smoothing), "0", "[0, 1)", NULL,
     "share of a target's probability that all tokens have in common, in training"},
    {"train.nonfinite", LM_OPT_CHOICE, AT(train.nonfinite), "skip", "skip|stop|rollback", NULL,
     "where loss or gradient is not finite the update is left out; then: go on, end the run with exit code 1, or go "
     "back "
     "to the last checkpoint and jump over the data since; an fp16 overflow that the loss scale can mend is skipped"},
    {"train.spike", LM_OPT_CHOICE, AT(train.spike), "off", "skip|stop|rollback|off", NULL,
     "what a loss far above those before it means, as train.nonfinite; off: it is not looked for"},
    {"train.spike_z", LM_OPT_FLOAT, AT(train.spike_z), "6", "[1, 1000]", "deviations",
     "so many standard deviations above the mean of the last train.spike_window losses a loss is a spike"},
    {"train.spike_window", LM_OPT_INT, AT(train.spike_window), "128", "[2, 1024]", "updates",
     "losses of the last applied updates that a loss is compared with; before there are so many nothing is a spike"},
    {"train.max_rollbacks", LM_OPT_INT, AT(train.max_rollbacks), "5", "[0, 1e6]", "rollbacks",
     "a run goes back so often in all, over its restarts; once more ends it with exit code 1"},

    {"batch.global", LM_OPT_INT, AT(batch.global), "8", "[1, 1e9]", "sequences",
     "sequences of an update, over all ranks; any number of ranks divides them"},
    {"batch.ramp_start", LM_OPT_INT, AT(batch.ramp_start), "0", "[0, 1e9]", "sequences",
     "the batch begins with so many and grows to batch.global; 0 is batch.global at once"},
    {"batch.ramp_tokens", LM_OPT_INT, AT(batch.ramp_tokens), "0", "[0, 1e15]", "tokens",
     "the batch grows over the first so many tokens"},
    {"batch.micro", LM_OPT_INT, AT(batch.micro), "4", "[1, 1e6]", "sequences",
     "sequences that a rank computes at a time; more memory, the same result"},

    {"optim.lr", LM_OPT_FLOAT, AT(optim.lr), "6e-4", "(0, 10]", NULL, "peak learning rate"},
    {"optim.kind", LM_OPT_CHOICE, AT(optim.kind), "adamw", "adamw|sgd", NULL,
     "AdamW, or stochastic gradient descent with momentum; both decay weights apart from the gradient"},
    {"optim.lr_scaling", LM_OPT_CHOICE, AT(optim.lr_scaling), "none", "none|linear|sqrt", NULL,
     "optim.lr and schedule.min_lr are those of optim.base_batch: they are multiplied by batch.global / "
     "optim.base_batch, "
     "or by its root"},
    {"optim.base_batch", LM_OPT_INT, AT(optim.base_batch), "0", "[0, 1e9]", "sequences",
     "the batch that the rates are meant for; wanted with optim.lr_scaling"},
    {"optim.beta1", LM_OPT_FLOAT, AT(optim.beta1), "0.9", "[0, 1)", NULL, "decay of AdamW's first moment"},
    {"optim.beta2", LM_OPT_FLOAT, AT(optim.beta2), "0.95", "[0, 1)", NULL, "decay of AdamW's second moment"},
    {"optim.eps", LM_OPT_FLOAT, AT(optim.eps), "1e-8", "(0, 1]", NULL, "added to the root of the second moment"},
    {"optim.momentum", LM_OPT_FLOAT, AT(optim.momentum), "0.9", "[0, 1)", NULL, "decay of SGD's momentum; 0 is none"},
    {"optim.nesterov", LM_OPT_BOOL, AT(optim.nesterov), "false", NULL, NULL, "SGD looks ahead along its momentum"},
    {"optim.weight_decay", LM_OPT_FLOAT, AT(optim.weight_decay), "0.1", "[0, 10]", NULL,
     "decoupled decay of matrices, scaled by the learning rate"},
    {"optim.clip", LM_OPT_FLOAT, AT(optim.clip), "1", "[0, 1e9]", NULL,
     "largest norm of the gradient over all parameters; a longer one is scaled down; 0 is off"},

    {"scaler.init", LM_OPT_FLOAT, AT(scaler.init), "65536", "(0, 1e30]", NULL,
     "fp16: the loss is multiplied by this before its gradient is taken, to begin with"},
    {"scaler.min", LM_OPT_FLOAT, AT(scaler.min), "1", "(0, 1e30]", NULL, "fp16: the scale never falls below"},
    {"scaler.max", LM_OPT_FLOAT, AT(scaler.max), "16777216", "(0, 1e30]", NULL, "fp16: the scale never rises above"},
    {"scaler.growth_steps", LM_OPT_INT, AT(scaler.growth_steps), "2000", "[1, 1e12]", "steps",
     "fp16: so many updates in a row without overflow double the scale"},
    {"scaler.hysteresis", LM_OPT_INT, AT(scaler.hysteresis), "1", "[1, 1e9]", "overflows",
     "fp16: so many overflows since it was last doubled halve the scale, and each one after"},

    {"schedule.kind", LM_OPT_CHOICE, AT(schedule.kind), "cosine", "cosine|linear|constant|wsd|inverse_sqrt", NULL,
     "how the rate falls after the warm-up; wsd is warm-up, stable, decay; mpilm train CONFIG --show-schedule draws "
     "it"},
    {"schedule.warmup", LM_OPT_INT, AT(schedule.warmup), "0", "[0, 1e12]", "steps",
     "the rate rises linearly over so many steps"},
    {"schedule.warmup_tokens", LM_OPT_INT, AT(schedule.warmup_tokens), "0", "[0, 1e15]", "tokens",
     "the warm-up in tokens, instead of schedule.warmup; rounded up to whole steps"},
    {"schedule.warmup_fraction", LM_OPT_FLOAT, AT(schedule.warmup_fraction), "0", "[0, 1]", NULL,
     "the warm-up as a share of the steps until schedule.end, instead of schedule.warmup"},
    {"schedule.end", LM_OPT_INT, AT(schedule.end), "0", "[0, 1e12]", "steps",
     "the last rate is reached here and stays; 0 is run.steps"},
    {"schedule.min_lr", LM_OPT_FLOAT, AT(schedule.min_lr), "0", "[0, 10]", NULL, "the rate at the end"},
    {"schedule.cycles", LM_OPT_FLOAT, AT(schedule.cycles), "0.5", "(0, 1000]", NULL,
     "waves of the cosine; 0.5 is half a wave, down to schedule.min_lr"},
    {"schedule.restarts", LM_OPT_BOOL, AT(schedule.restarts), "false", NULL, NULL,
     "each of schedule.cycles is half a wave that begins at optim.lr again"},
    {"schedule.decay_fraction", LM_OPT_FLOAT, AT(schedule.decay_fraction), "0.2", "(0, 1]", NULL,
     "wsd: the decay takes this share of the steps until schedule.end"},
    {"schedule.decay", LM_OPT_CHOICE, AT(schedule.decay), "sqrt", "linear|sqrt", NULL,
     "wsd: the decay is a straight line, or 1 - sqrt: steep first"},

    {"parallel.bucket_mb", LM_OPT_INT, AT(parallel.bucket_mb), "25", "[1, 100000]", "MB",
     "gradients that a rank receives for one bucket; two buckets are on their way at a time"},
    {"parallel.overlap", LM_OPT_BOOL, AT(parallel.overlap), "true", NULL, NULL,
     "sum gradients over ranks while backward goes on; the same result"},
    {"parallel.zero", LM_OPT_CHOICE, AT(parallel.zero), "1", "0|1|2", NULL,
     "what ranks share instead of each having all: 1 the optimizer's state, 2 also the sums of gradients"},

    {"checkpoint.every", LM_OPT_INT, AT(checkpoint.every), "1000", "[0, 1e12]", "steps",
     "save after every so many steps; 0 is only at the end and at a stop"},
    {"checkpoint.keep", LM_OPT_INT, AT(checkpoint.keep), "3", "[0, 1e6]", "checkpoints",
     "the newest so many stay; 0 keeps all"},
    {"checkpoint.milestone_every", LM_OPT_INT, AT(checkpoint.milestone_every), "0", "[0, 1e12]", "steps",
     "checkpoints at multiples of this stay besides; 0 is none"},
    {"checkpoint.keep_best", LM_OPT_BOOL, AT(checkpoint.keep_best), "false", NULL, NULL,
     "checkpoints/best.h5 is the one with the lowest validation loss, of those whose step was evaluated"},
    {"checkpoint.async", LM_OPT_BOOL, AT(checkpoint.async), "true", NULL, NULL,
     "write while training goes on, from a copy of the state in host memory"},
    {"checkpoint.writer", LM_OPT_CHOICE, AT(checkpoint.writer), "pwrite", "pwrite|mpiio", NULL,
     "pwrite: each rank by itself; mpiio: collective buffering, between two steps only; the same file"},
    {"checkpoint.mpiio_hints", LM_OPT_STRING, AT(checkpoint.mpiio_hints), "", NULL, NULL,
     "for MPI-IO: key=value,..., stronger than its defaults here: no data sieving, collective buffering"},
    {"checkpoint.align_kb", LM_OPT_INT, AT(checkpoint.align_kb), "4", "[0, 1000000]", "KiB",
     "tensors of 4 times this or more begin at its multiples in the file: pages, or a file system's stripes"},
    {"checkpoint.stripe_count", LM_OPT_INT, AT(checkpoint.stripe_count), "8", "[-1, 2000]", "targets",
     "a new folder for checkpoints on Lustre gets so many stripes (lfs setstripe); -1 all, 0 what it inherits"},
    {"checkpoint.verify", LM_OPT_CHOICE, AT(checkpoint.verify), "structure", "structure|full", NULL,
     "before a checkpoint gets its name: look at its description, or also read all that was written again"},
    {"checkpoint.on_failure", LM_OPT_CHOICE, AT(checkpoint.on_failure), "stop", "stop|continue", NULL,
     "what a save that fails does to the run; after the last one the exit code is 1 in any case"},

    {"eval.every", LM_OPT_INT, AT(eval.every), "0", "[0, 1e12]", "steps",
     "evaluate on data.val before the first step, after every so many, and at the end; 0 is never"},
    {"eval.windows", LM_OPT_INT, AT(eval.windows), "0", "[0, 1e12]", "sequences",
     "evaluate on the first so many windows of data.val; 0 is all of it, the partial last one included"},

    {"log.every", LM_OPT_INT, AT(log.every), "10", "[1, 1e9]", "steps", "a line on stderr every so many steps"},
    {"log.samples", LM_OPT_BOOL, AT(log.samples), "false", NULL, NULL,
     "write the windows of each step's global batch to metrics.jsonl"},
    {NULL},
};

/* A preset is a few words of config, weaker than the user's own; what they leave out is the table's default.
 * GPT-2: Radford et al. 2019, table 2. GPT-3: Brown et al., arXiv:2005.14165, table 2.1, where its numbers divide: 1.3B
 * has 16 heads of 128 channels and 13B a width of 5120. Llama 3: Meta's model cards of Llama-3-8B and Llama-3.2-1B, at
 * a context of 8192. TinyLlama: arXiv:2401.02385, table 1. */
#define GPT2  "vocab_size=50257 n_ctx=1024 "
#define GPT3  "vocab_size=50257 n_ctx=2048 "
#define LLAMA "norm=rmsnorm mlp=swiglu position=rope bias=false "
static const struct {
  const char *name, *words;
} presets[] = {
    {"tiny", "n_layer=2 n_head=2 n_embd=32 n_ctx=16"},
    {"gpt2-124m", GPT2 "n_layer=12 n_head=12 n_embd=768"},
    {"gpt2-350m", GPT2 "n_layer=24 n_head=16 n_embd=1024"},
    {"gpt2-774m", GPT2 "n_layer=36 n_head=20 n_embd=1280"},
    {"gpt2-1558m", GPT2 "n_layer=48 n_head=25 n_embd=1600"},
    {"gpt3-125m", GPT3 "n_layer=12 n_head=12 n_embd=768"},
    {"gpt3-350m", GPT3 "n_layer=24 n_head=16 n_embd=1024"},
    {"gpt3-760m", GPT3 "n_layer=24 n_head=16 n_embd=1536"},
    {"gpt3-1.3b", GPT3 "n_layer=24 n_head=16 n_embd=2048"},
    {"gpt3-2.7b", GPT3 "n_layer=32 n_head=32 n_embd=2560"},
    {"gpt3-6.7b", GPT3 "n_layer=32 n_head=32 n_embd=4096"},
    {"gpt3-13b", GPT3 "n_layer=40 n_head=40 n_embd=5120"},
    {"gpt3-175b", GPT3 "n_layer=96 n_head=96 n_embd=12288"},
    {"llama-1b", LLAMA "vocab_size=128256 n_ctx=8192 n_layer=16 n_head=32 n_kv_head=8 n_embd=2048 n_ff=8192 tied=true "
                       "rope_base=500000 rope_scaling=llama3 rope_factor=32 rope_low=1 rope_high=4 rope_ctx=8192"},
    {"llama-8b",
     LLAMA "vocab_size=128256 n_ctx=8192 n_layer=32 n_head=32 n_kv_head=8 n_embd=4096 n_ff=14336 tied=false "
           "rope_base=500000"},
    {"tinyllama-1.1b", LLAMA "vocab_size=32000 n_ctx=2048 n_layer=22 n_head=32 n_kv_head=4 n_embd=2048 n_ff=5632 "
                             "tied=false"},
};

/* "key=value", n characters, of the section model. */
static lm_status apply_word(lm_options *o, const char *word, size_t n, const char *preset, lm_error *err)
{
  char name[64], value[64], where[64];
  const char *equals = memchr(word, '=', n);
  LM_ASSERT(equals != NULL);
  snprintf(name, sizeof name, "model.%.*s", (int)(equals - word), word);
  snprintf(value, sizeof value, "%.*s", (int)(n - (size_t)(equals - word) - 1), equals + 1);
  snprintf(where, sizeof where, "preset %s", preset);
  return lm_options_set(o, name, value, LM_FROM_PRESET, where, err);
}

lm_status lm_config_apply_preset(const lm_config *cfg, lm_options *o, lm_error *err)
{
  const char *word = presets[cfg->model.preset].words;
  while (*word != '\0') {
    size_t n = strcspn(word, " ");
    LM_TRY(apply_word(o, word, n, presets[cfg->model.preset].name, err));
    word += n;
    word += strspn(word, " ");
  }
  return LM_OK;
}

static lm_status check_batch(const lm_config *cfg, lm_error *err)
{
  long long start = cfg->batch.ramp_start, tokens = cfg->batch.ramp_tokens, global = cfg->batch.global;
  if (start > global)
    return lm_fail(err, LM_EINVAL, "batch.ramp_start is %lld, above batch.global %lld; want at most that", start,
                   global);
  if ((start > 0) != (tokens > 0))
    return lm_fail(err, LM_EINVAL, "batch.ramp_start is %lld, batch.ramp_tokens is %lld; want both or none", start,
                   tokens);
  if (start > 0 && cfg->run.reproducible)
    return lm_fail(err, LM_EINVAL,
                   "run.reproducible adds gradients in the order of one batch, and batch.ramp_start is %lld; "
                   "want one of them",
                   start);
  if (cfg->optim.lr_scaling != LM_LR_SCALING_NONE && cfg->optim.base_batch == 0)
    return lm_fail(err, LM_EINVAL, "optim.lr_scaling wants optim.base_batch: the batch that optim.lr is meant for");
  return LM_OK;
}

static lm_status check_schedule(const lm_config *cfg, lm_error *err)
{
  lm_schedule s = lm_config_schedule(cfg);
  if ((cfg->schedule.warmup > 0) + (cfg->schedule.warmup_tokens > 0) + (cfg->schedule.warmup_fraction > 0) > 1)
    return lm_fail(
        err, LM_EINVAL, "schedule.warmup, warmup_tokens, warmup_fraction are %lld, %lld, %g; want one of them",
        (long long)cfg->schedule.warmup, (long long)cfg->schedule.warmup_tokens, cfg->schedule.warmup_fraction);
  if (s.warmup > s.end)
    return lm_fail(err, LM_EINVAL, "schedule.warmup is %lld steps, more than the %lld until schedule.end",
                   (long long)s.warmup, (long long)s.end);
  if (s.restarts && s.cycles < 1)
    return lm_fail(err, LM_EINVAL, "schedule.restarts with %g schedule.cycles; want at least 1", s.cycles);
  return LM_OK;
}

static lm_status check_writer(const lm_config *cfg, lm_error *err)
{
  const char *hints = cfg->checkpoint.mpiio_hints;
  lm_status s = lm_state_check_hints(hints, err);
  if (s != LM_OK) return lm_fail_in(err, s, "checkpoint.mpiio_hints");
  if (*hints == '\0' || cfg->checkpoint.writer == 1) return LM_OK;
  return lm_fail(err, LM_EINVAL, "checkpoint.mpiio_hints is '%s', which only checkpoint.writer=mpiio reads", hints);
}

/* These are used in f32, where the nearest number may be an end of the range that the row leaves out. */
static lm_status check_rounded(const lm_config *cfg, lm_error *err)
{
  const struct {
    const char *name;
    double value, end;
  } rows[] = {
      {"optim.beta1", cfg->optim.beta1, 1},
      {"optim.beta2", cfg->optim.beta2, 1},
      {"optim.momentum", cfg->optim.momentum, 1},
      {"optim.eps", cfg->optim.eps, 0},
      {"model.dropout", cfg->model.shape.dropout, 1},
      {"model.norm_eps", cfg->model.shape.norm_eps, 0},
      {"train.label_smoothing", cfg->train.label_smoothing, 1},
      {"scaler.min", cfg->scaler.min, 0},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    if ((double)(float)rows[i].value == rows[i].end)
      return lm_fail(err, LM_EINVAL, "%s is %.17g, which is %g in f32; want %s %g", rows[i].name, rows[i].value,
                     rows[i].end, rows[i].end > 0 ? "a number further below" : "a number further above", rows[i].end);
  return LM_OK;
}

/* What two keys say together. Everything about one key is in its row. */
static lm_status check(const lm_config *cfg, lm_error *err)
{
  const lm_scaler_config *scaler = &cfg->scaler;
  if (*cfg->run.folder == '\0')
    return lm_fail(err, LM_EINVAL, "run.folder is empty; want the folder that checkpoints and metrics go into");
  LM_TRY(check_rounded(cfg, err));
  if (!(scaler->min <= scaler->init && scaler->init <= scaler->max))
    return lm_fail(err, LM_EINVAL, "scaler.min, init, max are %g, %g, %g; want them in this order", scaler->min,
                   scaler->init, scaler->max);
  if (cfg->schedule.min_lr > cfg->optim.lr)
    return lm_fail(err, LM_EINVAL, "schedule.min_lr is %g, above optim.lr %g; want at most that", cfg->schedule.min_lr,
                   cfg->optim.lr);
  LM_TRY(check_batch(cfg, err));
  LM_TRY(check_schedule(cfg, err));
  LM_TRY(check_writer(cfg, err));
  if (cfg->eval.every > 0 && *cfg->data.val == '\0')
    return lm_fail(err, LM_EINVAL, "eval.every is %lld but data.val names no dataset", (long long)cfg->eval.every);
  if (cfg->run.reproducible && cfg->parallel.zero == LM_SHARD_GRADIENTS)
    return lm_fail(err, LM_EINVAL,
                   "run.reproducible is true with parallel.zero 2, which keeps no gradients of single "
                   "sequences; want parallel.zero 0 or 1");
  lm_model_config shape = cfg->model.shape;
  if (shape.vocab_size == 0) shape.vocab_size = 256; /* the data will say */
  return lm_model_config_check(&shape, err);
}

static lm_status begin(lm_config *cfg, lm_options **options, lm_error *err)
{
  *cfg = (lm_config){0};
  return lm_options_new(options, lm_config_options, lm_options_count(lm_config_options), cfg, err);
}

static lm_status finish(lm_config *cfg, lm_options **options, lm_status s, lm_error *err)
{
  if (s == LM_OK) s = lm_config_apply_preset(cfg, *options, err);
  if (s == LM_OK) s = check(cfg, err);
  if (s != LM_OK) {
    lm_options_free(*options);
    *options = NULL;
  }
  return s;
}

static lm_status read_words(lm_options *o, int argc, char **argv, lm_error *err)
{
  LM_TRY(lm_options_parse(o, argc, argv, err));
  const lm_list *words = lm_options_words(o);
  if (words->count != 1)
    return lm_fail(err, LM_EINVAL, "%zu config files are given%s%s, want one: CONFIG [--section.key=value]...",
                   words->count, words->count > 1 ? ", the second is " : "", words->count > 1 ? words->items[1] : "");
  return lm_options_read_yaml(o, words->items[0], err);
}

lm_status lm_config_load(lm_config *cfg, lm_options **options, int argc, char **argv, lm_error *err)
{
  LM_TRY(begin(cfg, options, err));
  return finish(cfg, options, read_words(*options, argc, argv, err), err);
}

lm_status lm_config_parse(lm_config *cfg, lm_options **options, const char *yaml, size_t n, const char *where,
                          lm_error *err)
{
  LM_TRY(begin(cfg, options, err));
  return finish(cfg, options, lm_options_parse_yaml(*options, yaml, n, where, err), err);
}

lm_ramp lm_config_ramp(const lm_config *cfg)
{
  uint64_t T = (uint64_t)cfg->model.shape.n_ctx, full = (uint64_t)cfg->batch.global;
  if (cfg->batch.ramp_start == 0) return (lm_ramp){.start = full, .full = full};
  return (lm_ramp){.start = (uint64_t)cfg->batch.ramp_start,
                   .full = full,
                   .samples = ((uint64_t)cfg->batch.ramp_tokens + T - 1) / T};
}

static int64_t warmup_steps(const lm_config *cfg, int64_t end)
{
  lm_ramp ramp = lm_config_ramp(cfg);
  uint64_t T = (uint64_t)cfg->model.shape.n_ctx, tokens = (uint64_t)cfg->schedule.warmup_tokens;
  if (tokens > 0) return (int64_t)lm_ramp_steps(&ramp, (tokens + T - 1) / T);
  if (cfg->schedule.warmup_fraction > 0) return llround(cfg->schedule.warmup_fraction * (double)end);
  return cfg->schedule.warmup;
}

static double lr_factor(const lm_config *cfg)
{
  if (cfg->optim.lr_scaling == LM_LR_SCALING_NONE || cfg->optim.base_batch == 0) return 1;
  double ratio = (double)cfg->batch.global / (double)cfg->optim.base_batch;
  return cfg->optim.lr_scaling == LM_LR_SCALING_LINEAR ? ratio : sqrt(ratio);
}

lm_schedule lm_config_schedule(const lm_config *cfg)
{
  int64_t end = cfg->schedule.end > 0 ? cfg->schedule.end : cfg->run.steps, warmup = warmup_steps(cfg, end);
  int64_t decay_from = end - llround(cfg->schedule.decay_fraction * (double)end);
  return (lm_schedule){.kind = (lm_schedule_kind)cfg->schedule.kind,
                       .peak = cfg->optim.lr * lr_factor(cfg),
                       .floor = cfg->schedule.min_lr * lr_factor(cfg),
                       .warmup = warmup,
                       .end = end,
                       .cycles = cfg->schedule.cycles,
                       .restarts = cfg->schedule.restarts,
                       .decay_from = decay_from > warmup ? decay_from : warmup,
                       .decay = (lm_decay)cfg->schedule.decay};
}

lm_optimizer_config lm_config_optimizer(const lm_config *cfg)
{
  float decay = (float)cfg->optim.weight_decay;
  return (lm_optimizer_config){
      .kind = (lm_optimizer_kind)cfg->optim.kind,
      .adamw = {.beta1 = (float)cfg->optim.beta1,
                .beta2 = (float)cfg->optim.beta2,
                .eps = (float)cfg->optim.eps,
                .decay = decay},
      .sgd = {.momentum = (float)cfg->optim.momentum, .nesterov = cfg->optim.nesterov, .decay = decay},
  };
}

lm_dtype lm_config_compute(const lm_config *cfg, const lm_kernels *k)
{
  static const lm_dtype types[] = {LM_F32, LM_BF16, LM_F16};
  if (cfg->precision != LM_PRECISION_AUTO) return types[cfg->precision];
  return strcmp(k->name, "cpu") != 0 || lm_cpu_bf16_is_fast() ? LM_BF16 : LM_F32;
}
