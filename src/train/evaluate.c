/* src/train/evaluate.c - the mean loss of a model over a dataset. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/evaluate.h"

#include "base/clock.h"
#include "batch/sampler.h"
#include "train/stop.h"

/* What a rank evaluates with, and what has come out so far. */
struct work {
  lm_model *m;
  const lm_dataset *data;
  int micro;
  int32_t *tokens, *targets;
  const lm_watched *watched;
  uint64_t first, count; /* this rank's windows */
  lm_loss loss;
};

/* The rank's windows [from, to), as far as there are so many. */
static lm_status evaluate_some(struct work *w, uint64_t from, uint64_t to, lm_error *err)
{
  int T = (int)lm_model_config_of(w->m)->n_ctx;
  for (uint64_t end = to < w->count ? to : w->count; from < end && !lm_stop_requested();) {
    if (w->watched != NULL) lm_watchdog_phase(w->watched->watchdog, w->watched->step, "evaluation");
    int B = end - from < (uint64_t)w->micro ? (int)(end - from) : w->micro;
    for (int b = 0; b < B; b++)
      LM_TRY(lm_dataset_window(w->data, w->first + from + (uint64_t)b, T, w->tokens + (size_t)b * (size_t)T,
                               w->targets + (size_t)b * (size_t)T, err));
    lm_loss loss = lm_model_eval(w->m, w->tokens, w->targets, B, T);
    w->loss.sum += loss.sum;
    w->loss.count += loss.count;
    from += (uint64_t)B;
  }
  return LM_OK;
}

/* In rounds of about a second, after which a stop request or a failure of one rank ends it for all: an evaluation may
 * last longer than a job has left. Collective, but its status is the rank's own. */
static lm_status evaluate_all(struct work *w, const lm_comm *comm, uint64_t windows, lm_error *err)
{
  const double a_round = 1; /* second */
  uint64_t most = (windows + (uint64_t)comm->size - 1) / (uint64_t)comm->size, each = (uint64_t)w->micro;
  lm_status s = LM_OK;
  for (uint64_t done = 0; done < most;) {
    double began = lm_clock();
    s = evaluate_some(w, done, done + each, err);
    double most_of[2] = {s != LM_OK || lm_stop_requested(), lm_clock() - began};
    lm_allreduce_max_f64(comm, most_of, 2);
    if (most_of[0] > 0) return s;
    done += each;
    uint64_t batches = each / (uint64_t)w->micro;
    double more = a_round / (most_of[1] + 1e-6) * (double)batches;
    each = (uint64_t)w->micro * (uint64_t)(more < 1 ? 1 : more > 1e6 ? 1e6 : more);
  }
  return s;
}

lm_status lm_evaluate(const lm_comm *comm, lm_model *m, const lm_dataset *data, uint64_t limit, int micro,
                      int32_t *tokens, int32_t *targets, const lm_watched *watched, lm_loss *out, lm_error *err)
{
  uint64_t targets_in_all = lm_dataset_info(data)->tokens - 1, T = (uint64_t)lm_model_config_of(m)->n_ctx;
  uint64_t windows = (targets_in_all + T - 1) / T; /* the last one may be partial */
  if (limit > 0 && limit < windows) windows = limit;
  struct work w = {.m = m, .data = data, .micro = micro, .tokens = tokens, .targets = targets, .watched = watched};
  lm_sample_slice(windows, comm->rank, comm->size, &w.first, &w.count);
  lm_status s = evaluate_all(&w, comm, windows, err);
  LM_TRY(lm_agree(comm, s, err));
  double all[3] = {w.loss.sum, (double)w.loss.count, lm_stop_requested()};
  lm_allreduce_sum_f64(comm, all, 3);
  *out = all[2] > 0 ? (lm_loss){0} : (lm_loss){.sum = all[0], .count = (uint64_t)all[1]};
  return LM_OK;
}
