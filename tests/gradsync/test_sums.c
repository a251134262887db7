/* tests/gradsync/test_sums.c - sums of gradients over ranks: every sharding, bucket and share of sequences. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "gradsync/gradsync.h"
#include "model/model.h"
#include "optim/optimizer.h"
#include "tests/gradsync/host_fabric.h"
#include "tests/kernels/random.h"
#include "tests/tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What one check runs with. */
typedef struct {
  lm_sharding sharding;
  bool device;                        /* summed by a fabric */
  bool overlap, reproducible, random; /* random: gradients whose sums are rounded; else small whole numbers */
  size_t bucket_bytes;
  uint64_t batch;
  int micro;
} setup;

typedef struct {
  lm_param_table table;
  float *gradients;
  lm_gradsync *sync;
  uint64_t first[9];
} world;

static const lm_kernels *kernels;
static lm_device_comm *joined;

static void put_table(lm_param_table *t)
{
  const lm_model_config cfg = {
      .vocab_size = 257, .n_layer = 4, .n_head = 2, .n_embd = 32, .n_ctx = 16, .tied = true, .bias = true};
  lm_error err;
  if (lm_param_table_new(t, &cfg, &err) != LM_OK) abort();
}

static lm_status begin(world *w, const lm_comm *comm, const setup *s, lm_error *err)
{
  *w = (world){0};
  put_table(&w->table);
  lm_param_table_shard(&w->table, s->sharding, comm->rank, comm->size);
  w->gradients = calloc(w->table.gradient_elements + w->table.slack, sizeof(float));
  for (int r = 0; r <= comm->size; r++) w->first[r] = s->batch * (uint64_t)r / (uint64_t)comm->size;
  const lm_gradsync_config cfg = {.bucket_bytes = s->bucket_bytes,
                                  .overlap = s->overlap,
                                  .reproducible = s->reproducible,
                                  .first = w->first,
                                  .micro = s->micro,
                                  .device = s->device};
  return lm_gradsync_new(&w->sync, comm, &w->table, kernels, s->device ? joined : NULL, w->gradients, &cfg, err);
}

static void end(world *w)
{
  lm_gradsync_free(w->sync);
  free(w->gradients);
  lm_param_table_free(&w->table);
}

/* The gradient of an element of the flat space, of one sequence. */
static float gradient(const setup *s, uint64_t sequence, size_t element)
{
  if (s->random) return (float)random_in(sequence, element, -1, 1);
  return (float)((int)((sequence * 31 + element * 7) % 13) - 6);
}

/* What backward does with a group: it adds. */
static void add_group(world *w, const setup *s, const lm_param_group *g, uint64_t sequence)
{
  for (size_t i = 0; i < g->count; i++) w->gradients[g->window + i] += gradient(s, sequence, g->begin + i);
}

/* What is stored need not be 0, and here it never is. */
static void write_over(world *w)
{
  for (size_t i = 0; i < w->table.n; i++) {
    const lm_param *p = &w->table.params[i];
    if (p->stored) memset(w->gradients + p->offset, 0, p->reserved * sizeof(float));
  }
}

/* The first group, which holds a tied head, gets its gradient in two halves: before and after the others. */
static void backward(world *w, const setup *s, uint64_t first, uint64_t n)
{
  lm_gradsync_begin_micro(w->sync);
  if (lm_gradsync_fresh(w->sync)) write_over(w);
  for (uint64_t q = first; q < first + n; q += 2) add_group(w, s, &w->table.groups[0], q);
  for (size_t g = w->table.n_groups - 1; g > 0; g--) {
    for (uint64_t q = first; q < first + n; q++) add_group(w, s, &w->table.groups[g], q);
    lm_gradsync_ready(w->sync, w->table.groups[g].begin);
  }
  for (uint64_t q = first + 1; q < first + n; q += 2) add_group(w, s, &w->table.groups[0], q);
  lm_gradsync_ready(w->sync, 0);
  lm_gradsync_end_micro(w->sync);
}

static void step(world *w, const lm_comm *comm, const setup *s)
{
  uint64_t last = w->first[comm->rank + 1], micro = (uint64_t)s->micro;
  lm_gradsync_begin(w->sync);
  for (uint64_t q = w->first[comm->rank]; q < last; q += micro) backward(w, s, q, last - q < micro ? last - q : micro);
  lm_gradsync_finish(w->sync);
}

static float whole_sum(const setup *s, size_t element)
{
  float sum = 0;
  for (uint64_t q = 0; q < s->batch; q++) sum += gradient(s, q, element);
  return sum;
}

/* Whole numbers: every order gives the same. */
static bool sums_are_right(const world *w, const setup *s)
{
  const float *g = lm_gradsync_sums(w->sync);
  for (size_t i = 0; i < w->table.n; i++) {
    const lm_param *p = &w->table.params[i];
    for (size_t j = 0; j < p->own_count; j++)
      if (g[p->gradient_at + j] != whole_sum(s, p->offset + p->own_begin + j)) return false;
  }
  return true;
}

/* Of the parameters alone: backward here also writes to the padding. */
static double whole_squares(const world *w, const setup *s)
{
  double sum = 0;
  for (size_t i = 0; i < w->table.n; i++)
    for (size_t j = 0; j < w->table.params[i].count; j++) {
      double x = whole_sum(s, w->table.params[i].offset + j);
      sum += x * x;
    }
  return sum;
}

static void check_sums(const lm_comm *comm, const setup *s)
{
  world w;
  lm_error err;
  if (!tap_ok(begin(&w, comm, s, &err) == LM_OK, "sharding %d, batch %d: made", s->sharding, (int)s->batch)) return;
  step(&w, comm, s);
  step(&w, comm, s); /* the second begins with what the first left */
  tap_ok(sums_are_right(&w, s), "sharding %d, overlap %d, tree %d, buckets of %zu, batch %d, micro-batch %d%s: sums",
         s->sharding, s->overlap, s->reproducible, s->bucket_bytes, (int)s->batch, s->micro,
         s->device ? ", fabric" : "");
  tap_ok(lm_gradsync_squares(w.sync) == whole_squares(&w, s), "and the norm, padding not counted");
  end(&w);
}

static void check_all_sums(const lm_comm *comm)
{
  static const size_t buckets[] = {1, 3000, 25 << 20};
  static const uint64_t batches[] = {1, 7, 12};
  for (int sharding = 0; sharding <= 2; sharding++)
    for (int i = 0; i < 9; i++) {
      setup s = {.sharding = (lm_sharding)sharding, .bucket_bytes = buckets[i % 3], .batch = batches[i / 3]};
      s.overlap = i % 2;
      s.micro = 1 + i % 3;
      check_sums(comm, &s);
      s.device = true;
      check_sums(comm, &s);
      s.device = false;
      s.reproducible = true;
      s.micro = 1;
      if (sharding < 2) check_sums(comm, &s);
    }
}

/* ---- the same bits ---- */

/* This rank's part of the sums, wherever they lie, in the order of the flat space; 0 elsewhere. */
static float *own_part(const lm_comm *comm, const world *w)
{
  float *out = calloc(w->table.elements, sizeof *out);
  const float *g = lm_gradsync_sums(w->sync);
  lm_param_table cut;
  put_table(&cut);
  lm_param_table_shard(&cut, LM_SHARD_OPTIMIZER, comm->rank, comm->size);
  for (size_t i = 0; i < cut.n; i++) {
    const lm_param *p = &cut.params[i], *q = &w->table.params[i];
    for (size_t j = 0; j < p->own_count; j++)
      out[p->offset + p->own_begin + j] = g[q->gradient_at + p->own_begin - q->own_begin + j];
  }
  lm_param_table_free(&cut);
  return out;
}

static float *sums_with(const lm_comm *comm, const setup *s, double *squares)
{
  world w;
  lm_error err;
  if (begin(&w, comm, s, &err) != LM_OK) abort();
  step(&w, comm, s);
  float *out = own_part(comm, &w);
  *squares = lm_gradsync_squares(w.sync);
  end(&w);
  return out;
}

static void same_bits(const lm_comm *comm, const setup *a, const setup *b, const char *words)
{
  double squares_a, squares_b;
  float *x = sums_with(comm, a, &squares_a), *y = sums_with(comm, b, &squares_b);
  lm_param_table t;
  put_table(&t);
  tap_ok(memcmp(x, y, t.elements * sizeof *x) == 0, "%s: the same sums", words);
  tap_ok(!a->reproducible || squares_a == squares_b, "%s: and the same norm, if it must be", words);
  lm_param_table_free(&t);
  free(x);
  free(y);
}

static void check_bits(const lm_comm *comm)
{
  const setup a = {.overlap = true, .random = true, .bucket_bytes = 5000, .batch = 11, .micro = 2};
  setup b = a;
  b.overlap = false;
  same_bits(comm, &a, &b, "overlapped or not");
  b.bucket_bytes = 25 << 20;
  same_bits(comm, &a, &b, "small buckets or large");
  b.sharding = LM_SHARD_OPTIMIZER;
  same_bits(comm, &a, &b, "sharded or not");
  setup c = a;
  c.sharding = b.sharding = LM_SHARD_GRADIENTS;
  same_bits(comm, &b, &c, "through windows, overlapped or not");
  setup tree = {.reproducible = true, .random = true, .bucket_bytes = 5000, .batch = 11, .micro = 1}, sharded = tree;
  sharded.sharding = LM_SHARD_OPTIMIZER;
  same_bits(comm, &tree, &sharded, "as a tree, sharded or not");
  tree.device = sharded.device = true;
  same_bits(comm, &tree, &sharded, "as a tree over the fabric, sharded or not");
}

static float node(const setup *s, uint64_t first, uint64_t count, size_t element)
{
  if (first >= s->batch) return -0.0f; /* changes no sum */
  if (count == 1) return gradient(s, first, element);
  return node(s, first, count / 2, element) + node(s, first + count / 2, count / 2, element);
}

static void check_tree(const lm_comm *comm)
{
  for (uint64_t i = 2; i <= 19; i++) {
    uint64_t batch = i / 2 < 9 ? i / 2 : 12;
    const setup s = {
        .device = i % 2, .reproducible = true, .random = true, .bucket_bytes = 9000, .batch = batch, .micro = 1};
    world w;
    lm_error err;
    if (begin(&w, comm, &s, &err) != LM_OK) abort();
    step(&w, comm, &s);
    size_t wrong = 0;
    for (size_t e = 0; e < w.table.elements; e += 17) wrong += lm_gradsync_sums(w.sync)[e] != node(&s, 0, 16, e);
    tap_ok(wrong == 0, "a batch of %d%s: sums are those of the tree, whatever the ranks", (int)batch,
           s.device ? ", fabric" : "");
    end(&w);
  }
}

/* ---- weights, norms, failures ---- */

static void check_gather(const lm_comm *comm)
{
  for (int sharding = 0; sharding <= 2; sharding++)
    for (int i = 0; i < 4; i++) {
      world w;
      lm_error err;
      const int width = i < 2 ? 2 : 4;
      const setup s = {
          .sharding = (lm_sharding)sharding, .device = i % 2, .bucket_bytes = 1 << 20, .batch = 4, .micro = 1};
      if (begin(&w, comm, &s, &err) != LM_OK) abort();
      unsigned char *x = calloc(w.table.elements + w.table.slack, 4);
      for (size_t k = 0; k < w.table.n_groups; k++) {
        const lm_param_group *g = &w.table.groups[k];
        for (size_t j = (g->begin + g->own_begin) * (size_t)width;
             j < (g->begin + g->own_begin + g->own_count) * (size_t)width; j++)
          x[j] = (unsigned char)(j % 251 + 1);
      }
      lm_gradsync_gather(w.sync, x, width == 2 ? LM_BF16 : LM_F32);
      size_t wrong = 0;
      for (size_t j = 0; j < w.table.elements * (size_t)width; j++) wrong += x[j] != j % 251 + 1;
      tap_ok(wrong == 0, "sharding %d, %d bytes an element%s: all have all weights", sharding, width,
             s.device ? ", fabric" : "");
      free(x);
      end(&w);
    }
}

/* Gradients 3 at the start of the first shard and 4 at the end of the last: the norm is 5, on all ranks. */
static void check_norm(const lm_comm *comm)
{
  lm_param row = {.count = 500, .reserved = 512, .shape = {500, 1}, .ndim = 1};
  lm_param_group group;
  lm_param_table t = {.n = 1, .params = &row, .elements = 512, .n_groups = 1, .groups = &group};
  uint64_t first[9];
  for (int r = 0; r <= comm->size; r++) first[r] = (uint64_t)r;
  lm_param_table_group(&t);
  for (int sharding = 0; sharding <= 2; sharding++) {
    float g[512];
    lm_gradsync *sync;
    lm_error err;
    lm_param_table_shard(&t, (lm_sharding)sharding, comm->rank, comm->size);
    const lm_gradsync_config cfg = {.bucket_bytes = 100, .first = first, .micro = 1};
    if (lm_gradsync_new(&sync, comm, &t, kernels, NULL, g, &cfg, &err) != LM_OK) abort();
    lm_gradsync_begin(sync);
    lm_gradsync_begin_micro(sync);
    g[0] = comm->rank == 0 ? 3 : 0;
    g[499] = comm->rank == comm->size - 1 ? 4 : 0;
    g[500] = 1e30f; /* padding */
    lm_gradsync_ready(sync, 0);
    lm_gradsync_end_micro(sync);
    lm_gradsync_finish(sync);
    double norm = sqrt(lm_gradsync_squares(sync));
    tap_ok(norm == 5, "sharding %d: gradients 3 and 4 have the norm 5", sharding);
    tap_ok(lm_clip_factor(norm, 1) == 0.2, "clipped to 1 they are scaled by 0.2, on all ranks");
    tap_ok(lm_clip_factor(norm, 5) == 1 && lm_clip_factor(norm, 0) == 1, "clipped to 5, or to anything, by 1");
    lm_gradsync_free(sync);
  }
}

static lm_status no_memory(void **out, size_t bytes, const char *what, lm_error *err)
{
  *out = NULL;
  return lm_fail(err, LM_ENOMEM, "no memory for %s (%zu bytes)", what, bytes);
}

static void check_failures(const lm_comm *comm)
{
  lm_kernels poor = *kernels;
  const lm_kernels *rich = kernels;
  poor.alloc = no_memory;
  for (int bad = 0; bad < comm->size; bad++) {
    world w;
    lm_error err = {0};
    setup s = {.sharding = LM_SHARD_GRADIENTS, .bucket_bytes = comm->rank == bad ? 0 : 1000, .batch = 4, .micro = 1};
    tap_alone(lm_gradsync_new, bad, begin(&w, comm, &s, &err), LM_EINVAL, &err, "0");
    tap_ok(w.sync == NULL, "nothing is made");
    end(&w);
    s.bucket_bytes = 1000;
    if (comm->rank == bad) kernels = &poor;
    tap_alone(lm_gradsync_new, bad, begin(&w, comm, &s, &err), LM_ENOMEM, &err, "no memory");
    kernels = rich;
    end(&w);
    tap_ok(begin(&w, comm, &s, &err) == LM_OK, "then all can");
    end(&w);
  }
  const setup s = {.sharding = LM_SHARD_GRADIENTS, .reproducible = true, .bucket_bytes = 1000, .batch = 4, .micro = 1};
  world w;
  lm_error err;
  tap_ok(begin(&w, comm, &s, &err) == LM_EINVAL && strstr(err.text, "want 0 or 1") != NULL, "no tree through windows");
  end(&w);
}

static void check_joining(const lm_comm *comm)
{
  lm_device_comm *d;
  lm_error err = {0};
  for (int bad = 0; bad < comm->size; bad++) {
    fabric_broken_rank = bad;
    tap_alone(lm_device_comm_new, bad, lm_device_comm_new(&d, comm, &host_fabric, 1, 1, &err), LM_EIO, &err,
              "has no device");
    tap_ok(d == NULL && fabric_joined == 1, "and none stays in the group");
  }
  fabric_broken_rank = -2;
  tap_alone(lm_device_comm_new, 0, lm_device_comm_new(&d, comm, &host_fabric, 1, 1, &err), LM_EIO, &err, "no network");
  fabric_broken_rank = -1;
}

int main(int argc, char **argv)
{
  lm_comm comm;
  lm_error err;
  tap_begin(&comm, argc, argv);
  if (lm_kernels_select(&kernels, LM_BACKEND_CPU, &err) != LM_OK) return 1;
  fabric_world = comm.mpi;
  if (lm_device_comm_new(&joined, &comm, &host_fabric, 64, 1, &err) != LM_OK) return 1;
  check_joining(&comm);
  check_all_sums(&comm);
  check_bits(&comm);
  check_tree(&comm);
  check_gather(&comm);
  check_norm(&comm);
  check_failures(&comm);
  lm_device_comm_free(joined);
  return tap_end();
}
