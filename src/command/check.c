/* src/command/check.c - mpilm check: are these nodes fit for this run? */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/log.h"
#include "command/command.h"
#include "config.h"
#include "train/preflight.h"
#include "train/stop.h"
#include "train/threads.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

struct check_options {
  double least;
  bool json;
};

static const lm_option options[] = {
    {"least", LM_OPT_FLOAT, offsetof(struct check_options, least), "0", "[0, 1]", NULL,
     "fail where a node computes or sends slower than this share of the median; 0 is only a warning"},
    {"json", LM_OPT_BOOL, offsetof(struct check_options, json), "false", NULL, NULL, "print one JSON object"},
};

static json_t *describe(const lm_preflight_rank *r)
{
  return json_pack("{s:s, s:i, s:s, s:i, s:f, s:f, s:f, s:f}", "host", r->host, "local_rank", r->local_rank, "backend",
                   r->backend, "threads", r->threads, "gflops", r->rate * 1e-9, "memory_gb", r->memory * 1e-9,
                   "link_gb_per_s", r->link * 1e-9, "clock_skew", r->clock_skew);
}

static void print_json(const lm_preflight *p, int size)
{
  json_t *list = json_array();
  for (int i = 0; i < size; i++) json_array_append_new(list, describe(&p->ranks[i]));
  json_t *report = json_pack("{s:i, s:f, s:f, s:f, s:o}", "ranks", size, "allreduce_gb_per_s", p->allreduce * 1e-9,
                             "state_gb", p->need * 1e-9, "free_gb", p->free_space * 1e-9, "nodes", list);
  json_dumpf(report, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
  putchar('\n');
  json_decref(report);
}

static void print_table(const lm_preflight *p, int size)
{
  printf("rank  local  host              backend  threads  GFLOP/s  memory GB  link GB/s  clock ms\n");
  for (int i = 0; i < size; i++) {
    const lm_preflight_rank *r = &p->ranks[i];
    printf("%4d  %5d  %-16s  %-7s  %7d  %7.0f  %9.1f  %9.2f  %8.1f\n", i, r->local_rank, r->host, r->backend,
           r->threads, r->rate * 1e-9, r->memory * 1e-9, r->link * 1e-9, 1e3 * r->clock_skew);
  }
  if (size > 1) printf("all-reduce %.2f GB/s\n", p->allreduce * 1e-9);
  if (p->free_space > 0)
    printf("a rank's state %.2f GB, free in the run folder %.1f GB\n", p->need * 1e-9, p->free_space * 1e-9);
}

/* Without a config only the nodes are looked at. */
static lm_status load(struct check_options *o, lm_options **own, lm_config *cfg, lm_options **config, int argc,
                      char **argv, lm_error *err)
{
  LM_TRY(lm_options_new(own, options, sizeof options / sizeof options[0], o, err));
  LM_TRY(lm_options_take(*own, &argc, argv, err));
  return argc > 0 ? lm_config_load(cfg, config, argc, argv, err) : LM_OK;
}

static lm_status run(const lm_comm *comm, int argc, char **argv, lm_error *err)
{
  struct check_options o;
  lm_config cfg;
  lm_options *own = NULL, *config = NULL;
  lm_preflight report = {0};
  lm_stop_watch(); /* a stop request does not end it: it takes seconds, and the job script acts on the request */
  lm_status s = lm_agree(comm, load(&o, &own, &cfg, &config, argc, argv, err), err);
  if (s == LM_OK) {
    lm_threads_set(comm, config != NULL ? cfg.run.threads : 0);
    s = lm_preflight_run(&report, comm, config != NULL ? &cfg : NULL, config, o.least, err);
  }
  if (s == LM_OK && comm->rank == 0) {
    if (o.json)
      print_json(&report, comm->size);
    else
      print_table(&report, comm->size);
  }
  free(report.ranks);
  lm_options_free(config);
  lm_options_free(own);
  return s;
}

const lm_command lm_command_check = {
    .name = "check",
    .usage = "check [CONFIG] [--least X] [--json] [--section.key=value]...",
    .summary = "are these nodes fit for this run: speed, memory, links, clocks, run folder, same program everywhere",
    .parallel = true,
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .run = run,
};
