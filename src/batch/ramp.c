/* src/batch/ramp.c - how many samples a step has, in a run whose batch grows. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "batch/ramp.h"

enum { MOST_STAGES = 64 };

/* The steps of a run come in stages of the same batch; the last stage, the full batch, has no end. */
static uint64_t stages(const lm_ramp *r)
{
  uint64_t rise = r->full - r->start;
  if (r->samples == 0) return 0;
  return rise < MOST_STAGES ? rise : MOST_STAGES;
}

static uint64_t stage_batch(const lm_ramp *r, uint64_t stage)
{
  uint64_t n = stages(r), rise = r->full - r->start;
  return stage < n ? r->start + rise / n * stage + rise % n * stage / n : r->full;
}

static uint64_t stage_steps(const lm_ramp *r, uint64_t stage)
{
  uint64_t n = stages(r);
  if (stage >= n) return UINT64_MAX;
  uint64_t batch = stage_batch(r, stage), share = r->samples / n;
  return share / batch + (share % batch != 0 || share == 0);
}

/* The stage of a step, and what came before that stage. */
typedef struct place {
  uint64_t stage, steps, samples;
} place;

static place place_of_step(const lm_ramp *r, uint64_t step)
{
  place p = {0};
  for (uint64_t n; (n = stage_steps(r, p.stage)) <= step - p.steps; p.stage++) {
    p.steps += n;
    p.samples += n * stage_batch(r, p.stage);
  }
  return p;
}

uint64_t lm_ramp_batch(const lm_ramp *r, uint64_t step)
{
  return stage_batch(r, place_of_step(r, step).stage);
}

uint64_t lm_ramp_position(const lm_ramp *r, uint64_t step)
{
  place p = place_of_step(r, step);
  return p.samples + (step - p.steps) * stage_batch(r, p.stage);
}

uint64_t lm_ramp_steps(const lm_ramp *r, uint64_t samples)
{
  uint64_t steps = 0, stage = 0;
  for (;; stage++) {
    uint64_t batch = stage_batch(r, stage), n = stage_steps(r, stage), need = samples / batch + (samples % batch != 0);
    if (need <= n) return steps + need;
    steps += n;
    samples -= n * batch;
  }
}
