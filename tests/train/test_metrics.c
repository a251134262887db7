/* tests/train/test_metrics.c - rows of metrics.jsonl stay unique over restarts, whatever a killed run left. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/file.h"
#include "tests/tap.h"
#include "train/metrics.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PATH "test_metrics.jsonl"

static lm_error err;

static bool write_rows(uint64_t resumed, uint64_t from, uint64_t to)
{
  lm_metrics *m;
  bool fine = lm_metrics_open(&m, PATH, resumed, &err) == LM_OK;
  for (uint64_t step = from; fine && step <= to; step++) {
    lm_metrics_row row = {.step = step, .applied_step = step, .loss = 1.0 / (double)step, .loss_z = NAN, .val_loss = NAN};
    fine = lm_metrics_write(m, &row, &err) == LM_OK;
  }
  if (fine) lm_metrics_close(m);
  return fine;
}

/* The steps in the file, in order; every line must be JSON. */
static bool holds_steps(uint64_t from, uint64_t to)
{
  lm_buffer text = {0};
  bool fine = lm_file_read(PATH, &text, &err) == LM_OK;
  char *rest = text.data;
  for (uint64_t step = from; fine && step <= to; step++) {
    char *line = strsep(&rest, "\n");
    json_t *row = line ? json_loads(line, 0, NULL) : NULL;
    fine = row != NULL && (uint64_t)json_integer_value(json_object_get(row, "step")) == step &&
           fabs(json_number_value(json_object_get(row, "loss")) - 1.0 / (double)step) < 1e-11;
    json_decref(row);
  }
  fine = fine && rest != NULL && *rest == '\0';
  lm_buffer_free(&text);
  return fine;
}

static bool append(const char *junk)
{
  FILE *f = fopen(PATH, "a");
  bool fine = f != NULL && fputs(junk, f) >= 0;
  return f != NULL && fclose(f) == 0 && fine;
}

int main(int argc, char **argv)
{
  lm_comm comm;
  tap_begin(&comm, argc, argv);
  unlink(PATH);
  tap_ok(write_rows(0, 1, 7) && holds_steps(1, 7), "a first start writes its steps");
  tap_ok(write_rows(5, 6, 9) && holds_steps(1, 9), "a restart from step 5 replaces 6 and 7");
  tap_ok(append("{\"step\": 10, \"loss\": 0.") && write_rows(9, 10, 12) && holds_steps(1, 12), "a torn row is cut");
  tap_ok(append("not ours\n") && write_rows(12, 13, 13) && holds_steps(1, 13), "so is what is not ours");
  tap_ok(write_rows(0, 1, 2) && holds_steps(1, 2), "a start from nothing begins the file anew");
  lm_metrics *m;
  lm_metrics_row row = {.step = 3, .loss = INFINITY, .grad_norm = NAN, .val_loss = 2.5, .skipped = true};
  lm_buffer text = {0};
  bool fine = lm_metrics_open(&m, PATH, 2, &err) == LM_OK && lm_metrics_write(m, &row, &err) == LM_OK;
  lm_metrics_close(m);
  fine = fine && lm_file_read(PATH, &text, &err) == LM_OK;
  tap_ok(fine && strstr(text.data, "\"loss\": null, \"grad_norm\": null") && strstr(text.data, "\"val_loss\": 2.5") &&
             strstr(text.data, "\"skipped\": true"),
         "what is not finite is null");
  lm_buffer_free(&text);
  tap_ok(lm_metrics_open(&m, "no/such/folder/metrics.jsonl", 0, &err) == LM_EIO && strstr(err.text, "no/such/folder"),
         "a folder that is not there is named");
  unlink(PATH);
  return tap_end();
}
