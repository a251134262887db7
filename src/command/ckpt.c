/* src/command/ckpt.c - mpilm ckpt: what checkpoints a run has, whether they are whole, and which go. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/checkpoint.h"
#include "command/command.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

struct ckpt_options {
  bool json;
  int64_t keep, milestone_every;
};

static const lm_option options[] = {
    {"json", LM_OPT_BOOL, offsetof(struct ckpt_options, json), "false", NULL, NULL,
     "ls, verify, show: print one JSON object"},
    {"keep", LM_OPT_INT, offsetof(struct ckpt_options, keep), "0", "[0, inf)", "checkpoints",
     "prune: how many stay, the newest by step number; at least 1"},
    {"milestone_every", LM_OPT_INT, offsetof(struct ckpt_options, milestone_every), "0", "[0, inf)", "steps",
     "prune: multiples of so many steps stay besides"},
};

/* ---- a report: one object, printed as JSON or as lines ---- */

static lm_status print_json(json_t *object, lm_error *err)
{
  if (object == NULL) return lm_fail(err, LM_ENOMEM, "no memory for the report");
  json_dumpf(object, stdout, JSON_INDENT(1));
  putchar('\n');
  json_decref(object);
  return LM_OK;
}

static bool is_folder(const char *path)
{
  struct stat st;
  return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static lm_status want_run(const char *path, lm_error *err)
{
  if (is_folder(path)) return LM_OK;
  return lm_fail(err, LM_EINVAL, "%s: is no run folder; want the folder that `checkpoints` is in", path);
}

static double age_of(const char *path)
{
  struct stat st;
  return stat(path, &st) == 0 ? difftime(time(NULL), st.st_mtime) : 0;
}

/* "3 h", for people: the unit that leaves one or two digits. */
static void print_age(double seconds, char out[32])
{
  static const struct {
    const char *unit;
    double seconds;
  } units[] = {{"d", 86400}, {"h", 3600}, {"min", 60}, {"s", 1}};
  int i = 0;
  while (i < 3 && seconds < 2 * units[i].seconds) i++;
  snprintf(out, 32, "%.0f %s", seconds / units[i].seconds, units[i].unit);
}

/* ---- ls ---- */

static uint64_t ranks_of(const lm_checkpoint *c)
{
  uint64_t ranks = 0;
  return c->complete && lm_state_ranks(c->path, &ranks, NULL) == LM_OK ? ranks : 0;
}

static json_t *describe(const lm_checkpoint *c)
{
  json_t *o =
      json_pack("{s:I, s:b, s:I, s:I, s:f, s:s}", "step", (json_int_t)c->step, "complete", c->complete, "ranks",
                (json_int_t)ranks_of(c), "bytes", (json_int_t)c->bytes, "age_s", age_of(c->path), "path", c->path);
  if (o != NULL && !c->complete) json_object_set_new(o, "reason", json_string(c->reason));
  return o;
}

static void print_row(const lm_checkpoint *c)
{
  char age[32];
  print_age(age_of(c->path), age);
  printf("%10" PRIu64 "  %-8s  %5" PRIu64 "  %15" PRIu64 "  %8s  %s\n", c->step, c->complete ? "yes" : "no",
         ranks_of(c), c->bytes, age, c->complete ? c->path : c->reason);
}

static lm_status list(const struct ckpt_options *o, const char *run, lm_error *err)
{
  lm_checkpoint *c;
  size_t n;
  LM_TRY(want_run(run, err));
  LM_TRY(lm_checkpoint_scan(run, &c, &n, err));
  lm_status s = LM_OK;
  if (o->json) {
    json_t *rows = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(rows, describe(&c[i]));
    s = print_json(json_pack("{s:s, s:o}", "run", run, "checkpoints", rows), err);
  } else {
    printf("%10s  %-8s  %5s  %15s  %8s\n", "step", "complete", "ranks", "bytes", "age");
    for (size_t i = 0; i < n; i++) print_row(&c[i]);
  }
  free(c);
  return s;
}

/* ---- verify ---- */

static json_t *verdict(const char *path, lm_status s, const lm_error *why)
{
  json_t *o = json_pack("{s:s, s:b}", "path", path, "good", s == LM_OK);
  if (o != NULL && s != LM_OK) json_object_set_new(o, "reason", json_string(why->text));
  return o;
}

/* Every file is looked at, whatever the one before it says. */
static lm_status verify_all(const struct ckpt_options *o, const char *run, const lm_checkpoint *c, size_t n,
                            lm_error *err)
{
  size_t bad = 0;
  json_t *rows = json_array();
  for (size_t i = 0; i < n; i++) {
    lm_error why;
    lm_status s = lm_state_verify(c[i].path, &why);
    bad += s != LM_OK;
    if (o->json)
      json_array_append_new(rows, verdict(c[i].path, s, &why));
    else if (s == LM_OK)
      printf("good     %s\n", c[i].path);
    else
      printf("damaged  %s\n", why.text);
  }
  lm_status s = LM_OK;
  if (o->json)
    s = print_json(json_pack("{s:s, s:o}", "run", run, "checkpoints", rows), err);
  else
    json_decref(rows);
  if (s == LM_OK && bad > 0) s = lm_fail(err, LM_EDAMAGED, "%s: %zu of %zu checkpoints are damaged", run, bad, n);
  return s;
}

static lm_status verify_file(const struct ckpt_options *o, const char *path, lm_error *err)
{
  lm_error why = {0};
  lm_status s = lm_state_verify(path, &why);
  if (o->json && s != LM_EINVAL) LM_TRY(print_json(verdict(path, s, &why), err));
  if (!o->json && s == LM_OK) printf("good     %s\n", path);
  if (err != NULL) *err = why;
  return s;
}

static lm_status verify(const struct ckpt_options *o, const char *path, lm_error *err)
{
  if (!is_folder(path)) return verify_file(o, path, err);
  lm_checkpoint *c;
  size_t n;
  LM_TRY(lm_checkpoint_scan(path, &c, &n, err));
  lm_status s = n > 0 ? verify_all(o, path, c, n, err) : lm_fail(err, LM_EINVAL, "%s: has no checkpoint", path);
  free(c);
  return s;
}

/* ---- show ---- */

/* The texts of a file: its configuration, where it came from. */
static lm_status show_text(const struct ckpt_options *o, const char *path, const lm_state_entry *e, json_t *texts,
                           lm_error *err)
{
  lm_comm self;
  lm_state_slice s = {.dtype = LM_TEXT, .ndim = 1, .shape = {e->shape[0]}, .count = e->shape[0]};
  lm_comm_self(&self);
  memcpy(s.name, e->name, sizeof s.name);
  LM_TRY(lm_alloc(&s.data, s.count + 1, 1, "a text", err));
  lm_status status = lm_state_read(&self, path, &s, 1, err);
  const char *text = s.data;
  if (status == LM_OK && o->json)
    json_object_set_new(texts, e->name + 1, json_stringn(text, s.count));
  else if (status == LM_OK)
    printf("# %s\n%s%s", e->name, text, s.count > 0 && text[s.count - 1] == '\n' ? "" : "\n");
  free(s.data);
  return status;
}

static lm_status show(const struct ckpt_options *o, const char *path, lm_error *err)
{
  lm_state_entry *e;
  size_t n;
  LM_TRY(lm_state_list(path, &e, &n, err));
  json_t *texts = json_object();
  lm_status s = LM_OK;
  for (size_t i = 0; i < n && s == LM_OK; i++)
    if (e[i].dtype == LM_TEXT) s = show_text(o, path, &e[i], texts, err);
  if (s == LM_OK && o->json)
    s = print_json(texts, err);
  else
    json_decref(texts);
  free(e);
  return s;
}

/* ---- prune ---- */

static lm_status prune(const struct ckpt_options *o, const char *run, lm_error *err)
{
  lm_buffer going = {0};
  LM_TRY(want_run(run, err));
  if (o->keep < 1)
    return lm_fail(err, LM_EINVAL, "ckpt prune: --keep is %" PRId64 "; want how many checkpoints stay, at least 1",
                   o->keep);
  const lm_checkpoint_rule rule = {.keep = o->keep, .milestone_every = o->milestone_every, .always = UINT64_MAX};
  lm_status s = lm_checkpoint_surplus(run, &rule, &going, err);
  if (s == LM_OK) s = lm_checkpoint_remove(&going, err);
  for (size_t at = 0; s == LM_OK && at < going.size; at += strlen(going.data + at) + 1) puts(going.data + at);
  lm_buffer_free(&going);
  return s;
}

static const struct {
  const char *name;
  lm_status (*run)(const struct ckpt_options *o, const char *path, lm_error *err);
} actions[] = {{"ls", list}, {"verify", verify}, {"show", show}, {"prune", prune}};
enum { N_ACTIONS = sizeof actions / sizeof actions[0] };

static lm_status act(const struct ckpt_options *o, const lm_list *words, lm_error *err)
{
  const char *names[N_ACTIONS];
  for (int i = 0; i < N_ACTIONS; i++) {
    names[i] = actions[i].name;
    if (strcmp(words->items[0], names[i]) == 0) return actions[i].run(o, words->items[1], err);
  }
  const char *near = lm_nearest_word(words->items[0], names, N_ACTIONS);
  return lm_fail(err, LM_EINVAL, "ckpt: '%s' is unknown; want ls, verify, show or prune%s%s%s", words->items[0],
                 near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static lm_status run(const lm_comm *comm, int argc, char **argv, lm_error *err)
{
  (void)comm;
  struct ckpt_options o;
  lm_options *parsed;
  LM_TRY(lm_command_options(&parsed, &lm_command_ckpt, &o, argc, argv, 2, 2, err));
  lm_status s = act(&o, lm_options_words(parsed), err);
  lm_options_free(parsed);
  return s;
}

const lm_command lm_command_ckpt = {
    .name = "ckpt",
    .usage = "ckpt ls RUN [--json]\nckpt verify RUN|FILE [--json]\nckpt show FILE [--json]\nckpt prune RUN --keep N "
             "[--milestone_every K]",
    .summary = "list, verify, show and prune the checkpoints of a run",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .run = run,
};
