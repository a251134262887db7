/* benchmarks/configured.c - a benchmark on several ranks whose words are the keys of a config. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "benchmarks/configured.h"

#include "base/log.h"

int lm_bench_main(int argc, char **argv, lm_status (*bench)(const lm_comm *comm, const lm_config *cfg, lm_error *err))
{
  lm_comm comm;
  lm_config cfg;
  lm_options *o = NULL;
  lm_error err;
  lm_status s = lm_comm_world(&comm, &argc, &argv, &err);
  if (s == LM_OK) s = lm_options_new(&o, lm_config_options, lm_options_count(lm_config_options), &cfg, &err);
  if (s == LM_OK) s = lm_options_parse(o, argc - 1, argv + 1, &err);
  if (s == LM_OK) s = lm_config_apply_preset(&cfg, o, &err);
  if (s == LM_OK) s = bench(&comm, &cfg, &err);
  if (s != LM_OK) lm_log_error(&err);
  lm_options_free(o);
  lm_comm_end(&comm);
  return lm_exit_code(s);
}
