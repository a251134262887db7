/* benchmarks/layouts.c - a training step of the same batch: one rank with all threads against a rank a thread. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/clock.h"
#include "benchmarks/configured.h"
#include "gradsync/gradsync.h"
#include "optim/optimizer.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* usage: mpirun -n 2 --bind-to none layouts [--model.preset=gpt2-124m --model.n_ctx=256 --batch.global=4 ...]
 *
 * Whole steps, updates included, in run.steps rounds in which the ways take turns; the least time of each counts, that
 * of the slowest rank. Where one rank works alone with as many threads as there are ranks, the others sleep. */

typedef struct way {
  const char *name;
  bool alone, overlap, reproducible;
  lm_sharding sharding;
  int micro;
  lm_model *model;
  lm_optimizer *optimizer;
  lm_gradsync *sync;
  bool borrows; /* model and optimizer of the first way in which every rank has all */
  double best;
} way;

static way ways[] = {
    {.name = "one rank, all threads", .alone = true, .overlap = true},
    {.name = "a rank a thread", .overlap = true},
    {.name = "  sums after backward", .overlap = false},
    {.name = "  zero 1", .overlap = true, .sharding = LM_SHARD_OPTIMIZER},
    {.name = "  zero 2", .overlap = true, .sharding = LM_SHARD_GRADIENTS},
    {.name = "  reproducible", .overlap = true, .reproducible = true},
};
enum { WAYS = sizeof ways / sizeof ways[0] };

static lm_status make(way *w, const lm_comm *comm, const lm_config *cfg, const lm_kernels *k, const uint64_t *first,
                      lm_error *err)
{
  lm_model_config shape = cfg->model.shape;
  lm_optimizer_config optimizer = lm_config_optimizer(cfg);
  if (shape.vocab_size == 0) shape.vocab_size = 8192;
  w->micro = w->reproducible ? 1 : (int)(first[comm->rank + 1] - first[comm->rank]);
  lm_dtype compute = lm_config_compute(cfg, k);
  w->borrows = !w->alone && w != &ways[1] && w->sharding == LM_SHARD_NOTHING;
  if (w->borrows) {
    w->model = ways[1].model;
    w->optimizer = ways[1].optimizer;
  } else {
    LM_TRY(lm_model_new_shared(&w->model, &shape, k, compute, w->micro, w->sharding, comm->rank, comm->size, err));
    LM_TRY(lm_optimizer_new(&w->optimizer, lm_model_params(w->model), lm_model_weights(w->model), compute, k,
                            &optimizer, err));
  }
  lm_gradsync_config how = {.bucket_bytes = (size_t)cfg->parallel.bucket_mb << 20,
                            .overlap = w->overlap,
                            .reproducible = w->reproducible,
                            .first = first,
                            .micro = w->micro};
  return lm_gradsync_new(&w->sync, comm, lm_model_params(w->model), k, NULL, lm_model_gradients(w->model), &how, err);
}

static void step(way *w, const int32_t *tokens, uint64_t count, int T)
{
  lm_train_args args = {.loss_scale = 1, .ready = lm_gradsync_ready, .context = w->sync};
  lm_gradsync_begin(w->sync);
  for (uint64_t done = 0; done < count; done += (uint64_t)w->micro) {
    lm_gradsync_begin_micro(w->sync);
    args.fresh = lm_gradsync_fresh(w->sync);
    lm_model_train(w->model, tokens, tokens + 1, w->micro, T, &args);
    lm_gradsync_end_micro(w->sync);
  }
  lm_gradsync_finish(w->sync);
  double norm = lm_gradsync_squares(w->sync);
  lm_optimizer_step(w->optimizer, lm_gradsync_sums(w->sync), 1e-9f, norm > 1 ? 0.5f : 1, 1);
  lm_gradsync_gather(w->sync, lm_model_weights(w->model), lm_model_compute(w->model));
}

/* A barrier that leaves the cores to the ranks that are not yet there. */
static void sleep_until_all(const lm_comm *comm)
{
  MPI_Request request;
  int there = 0;
  MPI_Ibarrier(comm->mpi, &request);
  while (MPI_Test(&request, &there, MPI_STATUS_IGNORE), !there) nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

static double once(const lm_comm *comm, way *w, const int32_t *tokens, uint64_t count, int T)
{
  sleep_until_all(comm);
  omp_set_num_threads(w->alone ? comm->size : 1);
  double begin = lm_clock();
  if (!w->alone || comm->rank == 0) step(w, tokens, count, T);
  double seconds = lm_clock() - begin;
  sleep_until_all(comm);
  lm_allreduce_max_f64(comm, &seconds, 1);
  return seconds;
}

/* After each round: a run that is cut short has told what it knows. */
static void report(int64_t round, double tokens)
{
  printf("round %lld\n", (long long)round);
  for (int i = 0; i < WAYS; i++)
    printf("%-24s %9.1f ms %9.0f tokens/s  %.3f of one rank\n", ways[i].name, 1e3 * ways[i].best, tokens / ways[i].best,
           ways[0].best / ways[i].best);
  printf("overlapped / sums after backward: %.3f of the time\n", ways[1].best / ways[2].best);
  fflush(stdout);
}

static lm_status make_all(const lm_comm *comm, const lm_config *cfg, uint64_t *first, lm_error *err)
{
  static lm_comm self;
  static uint64_t whole[2];
  const lm_kernels *k;
  LM_TRY(lm_kernels_select(&k, (lm_backend)cfg->backend, err));
  for (int r = 0; r <= comm->size; r++) first[r] = (uint64_t)(cfg->batch.global * r / comm->size);
  whole[1] = first[comm->size];
  lm_comm_self(&self);
  if (comm->rank == 0) LM_TRY(make(&ways[0], &self, cfg, k, whole, err));
  for (int i = 1; i < WAYS; i++) LM_TRY(make(&ways[i], comm, cfg, k, first, err));
  return LM_OK;
}

static lm_status bench(const lm_comm *comm, const lm_config *cfg, lm_error *err)
{
  int T = (int)cfg->model.shape.n_ctx;
  if (cfg->batch.global % comm->size != 0)
    return lm_fail(err, LM_EINVAL, "batch.global is %lld; want a multiple of the %d ranks",
                   (long long)cfg->batch.global, comm->size);
  uint64_t *first = calloc((size_t)comm->size + 1, sizeof *first), mine;
  int32_t *tokens = malloc((size_t)(cfg->batch.global * T + 1) * sizeof *tokens);
  for (int64_t i = 0; i <= cfg->batch.global * T; i++) tokens[i] = (int32_t)((uint32_t)i * 2654435761u % 8192);
  LM_TRY(make_all(comm, cfg, first, err));
  for (int64_t i = 0; i <= cfg->run.steps; i++) {
    for (way *w = ways; w < ways + WAYS; w++) {
      mine = w->alone ? (uint64_t)cfg->batch.global : first[comm->rank + 1] - first[comm->rank];
      double seconds = once(comm, w, tokens, mine, T);
      if (i > 0 && (w->best == 0 || seconds < w->best)) w->best = seconds;
    }
    if (i > 0 && comm->rank == 0) report(i, (double)(cfg->batch.global * T));
  }
  for (way *w = ways; w < ways + WAYS; w++) {
    lm_gradsync_free(w->sync);
    if (w->borrows) continue;
    lm_optimizer_free(w->optimizer);
    lm_model_free(w->model);
  }
  free(tokens);
  free(first);
  return LM_OK;
}

int main(int argc, char **argv)
{
  return lm_bench_main(argc, argv, bench);
}
