/* src/train/step.c - one update: micro-batches -> summed gradients -> clipped -> applied. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "batch/sampler.h"
#include "gradsync/gradsync.h"
#include "train/stop.h"
#include "train/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <sys/resource.h>

/* What a rank brings to the step's one small reduction: sums, then maxima. */
struct shares {
  double loss, targets, failed, stop; /* summed */
  double data, compute, reduce;       /* seconds of the slowest */
};

/* What the loss of a target is multiplied by before the backward. In fp16 that is the scale over the tokens of the
 * step, rounded up to a power of two: the scale then says by how much the mean loss grows, as everywhere, and no bit is
 * lost.
 */
static double loss_factor(const lm_trainer *t)
{
  if (t->compute != LM_F16) return 1;
  double tokens = (double)t->cfg->batch.global * t->T;
  return (double)t->at.scaler.scale / exp2(ceil(log2(tokens)));
}

static lm_train_args train_args(const lm_trainer *t, uint64_t sample)
{
  return (lm_train_args){
      .loss_scale = (float)loss_factor(t),
      .seed = t->at.key,
      .sample = sample,
      .objective = {.z_loss = (float)t->cfg->train.z_loss, .label_smoothing = (float)t->cfg->train.label_smoothing}};
}

/* The rank's slice of the global batch, a micro-batch at a time; gradients of the sum of losses pile up. */
static lm_status accumulate(lm_trainer *t, struct shares *mine, lm_error *err)
{
  uint64_t first, count;
  lm_loader_slice(t->loader, &first, &count);
  t->k->zero(lm_model_gradients(t->model), lm_model_params(t->model)->elements * sizeof(float));
  for (uint64_t done = 0; done < count;) {
    int B = count - done < (uint64_t)t->micro ? (int)(count - done) : t->micro;
    double begin = lm_clock();
    LM_TRY(lm_loader_fetch(t->loader, t->at.position, first + done, (uint64_t)B, t->tokens, t->targets, err));
    double fetched = lm_clock();
    const lm_train_args args = train_args(t, t->at.position + first + done);
    lm_loss loss = lm_model_train(t->model, t->tokens, t->targets, B, t->T, &args);
    mine->data += fetched - begin;
    mine->compute += lm_clock() - fetched;
    mine->loss += loss.sum;
    mine->targets += (double)loss.count;
    done += (uint64_t)B;
  }
  return LM_OK;
}

/* One all-reduce for all that a step agrees on. */
static void agree_on_step(const lm_comm *comm, struct shares *s)
{
  lm_tally t = {.sum = {s->loss, s->targets, s->failed, s->stop}, .max = {s->data, s->compute, s->reduce}};
  lm_allreduce_tally(comm, &t);
  *s = (struct shares){t.sum[0], t.sum[1], t.sum[2], t.sum[3], t.max[0], t.max[1], t.max[2]};
}

/* Gradients are the same on all ranks by now, so all decide alike. @return false: not finite, nothing was changed */
static bool update(lm_trainer *t, const struct shares *all, lm_metrics_row *row)
{
  const lm_param_table *table = lm_model_params(t->model);
  double mean = 1 / (all->targets * loss_factor(t)), clip = t->cfg->optim.clip;
  row->grad_norm = sqrt(t->k->sum_squares(lm_model_gradients(t->model), table->elements)) * mean;
  row->lr = lm_schedule_lr(&t->schedule, (int64_t)t->at.applied);
  row->loss_scale = t->compute == LM_F16 ? (double)t->at.scaler.scale : 1;
  if (!isfinite(row->grad_norm) || !isfinite(row->loss)) return false;
  double scale = clip > 0 && row->grad_norm > clip ? mean * (clip / row->grad_norm) : mean;
  lm_optimizer_step(t->optimizer, lm_model_gradients(t->model), (float)row->lr, (float)scale,
                    (int64_t)t->at.applied + 1);
  return true;
}

/* Which tensor was the first to go wrong? Its name, or that the loss itself did. */
static const char *first_not_finite(const lm_trainer *t)
{
  const lm_param_table *table = lm_model_params(t->model);
  for (size_t i = 0; i < table->n; i++) {
    const lm_param *p = &table->params[i];
    if (!isfinite(t->k->sum_squares(lm_model_gradients(t->model) + p->offset, p->count))) return p->name;
  }
  return "no tensor, but the loss";
}

/* Afterwards: the next step's scale, and words on a step that was left out. */
static void follow_overflow(lm_trainer *t, bool applied)
{
  float before = t->at.scaler.scale;
  if (t->compute == LM_F16) lm_scaler_update(&t->at.scaler, &t->cfg->scaler, !applied);
  if (!applied && t->compute == LM_F16)
    lm_info("step %6" PRIu64 "  left out: not finite in %s; the loss scale was %g and is now %g", t->at.step + 1,
            first_not_finite(t), (double)before, (double)t->at.scaler.scale);
  else if (!applied)
    lm_warn("step %" PRIu64 ": the update is left out: not finite in %s", t->at.step + 1, first_not_finite(t));
}

static uint64_t peak_memory(void)
{
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (uint64_t)usage.ru_maxrss * 1024;
}

static void describe_samples(lm_trainer *t, lm_metrics_row *row)
{
  if (t->samples == NULL) return;
  uint64_t windows = lm_loader_windows(t->loader);
  row->samples = t->samples;
  row->n_samples = (size_t)t->cfg->batch.global;
  for (size_t i = 0; i < row->n_samples; i++) t->samples[i] = lm_sample_window(t->at.key, windows, t->at.position + i);
}

/* What MPILM_FAULT asks of this step, before it and after its backward. */
static void faults_before(uint64_t step)
{
  if (lm_fault(LM_FAULT_DIE, step)) lm_fault_die();
  if (lm_fault(LM_FAULT_HANG, step)) lm_fault_hang();
}

static void faults_after(lm_trainer *t, uint64_t step)
{
  static const float inf = INFINITY;
  if (lm_fault(LM_FAULT_GRAD_INF, step)) t->k->to_device(lm_model_gradients(t->model), &inf, sizeof inf);
}

static void advance(lm_trainer *t, const struct shares *all, bool applied)
{
  t->at.step++;
  t->at.position += (uint64_t)t->cfg->batch.global;
  t->at.tokens += (uint64_t)all->targets;
  t->at.applied += applied;
  t->at.skipped = applied ? 0 : t->at.skipped + 1;
}

lm_status lm_trainer_step(lm_trainer *t, lm_step_result *out, lm_error *err)
{
  double begin = lm_clock();
  struct shares s = {0};
  faults_before(t->at.step + 1);
  lm_status mine = accumulate(t, &s, err);
  faults_after(t, t->at.step + 1);
  double accumulated = lm_clock();
  lm_gradsync_sum(t->comm, lm_model_gradients(t->model), lm_model_params(t->model)->elements,
                  (size_t)t->cfg->parallel.bucket_mb << 20);
  s.reduce = lm_clock() - accumulated;
  s.failed = mine != LM_OK;
  s.stop = lm_stop_requested();
  agree_on_step(t->comm, &s);
  if (s.failed > 0) return lm_agree(t->comm, mine, err);

  double reduced = lm_clock();
  *out = (lm_step_result){.stop = s.stop > 0};
  lm_metrics_row *row = &out->row;
  row->loss = s.loss / s.targets;
  describe_samples(t, row);
  bool applied = update(t, &s, row);
  follow_overflow(t, applied);
  advance(t, &s, applied);
  double end = lm_clock();
  row->step = t->at.step;
  row->applied_step = t->at.applied;
  row->tokens = t->at.tokens;
  row->skipped = !applied;
  row->val_loss = NAN;
  row->seconds.data = s.data;
  row->seconds.compute = s.compute;
  row->seconds.reduce = s.reduce;
  row->seconds.update = end - reduced;
  row->tokens_per_s = s.targets / (end - begin);
  row->mfu = row->tokens_per_s * lm_model_flops_per_token(lm_model_config_of(t->model), t->T) / t->peak_flops;
  row->memory = peak_memory();
  return LM_OK;
}
