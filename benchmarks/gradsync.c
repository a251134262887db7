/* benchmarks/gradsync.c - what summing gradients over ranks costs: overlapped or not, against MPI's own collectives. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "gradsync/gradsync.h"
#include "base/clock.h"
#include "benchmarks/configured.h"

#include <stdio.h>
#include <stdlib.h>

/* usage: mpirun -n 2 gradsync [--model.preset=gpt2-124m --model.n_ctx=256 --batch.micro=2 ...]; run.steps rounds, in
 * which the ways take turns; the least time of each is told, that of the slowest rank */

enum { OVERLAPPED, AFTERWARDS, ALONE, ALLREDUCE, IALLREDUCE, IREDUCE_SCATTER, WAYS };
static const char *const names[] = {"overlapped step", "step, then sums", "sums alone",
                                    "MPI_Allreduce",   "MPI_Iallreduce",  "MPI_Ireduce_scatter_block"};

static void collective(const lm_comm *comm, int way, float *g, size_t elements)
{
  MPI_Request request;
  size_t piece = (size_t)25 << 18;
  float *out = malloc(piece * sizeof *out);
  for (size_t at = 0; at < elements; at += piece) {
    int n = (int)(elements - at < piece ? elements - at : piece);
    if (way == ALLREDUCE) {
      MPI_Allreduce(MPI_IN_PLACE, g + at, n, MPI_FLOAT, MPI_SUM, comm->mpi);
      continue;
    }
    if (way == IALLREDUCE)
      MPI_Iallreduce(MPI_IN_PLACE, g + at, n, MPI_FLOAT, MPI_SUM, comm->mpi, &request);
    else
      MPI_Ireduce_scatter_block(g + at, out, n / comm->size, MPI_FLOAT, MPI_SUM, comm->mpi, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  free(out);
}

static double once(const lm_comm *comm, int way, lm_model *m, lm_gradsync *sync, const int32_t *tokens, int B, int T)
{
  lm_train_args args = {.loss_scale = 1, .ready = lm_gradsync_ready, .context = sync};
  lm_gradsync_begin(sync);
  lm_barrier(comm);
  double begin = lm_clock();
  if (way <= AFTERWARDS) {
    lm_gradsync_begin_micro(sync);
    args.fresh = lm_gradsync_fresh(sync);
    lm_model_train(m, tokens, tokens + 1, B, T, &args);
    lm_gradsync_end_micro(sync);
  }
  if (way <= ALONE)
    lm_gradsync_finish(sync);
  else
    collective(comm, way, lm_model_gradients(m), lm_model_params(m)->elements);
  double seconds = lm_clock() - begin;
  lm_allreduce_max_f64(comm, &seconds, 1);
  return seconds;
}

static lm_status bench(const lm_comm *comm, const lm_config *cfg, lm_error *err)
{
  const lm_kernels *k;
  lm_model *m;
  lm_gradsync *sync[2];
  int B = (int)cfg->batch.micro, T = (int)cfg->model.shape.n_ctx;
  double best[WAYS] = {0};
  lm_model_config shape = cfg->model.shape;
  if (shape.vocab_size == 0) shape.vocab_size = 8192;
  LM_TRY(lm_kernels_select(&k, (lm_backend)cfg->backend, err));
  LM_TRY(lm_model_new(&m, &shape, k, lm_config_compute(cfg, k), B, true, err));
  uint64_t *first = calloc((size_t)comm->size + 1, sizeof *first);
  int32_t *tokens = malloc((size_t)(B * T + 1) * sizeof *tokens);
  for (int r = 0; r <= comm->size; r++) first[r] = (uint64_t)(r * B);
  for (int i = 0; i <= B * T; i++) tokens[i] = (int32_t)((unsigned)i * 2654435761u % (unsigned)shape.vocab_size);
  lm_gradsync_config how = {
      .bucket_bytes = (size_t)cfg->parallel.bucket_mb << 20, .overlap = true, .first = first, .micro = B};
  LM_TRY(lm_gradsync_new(&sync[0], comm, lm_model_params(m), k, NULL, lm_model_gradients(m), &how, err));
  how.overlap = false;
  LM_TRY(lm_gradsync_new(&sync[1], comm, lm_model_params(m), k, NULL, lm_model_gradients(m), &how, err));
  for (int64_t i = 0; i <= cfg->run.steps; i++)
    for (int way = 0; way < WAYS; way++) {
      double seconds = once(comm, way, m, sync[way != OVERLAPPED], tokens, B, T);
      if (i > 0 && (best[way] == 0 || seconds < best[way])) best[way] = seconds;
    }
  for (int way = 0; way < WAYS && comm->rank == 0; way++) printf("%-26s %8.1f ms\n", names[way], 1e3 * best[way]);
  if (comm->rank == 0) printf("overlapped / then sums: %.3f\n", best[OVERLAPPED] / best[AFTERWARDS]);
  free(tokens);
  free(first);
  lm_gradsync_free(sync[0]);
  lm_gradsync_free(sync[1]);
  lm_model_free(m);
  return LM_OK;
}

int main(int argc, char **argv)
{
  return lm_bench_main(argc, argv, bench);
}
