/* benchmarks/configured.h - a benchmark on several ranks whose words are the keys of a config. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_BENCHMARKS_CONFIGURED_H
#define LM_BENCHMARKS_CONFIGURED_H

#include "comm/comm.h"
#include "train/run_config.h"

/** Start MPI, read --section.key=value words, run `bench`, end. Collective. @return the exit code for main() */
int lm_bench_main(int argc, char **argv, lm_status (*bench)(const lm_comm *comm, const lm_config *cfg, lm_error *err));

#endif
