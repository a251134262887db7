/* tests/gradsync/test_memory.c - bytes of a rank: the closed form, what it must be, and what the allocator counts. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/tap.h"
#include "train/memory.h"

#include <stdlib.h>

static const lm_kernels *kernels;
static size_t counted;

static lm_status count(void **out, size_t bytes, const char *what, lm_error *err)
{
  counted += bytes;
  return kernels->alloc(out, bytes, what, err);
}

enum { V = 257, C = 32, T = 16, L = 3, MICRO = 2, BUCKET = 1 << 20 };

/* Every parameter is rounded up to 64 elements; here all but the vocabulary's rows are multiples already, or 32 long.
 */
static const size_t embeddings = (size_t)384 * C + T * C, layer = 12 * C * C + 4 * 64 + 128 + 64 + 128 + 64,
                    behind = 2 * 64;

static size_t elements(void)
{
  return embeddings + L * layer + behind;
}

static size_t really_asked_for(const lm_comm *comm, const lm_rank_shape *shape)
{
  lm_kernels counting = *kernels;
  lm_model *m;
  lm_optimizer *opt;
  lm_gradsync *sync;
  lm_error err;
  counting.alloc = count;
  counting.on_device = shape->sync.device;
  counted = 0;
  if (lm_model_new_shared(&m, &shape->model, &counting, shape->compute, shape->sync.micro, shape->sharding, shape->rank,
                          shape->size, &err) != LM_OK ||
      lm_optimizer_new(&opt, lm_model_params(m), lm_model_weights(m), shape->compute, &counting, &shape->optimizer,
                       &err) != LM_OK)
    abort();
  if (lm_gradsync_new(&sync, comm, lm_model_params(m), &counting, NULL, lm_model_gradients(m), &shape->sync, &err) !=
      LM_OK)
    abort();
  lm_gradsync_free(sync);
  lm_optimizer_free(opt);
  lm_model_free(m);
  return counted;
}

static void check(const lm_comm *comm, lm_rank_shape *shape)
{
  lm_rank_memory memory;
  lm_error err;
  size_t N = elements(), size = (size_t)comm->size;
  size_t blocks = shape->compute == LM_F32 ? 2 : 3, width = shape->compute == LM_F32 ? 4 : 2;
  if (lm_rank_memory_of(&memory, shape, &err) != LM_OK) abort();
  tap_ok(lm_rank_memory_sum(&memory) == really_asked_for(comm, shape), "sharding %d, %s%s: as the allocator counts",
         shape->sharding, lm_dtype_name(shape->compute), shape->sync.device ? ", on devices" : "");
  size_t slack = memory.weights / width - N; /* none, or less than a cache line for each rank */
  tap_ok(slack < (shape->sharding > 0 ? 64 * size : 1) && memory.weights % width == 0, "weights: %zu elements", N);
  tap_ok(memory.gradients == 4 * (slack + (shape->sharding < 2 ? N : embeddings + 2 * layer + behind)), "gradients");
  double owned = shape->sharding > 0 ? (double)N / (double)size : (double)N;
  /* No part of a group is longer than an even share by a cache line; so the last ones may be shorter by some. */
  double rounding = 64.0 * (L + 2);
  tap_ok((double)memory.optimizer >= 4.0 * (double)blocks * (owned - (double)size * rounding) &&
             (double)memory.optimizer <= 4.0 * (double)blocks * (owned + rounding),
         "optimizer: %zu blocks of %.0f elements", blocks, owned);
  double all = (double)memory.optimizer;
  lm_allreduce_sum_f64(comm, &all, 1);
  tap_ok(all == 4.0 * (double)(blocks * N * (shape->sharding > 0 ? 1 : size)), "the ranks' shards are the whole");
  tap_ok((double)memory.exchange <= 2.0 * BUCKET + 4 * (owned + rounding), "exchange: two buckets, and what is owned");
}

int main(int argc, char **argv)
{
  lm_comm comm;
  lm_error err;
  uint64_t first[9];
  tap_begin(&comm, argc, argv);
  if (lm_kernels_select(&kernels, LM_BACKEND_CPU, &err) != LM_OK) return 1;
  for (int r = 0; r <= comm.size; r++) first[r] = 8 * (uint64_t)r / (uint64_t)comm.size;
  lm_rank_shape shape = {
      .model = {.vocab_size = V, .n_layer = L, .n_head = 2, .n_embd = C, .n_ctx = T, .tied = true, .bias = true},
      .optimizer = {.kind = LM_OPTIMIZER_ADAMW, .adamw = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f}},
      .rank = comm.rank,
      .size = comm.size,
      .sync = {.bucket_bytes = BUCKET, .overlap = true, .first = first, .micro = MICRO}};
  for (int sharding = 0; sharding <= 2; sharding++)
    for (int i = 0; i < 4; i++) {
      shape.sharding = (lm_sharding)sharding;
      shape.compute = i % 2 ? LM_BF16 : LM_F32;
      shape.sync.device = i / 2;
      check(&comm, &shape);
    }
  shape.sharding = LM_SHARD_OPTIMIZER;
  shape.sync.reproducible = true;
  shape.sync.micro = 1;
  lm_rank_memory memory;
  if (lm_rank_memory_of(&memory, &shape, &err) != LM_OK) return 1;
  tap_ok(lm_rank_memory_sum(&memory) == really_asked_for(&comm, &shape), "a tree on devices: as the allocator counts");
  return tap_end();
}
