/* src/train/step.c - one update: micro-batches -> summed gradients -> clipped -> applied. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "batch/sampler.h"
#include "train/stop.h"
#include "train/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <sys/resource.h>

/* What a rank brings to the step's one small reduction: sums, then maxima. */
struct shares {
  double loss, targets, failed, stop, saved; /* summed */
  double data, compute, reduce;              /* seconds of the slowest */
  uint64_t sequence;                         /* not reduced: of the next loss, in the global batch */
};

/* Samples of the step that comes next. */
static uint64_t batch_now(const lm_trainer *t)
{
  return lm_ramp_batch(&t->ramp, t->at.step);
}

void lm_trainer_phase(lm_trainer *t, uint64_t step, const char *phase)
{
  lm_watchdog_phase(t->watchdog, step, phase);
  if (t->k->phase != NULL) t->k->phase(phase);
}

void lm_trainer_share_batch(lm_trainer *t, uint64_t batch)
{
  uint64_t count;
  for (int r = 0; r < t->comm->size; r++) {
    lm_sample_slice(batch, r, t->comm->size, &t->first[r], &count);
    t->first[r + 1] = t->first[r] + count;
  }
}

/* What the loss of a target is multiplied by before the backward. In fp16 that is the scale over the tokens of the
 * step, rounded up to a power of two: the scale then says by how much the mean loss grows, as everywhere, and no bit is
 * lost.
 */
static double loss_factor(const lm_trainer *t)
{
  if (t->compute != LM_F16) return 1;
  double tokens = (double)batch_now(t) * t->T;
  return (double)t->at.scaler.scale / exp2(ceil(log2(tokens)));
}

/* Does MPILM_FAULT mean this step, or a sample of it? */
static bool asked_for(const lm_trainer *t, lm_fault_kind kind)
{
  return lm_fault(kind, t->at.step + 1) || lm_fault_sample(kind, t->at.position, batch_now(t));
}

/* Backward is through with the gradients from here on. What MPILM_FAULT asks of them comes before they are sent. */
static void gradients_ready(void *context, size_t from)
{
  lm_trainer *t = context;
  const float bad = asked_for(t, LM_FAULT_GRAD_NAN) ? NAN : INFINITY;
  if (from == 0 && (isnan(bad) || asked_for(t, LM_FAULT_GRAD_INF)))
    t->k->to_device(lm_model_gradients(t->model), &bad, sizeof bad);
  lm_gradsync_ready(t->sync, from);
}

/* Where nobody does, a micro-batch may be repeated as it was recorded. */
static bool somebody_listens(const lm_trainer *t)
{
  return lm_gradsync_listens(t->sync) || asked_for(t, LM_FAULT_GRAD_NAN) || asked_for(t, LM_FAULT_GRAD_INF);
}

static lm_train_args train_args(lm_trainer *t, uint64_t sample)
{
  return (lm_train_args){
      .loss_scale = (float)loss_factor(t),
      .seed = t->at.key,
      .sample = sample,
      .fresh = lm_gradsync_fresh(t->sync),
      .objective = {.z_loss = (float)t->cfg->train.z_loss, .label_smoothing = (float)t->cfg->train.label_smoothing},
      .ready = somebody_listens(t) ? gradients_ready : NULL,
      .context = t};
}

void lm_trainer_jump(lm_trainer *t, uint64_t position)
{
  t->at.position = position;
  t->ahead.step = t->at.step;
  t->ahead.position = position;
  t->ahead.done = 0;
}

/* Ask for the micro-batches that follow, of this step and the next ones, as far as the ring goes. */
static void ask_ahead(lm_trainer *t, uint64_t done)
{
  if (t->ahead.step < t->at.step || (t->ahead.step == t->at.step && t->ahead.done < done)) {
    t->ahead.step = t->at.step;
    t->ahead.position = t->at.position;
    t->ahead.done = done;
  }
  while (t->ahead.step < (uint64_t)t->cfg->run.steps) {
    uint64_t batch = lm_ramp_batch(&t->ramp, t->ahead.step), first, count, left;
    lm_loader_slice(t->loader, batch, &first, &count);
    left = count - t->ahead.done;
    const lm_samples next = {t->ahead.position, first + t->ahead.done,
                             left < (uint64_t)t->micro ? left : (uint64_t)t->micro};
    if (left > 0 && !lm_prefetch_ask(t->prefetch, &next)) return;
    t->ahead.done += next.count;
    if (t->ahead.done < count) continue;
    t->ahead.step++;
    t->ahead.position += batch;
    t->ahead.done = 0;
  }
}

/* The losses of the micro-batches begun until now. Waits for the device. */
static void take_losses(lm_trainer *t, struct shares *mine)
{
  double sums[LM_MODEL_BEGUN], begin = lm_clock();
  int n = lm_model_train_end(t->model, sums);
  bool spike = asked_for(t, LM_FAULT_LOSS_SPIKE);
  for (int i = 0; i < n; i++) {
    if (spike) sums[i] *= 10;
    mine->loss += sums[i];
    if (t->losses != NULL) t->losses[mine->sequence++] = sums[i];
  }
  mine->compute += lm_clock() - begin;
}

/* The rank's slice of the global batch, a micro-batch at a time; gradients of the sum of losses pile up. */
static lm_status accumulate(lm_trainer *t, struct shares *mine, lm_error *err)
{
  uint64_t first, count;
  lm_loader_slice(t->loader, batch_now(t), &first, &count);
  if (t->first[t->comm->size] != batch_now(t)) {
    lm_trainer_share_batch(t, batch_now(t));
    lm_gradsync_set_batch(t->sync, t->first);
  }
  lm_gradsync_begin(t->sync);
  mine->sequence = first;
  int begun = 0;
  for (uint64_t done = 0; done < count;) {
    int B = count - done < (uint64_t)t->micro ? (int)(count - done) : t->micro;
    double begin = lm_clock();
    lm_trainer_phase(t, t->at.step + 1, "data");
    const int32_t *tokens, *targets;
    const lm_samples what = {t->at.position, first + done, (uint64_t)B};
    LM_TRY(lm_prefetch_take(t->prefetch, &what, &tokens, &targets, err));
    ask_ahead(t, done + (uint64_t)B);
    double fetched = lm_clock();
    lm_trainer_phase(t, t->at.step + 1, "compute");
    lm_gradsync_begin_micro(t->sync);
    const lm_train_args args = train_args(t, t->at.position + first + done);
    mine->targets += (double)lm_model_train_begin(t->model, tokens, targets, B, t->T, &args);
    lm_gradsync_end_micro(t->sync);
    mine->data += fetched - begin;
    mine->compute += lm_clock() - fetched;
    done += (uint64_t)B;
    if (++begun % LM_MODEL_BEGUN == 0) take_losses(t, mine);
  }
  return LM_OK;
}

/* One all-reduce for all that a step agrees on. */
static void agree_on_step(const lm_comm *comm, struct shares *s)
{
  lm_tally t = {.sum = {s->loss, s->targets, s->failed, s->stop, s->saved}, .max = {s->data, s->compute, s->reduce}};
  lm_allreduce_tally(comm, &t);
  *s = (struct shares){t.sum[0], t.sum[1], t.sum[2], t.sum[3], t.sum[4], t.max[0], t.max[1], t.max[2]};
}

/* The losses of all sequences, added in their order whoever had them. Collective. */
static double sum_losses(lm_trainer *t)
{
  size_t n = (size_t)t->cfg->batch.global;
  double sum = 0;
  lm_allreduce_sum_f64(t->comm, t->losses, n);
  for (size_t i = 0; i < n; i++) {
    sum += t->losses[i];
    t->losses[i] = 0;
  }
  return sum;
}

/* Sums of gradients -> the gradient of the mean loss. */
static double mean_factor(const lm_trainer *t, const struct shares *all)
{
  return 1 / (all->targets * loss_factor(t));
}

/* Collective. */
static void describe_update(lm_trainer *t, const struct shares *all, lm_metrics_row *row)
{
  row->grad_norm = sqrt(lm_gradsync_squares(t->sync)) * mean_factor(t, all);
  row->lr = lm_schedule_lr(&t->schedule, (int64_t)t->at.applied);
  row->loss_scale = t->compute == LM_F16 ? (double)t->at.scaler.scale : 1;
}

/* Collective. */
static void update(lm_trainer *t, const struct shares *all, const lm_metrics_row *row)
{
  double scale = mean_factor(t, all) * lm_clip_factor(row->grad_norm, t->cfg->optim.clip);
  if (t->k->copies != NULL) t->k->copies->await(); /* a save may still be copying what changes now */
  lm_optimizer_step(t->optimizer, lm_gradsync_sums(t->sync), (float)row->lr, (float)scale, (int64_t)t->at.applied + 1);
  lm_gradsync_gather(t->sync, lm_model_weights(t->model), t->compute);
  lm_monitor_add(&t->at.monitor, row->loss);
}

/* Which tensor was the first to go wrong, on any rank? Its name, or that the loss itself did. Collective. */
static const char *first_not_finite(const lm_trainer *t)
{
  const lm_param *first = lm_gradsync_not_finite(t->sync);
  return first != NULL ? first->name : "no tensor, but the loss";
}

/* May the update be applied? All that is looked at is the same on all ranks, so all decide alike. Collective. */
static lm_bad_step judge(lm_trainer *t, lm_step_result *out)
{
  double mean = NAN, z = NAN;
  lm_metrics_row *row = &out->row;
  if (t->cfg->train.spike != LM_BAD_OFF && isfinite(row->loss))
    z = lm_monitor_z(&t->at.monitor, t->cfg->train.spike_window, row->loss, &mean);
  row->loss_z = z;
  if (!isfinite(row->grad_norm) || !isfinite(row->loss)) {
    snprintf(out->why, sizeof out->why, "not finite in %s", first_not_finite(t));
    bool overflow = t->compute == LM_F16 && isfinite(row->loss) && (double)t->at.scaler.scale > t->cfg->scaler.min;
    return overflow ? LM_BAD_SKIP : (lm_bad_step)t->cfg->train.nonfinite;
  }
  if (!(z > t->cfg->train.spike_z)) return LM_BAD_OFF;
  snprintf(out->why, sizeof out->why,
           "the loss, %.4f, is %.1f deviations above %.4f, the mean of the last %lld updates", row->loss, z, mean,
           (long long)t->cfg->train.spike_window);
  return (lm_bad_step)t->cfg->train.spike;
}

/* The next step's scale, and words on a step that was left out. */
static void follow(lm_trainer *t, const lm_step_result *r)
{
  float before = t->at.scaler.scale;
  bool finite = isfinite(r->row.grad_norm) && isfinite(r->row.loss);
  if (t->compute == LM_F16) lm_scaler_update(&t->at.scaler, &t->cfg->scaler, !finite);
  if (!finite && t->compute == LM_F16)
    lm_info("step %6" PRIu64 "  left out: %s; the loss scale was %g and is now %g", t->at.step + 1, r->why,
            (double)before, (double)t->at.scaler.scale);
  else if (r->bad != LM_BAD_OFF)
    lm_warn("step %" PRIu64 ": the update is left out: %s", t->at.step + 1, r->why);
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
  row->samples = t->samples;
  row->n_samples = (size_t)row->batch;
  if (t->mixture.sources > 1) row->sources = t->samples + t->cfg->batch.global;
  for (size_t i = 0; i < row->n_samples; i++) {
    lm_sample what = lm_loader_sample(t->describer, t->at.position + i);
    t->samples[i] = what.window;
    t->samples[(size_t)t->cfg->batch.global + i] = what.column;
  }
}

/* What MPILM_FAULT asks of this step, before it. */
static void faults_before(uint64_t step)
{
  if (lm_fault(LM_FAULT_DIE, step)) lm_fault_die();
  if (lm_fault(LM_FAULT_EXIT, step)) lm_fault_exit();
  if (lm_fault(LM_FAULT_HANG, step)) lm_fault_hang();
}

/* What MPILM_FAULT asks of this step, after it: a bit of the last tensor but one flips on this rank. */
static void faults_after(lm_trainer *t, uint64_t step)
{
  if (!lm_fault(LM_FAULT_FLIP_WEIGHT, step)) return;
  const lm_param_table *table = lm_model_params(t->model);
  char *weight = (char *)lm_model_weights(t->model) + table->params[table->n - 2].offset * lm_dtype_size(t->compute);
  char byte;
  if (t->k->copies != NULL) t->k->copies->await();
  t->k->to_host(&byte, weight, 1);
  byte ^= 1;
  t->k->to_device(weight, &byte, 1);
}

static void advance(lm_trainer *t, const struct shares *all, bool applied)
{
  t->at.position += batch_now(t);
  t->at.step++;
  t->at.tokens += (uint64_t)all->targets;
  t->at.applied += applied;
  t->at.skipped = applied ? 0 : t->at.skipped + 1;
}

lm_status lm_trainer_step(lm_trainer *t, lm_step_result *out, lm_error *err)
{
  double begin = lm_clock();
  struct shares s = {0};
  lm_trainer_phase(t, t->at.step + 1, "step");
  faults_before(t->at.step + 1);
  lm_status mine = accumulate(t, &s, err);
  double accumulated = lm_clock();
  lm_trainer_phase(t, t->at.step + 1, "gradients");
  lm_gradsync_finish(t->sync);
  s.reduce = lm_clock() - accumulated;
  take_losses(t, &s); /* the one wait of a step for a device */
  if (t->k->on_device) s.reduce = lm_gradsync_exposed(t->sync), s.compute = fmax(s.compute - s.reduce, 0);
  s.failed = mine != LM_OK;
  s.stop = lm_stop_requested();
  lm_trainer_phase(t, t->at.step + 1, "agreement");
  s.saved = lm_saver_done(t->saver);
  agree_on_step(t->comm, &s);
  if (t->losses != NULL) s.loss = sum_losses(t);
  if (s.failed > 0) return lm_fail_in(err, lm_agree(t->comm, mine, err), "step %" PRIu64 ", 'data'", t->at.step + 1);

  double reduced = lm_clock();
  lm_trainer_phase(t, t->at.step + 1, "update");
  *out = (lm_step_result){.stop = s.stop > 0, .saved = (int)s.saved == t->comm->size};
  lm_metrics_row *row = &out->row;
  row->loss = s.loss / s.targets;
  row->batch = batch_now(t);
  describe_samples(t, row);
  describe_update(t, &s, row);
  out->bad = judge(t, out);
  bool applied = out->bad == LM_BAD_OFF;
  if (applied) update(t, &s, row);
  follow(t, out);
  advance(t, &s, applied);
  faults_after(t, t->at.step);
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
