/* src/command/show_schedule.c - mpilm train --show-schedule: the rates of a run, before it runs. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "command/show_schedule.h"

#include "base/file.h"
#include "command/plot.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 20, POINTS = 800 };

static int by_value(const void *a, const void *b)
{
  const int64_t *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

/* Steps worth a row: evenly spread ones, and those beside the borders of the schedule. Returns how many. */
static int choose_rows(const lm_schedule *s, int64_t steps, int64_t out[ROWS + 8])
{
  int n = 0, kept = 0;
  for (int64_t i = 0; i <= ROWS; i++) out[n++] = 1 + (int64_t)((double)(steps - 1) * (double)i / ROWS);
  const int64_t borders[] = {s->warmup, s->warmup + 1, s->end, s->end + 1, s->decay_from + 1};
  for (int i = 0; i < (s->kind == LM_SCHEDULE_WSD ? 5 : 4); i++)
    if (borders[i] >= 1 && borders[i] <= steps) out[n++] = borders[i];
  qsort(out, (size_t)n, sizeof *out, by_value);
  for (int i = 0; i < n; i++)
    if (kept == 0 || out[i] != out[kept - 1]) out[kept++] = out[i];
  return kept;
}

static void print_table(const lm_config *cfg, const lm_schedule *s, const lm_ramp *ramp)
{
  int64_t rows[ROWS + 8];
  int n = choose_rows(s, cfg->run.steps, rows);
  printf("%12s  %12s  %12s  %16s\n", "step", "lr", "sequences", "tokens");
  for (int i = 0; i < n; i++) {
    uint64_t step = (uint64_t)rows[i];
    printf("%12" PRIu64 "  %12.6e  %12" PRIu64 "  %16" PRIu64 "\n", step, lm_schedule_lr(s, rows[i] - 1),
           lm_ramp_batch(ramp, step - 1), lm_ramp_position(ramp, step) * (uint64_t)cfg->model.shape.n_ctx);
  }
}

static lm_status draw(const lm_config *cfg, const lm_schedule *s, const lm_ramp *ramp, lm_buffer *out, lm_error *err)
{
  static double x[POINTS], lr[POINTS], batch[POINTS];
  size_t n = cfg->run.steps < POINTS ? (size_t)cfg->run.steps : POINTS;
  for (size_t i = 0; i < n; i++) {
    int64_t step = n > 1 ? 1 + (int64_t)((double)(cfg->run.steps - 1) * (double)i / (double)(n - 1)) : 1;
    x[i] = (double)step;
    lr[i] = lm_schedule_lr(s, step - 1);
    batch[i] = (double)lm_ramp_batch(ramp, (uint64_t)step - 1);
  }
  const lm_curve curves[] = {{"learning rate", lr}, {"sequences of an update", batch}};
  return lm_plot_svg(out, "The schedule of a run in which no step is left out", "step", x, n, curves,
                     ramp->samples > 0 ? 2 : 1, err);
}

lm_status lm_show_schedule(const lm_config *cfg, const char *svg, lm_error *err)
{
  lm_buffer picture = {0};
  lm_schedule s = lm_config_schedule(cfg);
  lm_ramp ramp = lm_config_ramp(cfg);
  lm_status status = draw(cfg, &s, &ramp, &picture, err);
  if (status == LM_OK) status = lm_file_replace(svg, picture.data, picture.size, err);
  lm_buffer_free(&picture);
  if (status == LM_OK) print_table(cfg, &s, &ramp);
  return status;
}
