/* src/model/config.c - does a model description make sense, and what does a step of it cost? */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "model/model.h"

/* With these, every size below fits: an int for a dimension, 64 bits for the bytes of a block. */
enum { MAX_VOCAB = 1 << 24, MAX_LAYERS = 1000, MAX_CHANNELS = 1 << 16, MAX_CONTEXT = 1 << 20 };

static lm_status check_range(const char *what, int64_t value, int64_t min, int64_t max, lm_error *err)
{
  if (value >= min && value <= max) return LM_OK;
  return lm_fail(err, LM_EINVAL, "model.%s is %lld; want %lld to %lld", what, (long long)value, (long long)min,
                 (long long)max);
}

/* The nearest divisors of C on both sides of H; a side without one is 0. */
static lm_status fail_heads(int64_t C, int64_t H, lm_error *err)
{
  int64_t below = H, above = H;
  while (C % below != 0) below--; /* ends at 1 */
  while (above <= C && C % above != 0) above++;
  if (above > C)
    return lm_fail(err, LM_EINVAL,
                   "model.n_embd is %lld and model.n_head is %lld, which does not divide it; want e.g. %lld heads",
                   (long long)C, (long long)H, (long long)below);
  return lm_fail(
      err, LM_EINVAL,
      "model.n_embd is %lld and model.n_head is %lld, which does not divide it; want e.g. %lld or %lld heads",
      (long long)C, (long long)H, (long long)below, (long long)above);
}

lm_status lm_model_config_check(const lm_model_config *cfg, lm_error *err)
{
  LM_TRY(check_range("vocab_size", cfg->vocab_size, 2, MAX_VOCAB, err));
  LM_TRY(check_range("n_layer", cfg->n_layer, 1, MAX_LAYERS, err));
  LM_TRY(check_range("n_embd", cfg->n_embd, 1, MAX_CHANNELS, err));
  LM_TRY(check_range("n_head", cfg->n_head, 1, MAX_CHANNELS, err));
  LM_TRY(check_range("n_ctx", cfg->n_ctx, 1, MAX_CONTEXT, err));
  if (cfg->n_embd % cfg->n_head != 0) return fail_heads(cfg->n_embd, cfg->n_head, err);
  return LM_OK;
}

double lm_model_flops_per_token(const lm_model_config *cfg, int T)
{
  double V = (double)cfg->vocab_size, C = (double)cfg->n_embd, L = (double)cfg->n_layer;
  double biases = cfg->bias ? 3 * C + C + 4 * C + C + 2 * C : 0; /* qkv, out, up, down, two norms */
  double layer = 12 * C * C + 2 * C + biases, final_norm = cfg->bias ? 2 * C : C;
  double N = V * C + L * layer + final_norm; /* V C is the head, tied or not */
  return 6 * N + 6 * L * C * T;
}
