/* src/model/config.c - does a model description make sense, and what does a step of it cost? */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "model/model.h"

/* With these, every size below fits: an int for a dimension, 64 bits for the bytes of a block. */
enum { MAX_VOCAB = 1 << 24, MAX_LAYERS = 1000, MAX_CHANNELS = 1 << 16, MAX_FF = 1 << 20, MAX_CONTEXT = 1 << 20 };

static lm_status check_range(const char *what, int64_t value, int64_t min, int64_t max, lm_error *err)
{
  if (value >= min && value <= max) return LM_OK;
  return lm_fail(err, LM_EINVAL, "model.%s is %lld; want %lld to %lld", what, (long long)value, (long long)min,
                 (long long)max);
}

/* `part` does not divide `whole`: name its nearest divisors on both sides; a side without one is 0. */
static lm_status fail_divisor(const char *whole, int64_t n, const char *part, int64_t k, lm_error *err)
{
  int64_t below = k, above = k;
  while (n % below != 0) below--; /* ends at 1 */
  while (above <= n && n % above != 0) above++;
  if (above > n)
    return lm_fail(err, LM_EINVAL,
                   "model.%s is %lld and model.%s is %lld, which does not divide it; want e.g. %lld heads", whole,
                   (long long)n, part, (long long)k, (long long)below);
  return lm_fail(err, LM_EINVAL,
                 "model.%s is %lld and model.%s is %lld, which does not divide it; want e.g. %lld or %lld heads", whole,
                 (long long)n, part, (long long)k, (long long)below, (long long)above);
}

lm_model_config lm_model_config_resolved(const lm_model_config *cfg)
{
  lm_model_config c = *cfg;
  if (c.n_kv_head == 0) c.n_kv_head = c.n_head;
  if (c.n_ff == 0) c.n_ff = c.mlp == LM_MLP_SWIGLU ? (8 * c.n_embd / 3 + 63) / 64 * 64 : 4 * c.n_embd;
  if (c.norm_eps == 0) c.norm_eps = 1e-5;
  if (c.rope.base == 0) c.rope.base = 10000;
  return c;
}

/* What is nothing to a model with learned positions is not looked at. */
static lm_status check_rope(const lm_model_config *cfg, lm_error *err)
{
  const lm_rope_config *r = &cfg->rope;
  if (cfg->position != LM_POSITION_ROPE) return LM_OK;
  if (cfg->n_embd / cfg->n_head % 2 != 0)
    return lm_fail(err, LM_EINVAL, "model.position is rope and a head has %lld channels; want an even number of them",
                   (long long)(cfg->n_embd / cfg->n_head));
  if (!(r->base > 1)) return lm_fail(err, LM_EINVAL, "model.rope_base is %g; want above 1", r->base);
  if (r->scaling == LM_ROPE_PLAIN) return LM_OK;
  if (!(r->factor >= 1 && r->low > 0 && r->high > r->low && r->ctx >= 1))
    return lm_fail(err, LM_EINVAL,
                   "model.rope_factor is %g, rope_low %g, rope_high %g, rope_ctx %lld; want a factor of at least 1, "
                   "0 < low < high, and a context",
                   r->factor, r->low, r->high, (long long)r->ctx);
  return LM_OK;
}

lm_status lm_model_config_check(const lm_model_config *cfg, lm_error *err)
{
  const lm_model_config c = lm_model_config_resolved(cfg);
  LM_TRY(check_range("vocab_size", c.vocab_size, 2, MAX_VOCAB, err));
  LM_TRY(check_range("n_layer", c.n_layer, 1, MAX_LAYERS, err));
  LM_TRY(check_range("n_embd", c.n_embd, 1, MAX_CHANNELS, err));
  LM_TRY(check_range("n_head", c.n_head, 1, MAX_CHANNELS, err));
  LM_TRY(check_range("n_kv_head", c.n_kv_head, 1, c.n_head, err));
  LM_TRY(check_range("n_ff", c.n_ff, 1, MAX_FF, err));
  LM_TRY(check_range("n_ctx", c.n_ctx, 1, MAX_CONTEXT, err));
  if (c.n_embd % c.n_head != 0) return fail_divisor("n_embd", c.n_embd, "n_head", c.n_head, err);
  if (c.n_head % c.n_kv_head != 0) return fail_divisor("n_head", c.n_head, "n_kv_head", c.n_kv_head, err);
  if (!(c.norm_eps > 0 && c.norm_eps < 1))
    return lm_fail(err, LM_EINVAL, "model.norm_eps is %g; want above 0, below 1", c.norm_eps);
  if (!(c.dropout >= 0 && c.dropout < 1))
    return lm_fail(err, LM_EINVAL, "model.dropout is %g; want at least 0, below 1", c.dropout);
  return check_rope(&c, err);
}

double lm_model_flops_per_token(const lm_model_config *cfg, int T)
{
  const lm_model_config c = lm_model_config_resolved(cfg);
  double V = (double)c.vocab_size, C = (double)c.n_embd, L = (double)c.n_layer, F = (double)c.n_ff;
  double D = C / (double)c.n_head, qkv = C + 2 * (double)c.n_kv_head * D, up = c.mlp == LM_MLP_SWIGLU ? 2 * F : F;
  double norm = c.bias && c.norm == LM_NORM_LAYERNORM ? 2 * C : C;
  double layer = qkv * C + C * C + up * C + F * C + 2 * norm;
  if (c.bias) layer += qkv + C + up + C;
  if (c.qk_norm) layer += 2 * D;
  double N = V * C + L * layer + norm; /* V C is the head, tied or not */
  return 6 * N + 6 * L * C * T;
}
