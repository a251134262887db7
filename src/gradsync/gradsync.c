/* src/gradsync/gradsync.c - grads -> summed grads: the steps of a step. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/log.h"
#include "base/memory.h"
#include "gradsync/exchange.h"
#include "kernels/slices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- making ---- */

static size_t largest_part(const lm_param_table *t, int size)
{
  size_t largest = 0;
  for (size_t g = 0; g < t->n_groups; g++)
    for (int r = 0; r < size; r++) {
      size_t n = lm_param_cut(t, t->groups[g].count, r + 1, size) - lm_param_cut(t, t->groups[g].count, r, size);
      if (n > largest) largest = n;
    }
  return largest;
}

/* Nodes of the tree that a rank holds at most while it goes through its sequences. */
static int most_held(uint64_t begin, uint64_t end)
{
  int most = 0;
  for (uint64_t now = begin + 1; now <= end; now++) {
    int held = lm_partials(begin, now, NULL);
    if (held > most) most = held;
  }
  return most;
}

static lm_gradsync_plan plan(const lm_param_table *t, int rank, int size, const lm_gradsync_config *cfg)
{
  lm_gradsync_plan p = {.exchanges = size > 1 || cfg->reproducible || t->sharding == LM_SHARD_GRADIENTS};
  if (cfg->device && p.exchanges) p.spare = lm_collective_spare(t, size);
  for (int r = 0; r < size; r++) {
    int brings = cfg->reproducible ? lm_partials(cfg->first[r], cfg->first[r + 1], NULL) : 1;
    p.partials += brings;
    if (brings > p.widest) p.widest = brings;
  }
  bool tree = cfg->reproducible && cfg->device; /* whose ranks all get all, and as many from each */
  int shares = tree ? p.widest * size : p.partials;
  LM_ASSERT(shares > 0);
  if (size > 1 && (tree || !cfg->device)) p.received = shares;
  if (cfg->reproducible) p.stack = most_held(cfg->first[rank], cfg->first[rank + 1]);
  size_t part = tree ? t->elements : largest_part(t, size);
  size_t most = cfg->bucket_bytes / sizeof(float) / (size_t)shares / 64 * 64;
  p.most = most < 64 ? 64 : most < part ? most : part;
  return p;
}

/* Squares are added up in runs that no cut parts: of one parameter, between multiples of the unit in its group. */
static size_t runs_in(const lm_param_table *t, const lm_param *p)
{
  size_t unit = lm_param_unit(t), at = p->offset - t->groups[p->group].begin;
  return (at + p->count - 1) / unit - at / unit + 1;
}

/* One of them; of those that another rank owns there is nothing. */
static lm_slice run_of(const lm_param_table *t, const lm_param *p, size_t run)
{
  size_t unit = lm_param_unit(t), at = p->offset - t->groups[p->group].begin, end = at + p->count;
  size_t own = at + p->own_begin, from = (at / unit + run) * unit, to = from + unit < end ? from + unit : end;
  if (from < at) from = at;
  if (from < own || from >= own + p->own_count) return (lm_slice){0};
  return (lm_slice){.g_at = p->gradient_at + (from - own), .n = to - from};
}

static size_t all_runs(const lm_param_table *t, lm_slice *out)
{
  size_t at = 0;
  for (size_t i = 0; i < t->n; i++) {
    size_t n = runs_in(t, &t->params[i]);
    for (size_t run = 0; out != NULL && run < n; run++) out[at + run] = run_of(t, &t->params[i], run);
    at += n;
  }
  return at;
}

/* Of the list of them, and their sums, on a device. */
static size_t bytes_of_runs(const lm_param_table *t)
{
  size_t n = all_runs(t, NULL), pieces = 0;
  for (size_t i = 0; i < t->n; i++)
    for (size_t run = 0; run < runs_in(t, &t->params[i]); run++)
      pieces += lm_slice_pieces(run_of(t, &t->params[i], run).n);
  return lm_slices_bytes(n, pieces) + n * sizeof(double);
}

size_t lm_gradsync_bytes(const lm_param_table *table, int rank, int size, const lm_gradsync_config *cfg)
{
  lm_gradsync_plan p = plan(table, rank, size, cfg);
  size_t elements = (size_t)p.stack * table->elements;
  if (table->sharding == LM_SHARD_GRADIENTS) elements += table->own_elements;
  elements += LM_SLOTS * (size_t)p.received * p.most;
  elements += p.spare;
  size_t bytes = elements * sizeof(float) + table->n * sizeof(double);
  return cfg->reproducible && cfg->device ? bytes + bytes_of_runs(table) : bytes;
}

static lm_status check(const lm_comm *comm, const lm_param_table *table, const lm_gradsync_config *cfg, lm_error *err)
{
  if (cfg->bucket_bytes == 0) return lm_fail(err, LM_EINVAL, "a bucket of 0 bytes carries nothing; want more");
  if (cfg->reproducible && table->sharding == LM_SHARD_GRADIENTS)
    return lm_fail(
        err, LM_EINVAL,
        "run.reproducible needs whole gradients of single sequences, parallel.zero 2 keeps none; want 0 or 1");
  if (cfg->micro < 1 || (cfg->reproducible && cfg->micro != 1))
    return lm_fail(err, LM_EINVAL, "micro-batches of %d sequences; want %s", cfg->micro,
                   cfg->reproducible ? "1 where run.reproducible is true" : "at least 1");
  if (cfg->first[0] != 0 || cfg->first[comm->size] == 0)
    return lm_fail(err, LM_EINVAL, "the ranks' sequences do not begin at 0, or there are none");
  return LM_OK;
}

static lm_status make_nodes(lm_gradsync *s, lm_error *err)
{
  size_t partials = (size_t)s->plan.partials, size = (size_t)s->comm->size, stack = (size_t)s->plan.stack;
  LM_TRY(lm_alloc(&s->nodes, partials, sizeof *s->nodes, "the tree of sums", err));
  LM_TRY(lm_alloc(&s->joining, partials, sizeof *s->joining, "the tree of sums", err));
  LM_TRY(lm_alloc(&s->sources, partials, sizeof *s->sources, "the tree of sums", err));
  LM_TRY(lm_alloc(&s->node_of, size + 1, sizeof *s->node_of, "the tree of sums", err));
  LM_TRY(lm_alloc(&s->blocks, stack, sizeof *s->blocks, "the tree of sums", err));
  LM_TRY(lm_alloc(&s->held, stack, sizeof *s->held, "the tree of sums", err));
  for (size_t r = 0; s->cfg.reproducible && r < size; r++)
    s->node_of[r + 1] = s->node_of[r] + lm_partials(s->first[r], s->first[r + 1], s->nodes + s->node_of[r]);
  for (size_t i = 0; i < stack; i++)
    LM_TRY(s->k->alloc((void **)&s->blocks[i], s->table->elements * sizeof(float), "a partial sum of gradients", err));
  return LM_OK;
}

static size_t list_buckets(lm_gradsync *s, lm_bucket *out)
{
  size_t n = 0;
  for (size_t g = s->table->n_groups; g-- > 0;) {
    size_t count = s->table->groups[g].count, part = 0;
    for (int r = 0; r < s->comm->size; r++) {
      size_t own =
          lm_param_cut(s->table, count, r + 1, s->comm->size) - lm_param_cut(s->table, count, r, s->comm->size);
      if (own > part) part = own;
    }
    for (size_t skip = 0; skip < part; skip += s->plan.most, n++)
      if (out != NULL) out[n] = (lm_bucket){g, skip};
    s->ends[g] = n;
  }
  return n;
}

static lm_status make_buckets(lm_gradsync *s, lm_error *err)
{
  LM_TRY(lm_alloc(&s->ends, s->table->n_groups, sizeof *s->ends, "the buckets", err));
  if (!s->plan.exchanges) return LM_OK;
  size_t bytes = (size_t)s->plan.received * s->plan.most * sizeof(float);
  for (int i = 0; s->plan.received > 0 && i < LM_SLOTS; i++)
    LM_TRY(s->k->alloc((void **)&s->slots[i].received, bytes, "a bucket of gradients", err));
  if (s->cfg.device) return s->k->alloc((void **)&s->spare, s->plan.spare * sizeof(float), "a part of a group", err);
  s->n_buckets = list_buckets(s, NULL);
  LM_TRY(lm_alloc(&s->buckets, s->n_buckets, sizeof *s->buckets, "the buckets", err));
  list_buckets(s, s->buckets);
  int size = s->comm->size, mine = s->cfg.reproducible ? s->node_of[s->comm->rank + 1] - s->node_of[s->comm->rank] : 1;
  int messages = lm_transfer_pieces(largest_part(s->table, size) * sizeof(float)) *
                 ((size - 1) * (mine > 1 ? mine : 1) + s->plan.partials + 2 * size);
  for (int i = 0; i < LM_SLOTS; i++) LM_TRY(lm_transfers_new(&s->slots[i].transfers, messages, err));
  return LM_OK;
}

static double squares_of(const float *x, size_t n)
{
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
  return sum;
}

/* The squares of all runs, here. */
static void square_runs(lm_gradsync *s)
{
  const float *g = lm_gradsync_sums(s);
  size_t at = 0;
  for (size_t i = 0; i < s->table->n; i++) {
    const lm_param *p = &s->table->params[i];
    size_t n = runs_in(s->table, p);
#pragma omp parallel for schedule(static) if (p->count > 1 << 15)
    for (size_t run = 0; run < n; run++) {
      lm_slice x = run_of(s->table, p, run);
      s->squares[at + run] = squares_of(g + x.g_at, x.n);
    }
    at += n;
  }
}

static lm_status list_params(lm_gradsync *s, lm_error *err)
{
  lm_slice *list;
  LM_TRY(lm_alloc(&list, s->table->n, sizeof *list, "the list of tensors", err));
  for (size_t i = 0; i < s->table->n; i++) {
    const lm_param *p = &s->table->params[i];
    list[i] = (lm_slice){.g_at = p->gradient_at, .n = p->own_count};
  }
  lm_status r = lm_slices_new(&s->of_params, s->k, list, s->table->n, LM_F32, err);
  free(list);
  return r;
}

static lm_status list_runs(lm_gradsync *s, lm_error *err)
{
  lm_slice *list;
  LM_TRY(lm_alloc(&list, s->n_squares, sizeof *list, "the list of runs", err));
  all_runs(s->table, list);
  lm_status r = lm_slices_new(&s->of_runs, s->k, list, s->n_squares, LM_F32, err);
  free(list);
  if (r != LM_OK) return r;
  return s->k->alloc((void **)&s->run_squares, s->n_squares * sizeof *s->run_squares, "sums of squares", err);
}

static bool tree_on_devices(const lm_gradsync *s)
{
  return s->cfg.reproducible && s->cfg.device;
}

static lm_status make_local(lm_gradsync *s, lm_error *err)
{
  LM_TRY(check(s->comm, s->table, &s->cfg, err));
  s->plan = plan(s->table, s->comm->rank, s->comm->size, &s->cfg);
  size_t ranks = (size_t)s->comm->size + 1;
  LM_TRY(lm_alloc(&s->first, ranks, sizeof *s->first, "the ranks' sequences", err));
  memcpy(s->first, s->cfg.first, ranks * sizeof *s->first);
  s->cfg.first = s->first;
  LM_TRY(make_nodes(s, err));
  LM_TRY(make_buckets(s, err));
  if (s->table->sharding == LM_SHARD_GRADIENTS)
    LM_TRY(s->k->alloc((void **)&s->own, s->table->own_elements * sizeof(float), "this rank's gradients", err));
  s->n_squares = s->cfg.reproducible ? all_runs(s->table, NULL) : s->table->n;
  LM_TRY(list_params(s, err));
  if (tree_on_devices(s)) LM_TRY(list_runs(s, err));
  LM_TRY(s->k->alloc((void **)&s->param_squares, s->table->n * sizeof *s->param_squares, "sums of squares", err));
  return lm_alloc(&s->squares, s->n_squares, sizeof *s->squares, "sums of squares", err);
}

lm_status lm_gradsync_new(lm_gradsync **out, const lm_comm *comm, const lm_param_table *table, const lm_kernels *k,
                          const lm_device_comm *device, float *gradients, const lm_gradsync_config *cfg, lm_error *err)
{
  lm_status s = lm_alloc(out, 1, sizeof **out, "the reduction of gradients", err);
  if (s == LM_OK) {
    **out = (lm_gradsync){.comm = comm, .table = table, .k = k, .cfg = *cfg, .gradients = gradients, .device = device};
    s = make_local(*out, err);
  }
  s = lm_agree(comm, s, err);
  if (s != LM_OK) {
    lm_gradsync_free(*out);
    *out = NULL;
  } else if ((*out)->plan.exchanges) {
    lm_verbose("gradients: %zu buckets, %.2f MiB of each rank's part at most, exchanged %s backward", (*out)->n_buckets,
               (double)((*out)->plan.most * sizeof(float)) / (1 << 20), cfg->overlap ? "during" : "after");
  }
  return s;
}

void lm_gradsync_free(lm_gradsync *s)
{
  if (s == NULL) return;
  for (int i = 0; i < LM_SLOTS; i++) {
    s->k->release(s->slots[i].received);
    lm_transfers_free(&s->slots[i].transfers);
  }
  for (int i = 0; s->blocks != NULL && i < s->plan.stack; i++) s->k->release(s->blocks[i]);
  s->k->release(s->own);
  lm_slices_free(&s->of_params, s->k);
  lm_slices_free(&s->of_runs, s->k);
  s->k->release(s->run_squares);
  s->k->release(s->param_squares);
  s->k->release(s->spare);
  free(s->squares);
  free(s->ends);
  free(s->buckets);
  free(s->held);
  free(s->blocks);
  free(s->node_of);
  free(s->sources);
  free(s->joining);
  free(s->nodes);
  free(s->first);
  free(s);
}

/* ---- a step ---- */

static bool windowed(const lm_gradsync *s)
{
  return s->table->sharding == LM_SHARD_GRADIENTS;
}

static void zero_group(lm_gradsync *s, size_t group)
{
  const lm_param_group *g = &s->table->groups[group];
  s->k->zero(s->gradients + g->window, g->count * sizeof(float));
}

static void begin_round(lm_gradsync *s, uint64_t round)
{
  s->round = round;
  s->final = s->launched = s->done = 0;
  lm_collective_begin(s);
}

void lm_gradsync_set_batch(lm_gradsync *s, const uint64_t *first)
{
  LM_ASSERT(!s->cfg.reproducible && first[0] == 0 && first[s->comm->size] > 0);
  memcpy(s->first, first, ((size_t)s->comm->size + 1) * sizeof *first);
}

void lm_gradients_begin(const lm_kernels *k, const lm_param_table *table, float *gradients)
{
  for (size_t i = 0; i < table->n; i++) {
    const lm_param *p = &table->params[i];
    if (!p->stored) k->zero(gradients + p->offset, p->reserved * sizeof *gradients);
  }
}

/* Does this rank have sequences whose gradients come to lie in the block one after another? A sequence that is alone in
 * its sum, and a window that is used again, begin with 0 all over. */
static bool stores(const lm_gradsync *s)
{
  return !windowed(s) && !s->cfg.reproducible && s->first[s->comm->rank + 1] > s->first[s->comm->rank];
}

bool lm_gradsync_fresh(const lm_gradsync *s)
{
  return stores(s) && s->micros_done == 0;
}

void lm_gradsync_begin(lm_gradsync *s)
{
  begin_round(s, 0);
  s->n_held = 0;
  s->micros_done = 0;
  if (windowed(s))
    s->k->zero(s->own, s->table->own_elements * sizeof(float));
  else if (stores(s))
    lm_gradients_begin(s->k, s->table, s->gradients);
  else
    s->k->zero(s->gradients, s->table->elements * sizeof(float));
}

/* All that is on its way in this round has arrived: what is computed next may use it, or write over it. */
static void wait_for_all(lm_gradsync *s)
{
  if (s->cfg.device)
    lm_collective_await(s, 0);
  else
    lm_exchange_wait(s, s->n_buckets);
}

/* Through windows: each micro-batch has its own exchange, and begins with windows that are free. */
void lm_gradsync_begin_micro(lm_gradsync *s)
{
  if (!windowed(s)) return;
  size_t last = s->table->n_groups - 1;
  if (s->micros_done > 0) {
    wait_for_all(s);
    begin_round(s, s->micros_done);
  }
  zero_group(s, last);
  if (last > 1) zero_group(s, last - 1);
  if (last > 0) zero_group(s, 0);
}

static size_t group_at(const lm_param_table *t, size_t from)
{
  size_t g = 0;
  while (t->groups[g].begin != from) LM_ASSERT(++g < t->n_groups);
  return g;
}

/* The layer before this one comes next; its window was last used by the layer after this one. */
static void free_window(lm_gradsync *s, size_t group)
{
  if (group < 2 || group + 1 == s->table->n_groups) return;
  if (group + 2 < s->table->n_groups && s->cfg.device)
    lm_collective_await(s, group + 1);
  else if (group + 2 < s->table->n_groups)
    lm_exchange_wait(s, s->ends[group + 1]);
  zero_group(s, group - 1);
}

static bool last_micro(const lm_gradsync *s)
{
  uint64_t mine = s->first[s->comm->rank + 1] - s->first[s->comm->rank];
  return (s->micros_done + 1) * (uint64_t)s->cfg.micro >= mine;
}

/* Groups down to this one are final: they may go on their way, or, without overlap, go it. */
static void send_groups(lm_gradsync *s, size_t group)
{
  if (s->cfg.device) {
    lm_collective_offer(s, group);
    if (!s->cfg.overlap) lm_collective_await(s, group);
    return;
  }
  s->final = s->ends[group];
  if (s->cfg.overlap)
    lm_exchange_progress(s);
  else
    lm_exchange_wait(s, s->final);
}

bool lm_gradsync_listens(const lm_gradsync *s)
{
  bool now = windowed(s) || (s->cfg.overlap && !s->cfg.reproducible && last_micro(s));
  return now && s->plan.exchanges;
}

void lm_gradsync_ready(void *context, size_t from)
{
  lm_gradsync *s = context;
  size_t group = group_at(s->table, from);
  if (!lm_gradsync_listens(s)) return;
  send_groups(s, group);
  if (windowed(s)) free_window(s, group);
}

/* The gradients of one sequence join the sums of those before it. */
static void hold(lm_gradsync *s)
{
  size_t n = s->table->elements;
  lm_partial leaf = {s->first[s->comm->rank] + s->micros_done, 0};
  if (s->n_held > 0 && lm_partials_join(s->held[s->n_held - 1], leaf)) {
    s->k->add(s->blocks[s->n_held - 1], s->gradients, n);
    s->held[s->n_held - 1].level++;
  } else {
    LM_ASSERT(s->n_held < s->plan.stack);
    s->k->cast(s->blocks[s->n_held], LM_F32, s->gradients, LM_F32, n);
    s->held[s->n_held++] = leaf;
  }
  for (; s->n_held > 1 && lm_partials_join(s->held[s->n_held - 2], s->held[s->n_held - 1]); s->n_held--) {
    s->k->add(s->blocks[s->n_held - 2], s->blocks[s->n_held - 1], n);
    s->held[s->n_held - 2].level++;
  }
  s->k->zero(s->gradients, n * sizeof(float));
}

void lm_gradsync_end_micro(lm_gradsync *s)
{
  if (s->cfg.reproducible) hold(s);
  s->micros_done++;
}

static void exchange_all(lm_gradsync *s)
{
  if (!s->plan.exchanges) return;
  if (tree_on_devices(s)) {
    lm_collective_tree(s);
    return;
  }
  if (s->cfg.device)
    lm_collective_offer(s, 0);
  else
    s->final = s->n_buckets;
  wait_for_all(s);
}

static bool anyone_brings(const lm_gradsync *s, uint64_t round)
{
  for (int r = 0; r < s->comm->size; r++)
    if (lm_exchange_brings(s, r, round)) return true;
  return false;
}

/* The squares of each parameter, as far as this rank has its sums. They are asked for as soon as the sums are there, so
 * that a device has them when the host waits for it anyway. */
static void ask_for_squares(lm_gradsync *s)
{
  lm_slices_sum_squares(s->k, s->param_squares, &s->of_params, lm_gradsync_sums(s));
}

static void finish_windowed(lm_gradsync *s)
{
  if (s->micros_done > 0) exchange_all(s);
  for (uint64_t round = s->micros_done; anyone_brings(s, round); round++) {
    begin_round(s, round);
    if (s->cfg.device) s->k->zero(s->gradients, s->table->gradient_elements * sizeof(float)); /* this rank adds 0 */
    exchange_all(s);
  }
}

enum { BACKWARD_DONE, SUMS_THERE }; /* marks */

static bool marked(const lm_gradsync *s)
{
  return s->plan.exchanges && s->k->mark != NULL;
}

void lm_gradsync_finish(lm_gradsync *s)
{
  if (marked(s)) s->k->mark(BACKWARD_DONE);
  if (windowed(s))
    finish_windowed(s);
  else
    exchange_all(s);
  if (marked(s)) s->k->mark(SUMS_THERE);
  if (tree_on_devices(s))
    lm_slices_sum_squares(s->k, s->run_squares, &s->of_runs, lm_gradsync_sums(s));
  else if (!s->cfg.reproducible)
    ask_for_squares(s);
}

double lm_gradsync_exposed(const lm_gradsync *s)
{
  return marked(s) ? s->k->between(BACKWARD_DONE, SUMS_THERE) : 0;
}

const float *lm_gradsync_sums(const lm_gradsync *s)
{
  return s->own != NULL ? s->own : s->gradients;
}

const lm_param *lm_gradsync_not_finite(lm_gradsync *s)
{
  size_t i = 0;
  ask_for_squares(s);
  s->k->to_host(s->squares, s->param_squares, s->table->n * sizeof *s->squares);
  while (i < s->table->n && isfinite(s->squares[i])) i++;
  double first = -(double)i;
  lm_allreduce_max_f64(s->comm, &first, 1);
  return -first < (double)s->table->n ? &s->table->params[(size_t)-first] : NULL;
}

double lm_gradsync_squares(lm_gradsync *s)
{
  double sum = 0;
  bool shared = s->table->sharding != LM_SHARD_NOTHING;
  if (s->cfg.reproducible) {
    if (tree_on_devices(s))
      s->k->to_host(s->squares, s->run_squares, s->n_squares * sizeof *s->squares);
    else
      square_runs(s);
    if (shared) lm_allreduce_sum_f64(s->comm, s->squares, s->n_squares);
    for (size_t i = 0; i < s->n_squares; i++) sum += s->squares[i];
    return sum;
  }
  s->k->to_host(s->squares, s->param_squares, s->table->n * sizeof *s->squares);
  for (size_t i = 0; i < s->table->n; i++) sum += s->squares[i];
  if (shared) lm_allreduce_sum_f64(s->comm, &sum, 1);
  return sum;
}

void lm_gradsync_gather(lm_gradsync *s, void *weights, lm_dtype t)
{
  if (s->table->sharding == LM_SHARD_NOTHING || s->comm->size == 1) return;
  if (s->cfg.device) {
    lm_collective_gather(s, weights, t);
    return;
  }
  size_t width = lm_dtype_size(t);
  int rank = s->comm->rank, size = s->comm->size;
  lm_transfers *transfers = &s->slots[0].transfers;
  for (size_t i = 0; i < s->table->n_groups; i++) {
    const lm_param_group *g = &s->table->groups[i];
    char *x = (char *)weights + g->begin * width;
    for (int j = 1; j < size; j++) {
      int peer = (rank + j) % size;
      size_t begin = lm_param_cut(s->table, g->count, peer, size),
             end = lm_param_cut(s->table, g->count, peer + 1, size);
      lm_receive_begin(s->comm, x + begin * width, (end - begin) * width, peer, LM_TAG_WEIGHTS, transfers);
      lm_send_begin(s->comm, x + g->own_begin * width, g->own_count * width, peer, LM_TAG_WEIGHTS, transfers);
    }
    lm_transfers_wait(transfers);
  }
}
