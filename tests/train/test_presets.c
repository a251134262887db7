/* tests/train/test_presets.c - every preset is the model that it says. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/tap.h"
#include "train/run_config.h"

#include <stdio.h>
#include <string.h>

/* GPT-3's sizes by the formula for GPT-2's architecture: embeddings, 12 C^2 + 13 C a layer, the final norm. */
static size_t gpt3(size_t L, size_t C)
{
  return 50257 * C + 2048 * C + L * (12 * C * C + 13 * C) + 2 * C;
}

static void test_preset(const char *name, size_t want)
{
  char yaml[128];
  lm_config cfg;
  lm_options *options;
  lm_param_table t;
  lm_error err = {0};
  int n = snprintf(yaml, sizeof yaml, "model:\n  preset: %s\n", name);
  lm_status s = lm_config_parse(&cfg, &options, yaml, (size_t)n, "test", &err);
  if (!tap_ok(s == LM_OK, "%s is a preset %s", name, err.text)) return;
  if (cfg.model.shape.vocab_size == 0) cfg.model.shape.vocab_size = 257;
  s = lm_param_table_new(&t, &cfg.model.shape, &err);
  tap_ok(s == LM_OK && t.parameters == want, "%s: %zu parameters (%zu)", name, want, t.parameters);
  lm_param_table_free(&t);
  lm_options_free(options);
}

static void test_overrides(void)
{
  static const char yaml[] = "model:\n  preset: llama-1b\n  n_layer: 2\n  tied: false\n";
  lm_config cfg;
  lm_options *options;
  lm_error err = {0};
  lm_status s = lm_config_parse(&cfg, &options, yaml, strlen(yaml), "test", &err);
  const lm_model_config *m = &cfg.model.shape;
  tap_ok(s == LM_OK && m->n_layer == 2 && !m->tied && m->n_kv_head == 8, "what the config says beats its preset");
  tap_ok(m->rope.scaling == LM_ROPE_LLAMA3 && m->rope.factor == 32 && m->rope.base == 500000 && m->rope.low == 1 &&
             m->rope.high == 4 && m->rope.ctx == 8192 && m->norm_eps == 1e-5,
         "Llama 3.2's positions");
  lm_options_free(options);
}

int main(int argc, char **argv)
{
  lm_comm comm;
  tap_begin(&comm, argc, argv);
  test_preset("tiny", 34208);
  test_preset("gpt2-124m", 124439808);
  test_preset("gpt2-350m", 354823168);
  test_preset("gpt2-774m", 774030080);
  test_preset("gpt2-1558m", 1557611200);
  test_preset("gpt3-125m", gpt3(12, 768));
  test_preset("gpt3-350m", gpt3(24, 1024));
  test_preset("gpt3-760m", gpt3(24, 1536));
  test_preset("gpt3-1.3b", gpt3(24, 2048));
  test_preset("gpt3-2.7b", gpt3(32, 2560));
  test_preset("gpt3-6.7b", gpt3(32, 4096));
  test_preset("gpt3-13b", gpt3(40, 5120));
  test_preset("gpt3-175b", gpt3(96, 12288));
  test_preset("llama-1b", 1235814400);
  test_preset("llama-8b", 8030261248);
  test_preset("tinyllama-1.1b", 1100048384);
  test_overrides();
  return tap_end();
}
