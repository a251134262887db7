/* src/train/metrics.c - RUN/metrics.jsonl: one JSON object a step, unique over restarts. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/metrics.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct lm_metrics {
  int fd;
  off_t end;
  char *path;
  lm_buffer line; /* reused: a step allocates nothing */
};

/* Rows are ours: `{"step": N, ` opens each. Keep those up to `step`; whatever else the file holds ends the part kept.
 */
static size_t keep_until(const lm_buffer *text, uint64_t step)
{
  static const char head[] = "{\"step\": ";
  size_t kept = 0;
  while (kept < text->size) {
    const char *row = text->data + kept, *newline = memchr(row, '\n', text->size - kept);
    if (newline == NULL || strncmp(row, head, sizeof head - 1) != 0) break;
    if (strtoull(row + sizeof head - 1, NULL, 10) > step) break;
    kept = (size_t)(newline - text->data) + 1;
  }
  return kept;
}

static lm_status open_file(lm_metrics *m, const char *path, uint64_t step, lm_error *err)
{
  lm_buffer old = {0};
  if (lm_file_exists(path)) {
    lm_status s = lm_file_read(path, &old, err);
    if (s != LM_OK) {
      lm_buffer_free(&old);
      return s;
    }
  }
  m->end = (off_t)keep_until(&old, step);
  lm_buffer_free(&old);
  m->path = strdup(path);
  if (m->path == NULL) return lm_fail(err, LM_ENOMEM, "no memory for the metrics");
  m->fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (m->fd < 0 || ftruncate(m->fd, m->end) != 0)
    return lm_fail(err, LM_EIO, "%s: cannot open for writing: %s", path, strerror(errno));
  return LM_OK;
}

lm_status lm_metrics_open(lm_metrics **out, const char *path, uint64_t step, lm_error *err)
{
  lm_metrics *m = *out = calloc(1, sizeof *m);
  if (m == NULL) return lm_fail(err, LM_ENOMEM, "no memory for the metrics");
  m->fd = -1;
  lm_status s = open_file(m, path, step, err);
  if (s == LM_OK) s = lm_buffer_reserve(&m->line, 1024, err);
  if (s != LM_OK) {
    lm_metrics_close(m);
    *out = NULL;
  }
  return s;
}

/* JSON has no NaN and no infinity. */
static lm_status number(lm_buffer *line, const char *key, double x, lm_error *err)
{
  if (!isfinite(x)) return lm_buffer_printf(line, err, ", \"%s\": null", key);
  return lm_buffer_printf(line, err, ", \"%s\": %.12g", key, x);
}

static lm_status numbers(lm_buffer *line, const char *key, const uint64_t *x, size_t n, lm_error *err)
{
  if (x == NULL) return LM_OK;
  LM_TRY(lm_buffer_printf(line, err, ", \"%s\": [", key));
  for (size_t i = 0; i < n; i++) LM_TRY(lm_buffer_printf(line, err, "%s%llu", i ? ", " : "", (unsigned long long)x[i]));
  return lm_buffer_printf(line, err, "]");
}

static lm_status format(lm_buffer *line, const lm_metrics_row *row, lm_error *err)
{
  LM_TRY(lm_buffer_printf(line, err, "{\"step\": %llu, \"applied_step\": %llu", (unsigned long long)row->step,
                          (unsigned long long)row->applied_step));
  LM_TRY(number(line, "loss", row->loss, err));
  LM_TRY(number(line, "grad_norm", row->grad_norm, err));
  LM_TRY(number(line, "lr", row->lr, err));
  LM_TRY(lm_buffer_printf(line, err, ", \"loss_scale\": %.9g, \"skipped\": %s, \"batch\": %llu, \"tokens\": %llu",
                          row->loss_scale, row->skipped ? "true" : "false", (unsigned long long)row->batch,
                          (unsigned long long)row->tokens));
  if (!isnan(row->loss_z)) LM_TRY(number(line, "loss_z", row->loss_z, err));
  if (!isnan(row->val_loss)) LM_TRY(number(line, "val_loss", row->val_loss, err));
  LM_TRY(number(line, "tokens_per_s", row->tokens_per_s, err));
  LM_TRY(number(line, "mfu", row->mfu, err));
  LM_TRY(lm_buffer_printf(line, err,
                          ", \"seconds\": {\"data\": %.6f, \"compute\": %.6f, \"reduce\": %.6f, \"update\": %.6f, "
                          "\"eval\": %.6f, \"checkpoint\": %.6f}, \"memory\": %llu",
                          row->seconds.data, row->seconds.compute, row->seconds.reduce, row->seconds.update,
                          row->seconds.eval, row->seconds.checkpoint, (unsigned long long)row->memory));
  LM_TRY(numbers(line, "samples", row->samples, row->n_samples, err));
  LM_TRY(numbers(line, "sources", row->sources, row->n_samples, err));
  return lm_buffer_printf(line, err, "}\n");
}

lm_status lm_metrics_write(lm_metrics *m, const lm_metrics_row *row, lm_error *err)
{
  m->line.size = 0;
  LM_TRY(format(&m->line, row, err));
  LM_TRY(lm_pwrite_all(m->fd, m->path, m->line.data, m->line.size, m->end, err));
  m->end += (off_t)m->line.size;
  return LM_OK;
}

void lm_metrics_close(lm_metrics *m)
{
  if (m == NULL) return;
  if (m->fd >= 0) close(m->fd);
  lm_buffer_free(&m->line);
  free(m->path);
  free(m);
}
