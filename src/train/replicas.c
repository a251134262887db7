/* src/train/replicas.c - do all ranks still have the same weights? */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/replicas.h"

#include "base/hash.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>

/* Weights come to the host a piece at a time: a model need not fit there twice. */
enum { PIECE = 1 << 20 };

static uint64_t hash_tensor(const lm_kernels *k, const char *weights, const lm_param *p, size_t width, char *piece)
{
  uint64_t hash = 0;
  size_t bytes = p->count * width;
  for (size_t at = 0; at < bytes; at += PIECE) {
    size_t n = bytes - at < PIECE ? bytes - at : PIECE;
    k->to_host(piece, weights + p->offset * width + at, n);
    hash = lm_hash_seeded(piece, n, hash);
  }
  return hash;
}

static lm_status hash_all(const lm_param_table *table, const lm_kernels *k, const void *weights, lm_dtype t,
                          uint64_t **out, lm_error *err)
{
  char *piece;
  *out = NULL;
  LM_TRY(lm_alloc(&piece, PIECE, 1, "a piece of the weights", err));
  lm_status s = lm_alloc(out, table->n, sizeof **out, "the hashes of the weights", err);
  for (size_t i = 0; s == LM_OK && i < table->n; i++)
    (*out)[i] = hash_tensor(k, weights, &table->params[i], lm_dtype_size(t), piece);
  free(piece);
  return s;
}

/* The hash that most ranks have; of equals the one of the lowest rank. */
static uint64_t most_common(const uint64_t *of_rank, int size)
{
  int best = 0, best_count = 0;
  for (int i = 0; i < size; i++) {
    int count = 0;
    for (int j = 0; j < size; j++) count += of_rank[j] == of_rank[i];
    if (count > best_count) {
      best = i;
      best_count = count;
    }
  }
  return of_rank[best];
}

/* @return false: all the same; else the ranks that differ from the most, in words */
static bool who_differs(const uint64_t *of_rank, int size, char *out, size_t n)
{
  uint64_t right = most_common(of_rank, size);
  size_t used = 0;
  int count = 0;
  for (int rank = 0; rank < size; rank++)
    if (of_rank[rank] != right && count++ < 16 && used < n)
      used += (size_t)snprintf(out + used, n - used, "%s%d", count > 1 ? ", " : "", rank);
  return count > 0;
}

/* Something differs: which tensor, first in the order of the forward pass, and on which ranks? */
static lm_status name_difference(const lm_comm *comm, const lm_param_table *table, const uint64_t *mine,
                                 uint64_t *of_rank, lm_error *err)
{
  char ranks[256] = "";
  for (size_t i = 0; i < table->n; i++) {
    lm_allgather(comm, &mine[i], sizeof mine[i], of_rank);
    if (who_differs(of_rank, comm->size, ranks, sizeof ranks))
      return lm_fail(err, LM_ENUMERIC, "replicas differ: %s is not the same on rank %s of %d as on the others",
                     table->params[i].name, ranks, comm->size);
  }
  return LM_OK;
}

lm_status lm_check_replicas(const lm_comm *comm, const lm_param_table *table, const lm_kernels *k, const void *weights,
                            lm_dtype t, lm_error *err)
{
  uint64_t *mine = NULL, *of_rank = NULL;
  char ranks[256];
  lm_status s = hash_all(table, k, weights, t, &mine, err);
  if (s == LM_OK) s = lm_alloc(&of_rank, (size_t)comm->size, sizeof *of_rank, "the hashes of the ranks", err);
  s = lm_agree(comm, s, err);
  if (s == LM_OK) {
    uint64_t all = lm_hash(mine, table->n * sizeof *mine);
    lm_allgather(comm, &all, sizeof all, of_rank);
    if (who_differs(of_rank, comm->size, ranks, sizeof ranks)) s = name_difference(comm, table, mine, of_rank, err);
  }
  free(of_rank);
  free(mine);
  return s;
}
