/* src/train/journal.c - RUN/journal.jsonl: a JSON object a start or rollback, and whether the starts get anywhere. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/journal.h"

#include "base/file.h"
#include "base/log.h"
#include "slurm/job.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* An entry keeps its length while it is written over, so that one write replaces it whole; blanks fill it up. */
enum { ROOM = 1536 };

struct lm_journal {
  int fd;
  off_t at;   /* of this start's entry */
  off_t next; /* the end of the file */
  char *path;
  lm_buffer head, line; /* what the start was; the entry */
  lm_journal_entry now;
};

/* ---- earlier starts ---- */

/* A start that the journal tells of. Texts are borrowed from its row. */
struct earlier {
  json_t *row; /* NULL: torn */
  uint64_t resumed, step, saved;
  const char *error, *job;
  bool ended; /* it wrote how it ended; one that was killed did not */
  int code;
};

static uint64_t number_of(const json_t *row, const char *key)
{
  json_int_t n = json_integer_value(json_object_get(row, key));
  return n > 0 ? (uint64_t)n : 0;
}

static struct earlier read_row(const char *text, size_t n)
{
  json_t *row = json_loadb(text, n, 0, NULL), *code = json_object_get(row, "exit");
  return (struct earlier){.row = row,
                          .resumed = number_of(row, "resumed_step"),
                          .step = number_of(row, "last_step"),
                          .saved = number_of(row, "saved_step"),
                          .error = json_string_value(json_object_get(row, "error")),
                          .job = json_string_value(json_object_get(row, "job")),
                          .ended = json_is_integer(code),
                          .code = (int)json_integer_value(code)};
}

/* What the rows say together. */
struct past {
  uint64_t starts, stalled; /* all; the last ones in a row that saved no new step */
  struct earlier last;
  double slowest_save; /* of the last start that saved */
  lm_buffer hosts;     /* those of the stalled starts, a space before each */
};

/* A start got somewhere if it saved a step beyond the one it resumed from, or found nothing left to do. */
static bool stalled(const struct earlier *e)
{
  return e->saved <= e->resumed && !(e->ended && e->code == 0);
}

static lm_status add_hosts(lm_buffer *all, const json_t *row, lm_error *err)
{
  size_t i;
  const json_t *host;
  json_array_foreach(json_object_get(row, "hosts"), i, host)
  {
    char name[80];
    snprintf(name, sizeof name, " %s", json_string_value(host) ? json_string_value(host) : "?");
    const char *seen = all->data ? strstr(all->data, name) : NULL;
    if (seen != NULL && (seen[strlen(name)] == ' ' || seen[strlen(name)] == '\0')) continue;
    LM_TRY(lm_buffer_append(all, name, strlen(name), err));
  }
  return LM_OK;
}

static lm_status add_row(struct past *p, const char *text, size_t n, lm_error *err)
{
  struct earlier e = read_row(text, n);
  if (json_object_get(e.row, "rollback") != NULL) {
    json_decref(e.row);
    return LM_OK;
  }
  json_decref(p->last.row);
  p->last = e;
  p->starts++;
  if (e.ended && e.code == 2) return LM_OK; /* refused for what the user can mend: says nothing of the cluster */
  if (!stalled(&e)) {
    p->stalled = 0;
    p->hosts.size = 0;
    if (p->hosts.data != NULL) p->hosts.data[0] = '\0';
  } else {
    p->stalled++;
    LM_TRY(add_hosts(&p->hosts, e.row, err));
  }
  double save = json_number_value(json_object_get(e.row, "slowest_save"));
  if (save > 0) p->slowest_save = save;
  return LM_OK;
}

static lm_status read_past(struct past *p, lm_buffer *text, const char *path, lm_error *err)
{
  if (!lm_file_exists(path)) return LM_OK;
  LM_TRY(lm_file_read(path, text, err));
  for (size_t at = 0; at < text->size;) {
    const char *row = text->data + at, *newline = memchr(row, '\n', text->size - at);
    size_t n = newline ? (size_t)(newline - row) : text->size - at;
    LM_TRY(add_row(p, row, n, err));
    at += n + 1;
  }
  return LM_OK;
}

static void forget(struct past *p)
{
  json_decref(p->last.row);
  lm_buffer_free(&p->hosts);
}

static void say_last(const struct past *p)
{
  const struct earlier *e = &p->last;
  if (p->starts == 0) return;
  char how[400];
  if (!e->ended)
    snprintf(how, sizeof how, "was killed");
  else if (e->code == 0 || e->code == 75)
    snprintf(how, sizeof how, "ended with exit code %d", e->code);
  else
    snprintf(how, sizeof how, "failed with exit code %d: %s", e->code, e->error ? e->error : "");
  lm_info("start %" PRIu64 " of this run, job %s, restart %ld; the one before (job %s) resumed from step %" PRIu64
          ", reached step %" PRIu64 ", saved step %" PRIu64 ", and %s",
          p->starts + 1, lm_slurm_job_id() ? lm_slurm_job_id() : "none", lm_slurm_restarts(), e->job ? e->job : "none",
          e->resumed, e->step, e->saved, how);
}

static lm_status refuse_stalled(const struct past *p, const char *run, int64_t allowed, lm_error *err)
{
  if (allowed == 0 || p->stalled < (uint64_t)allowed) return LM_OK;
  const struct earlier *e = &p->last;
  return lm_fail(err, LM_NO_PROGRESS,
                 "%s: the last %" PRIu64 " starts saved no new step: step %" PRIu64
                 " is the newest saved, step %" PRIu64
                 " the last one reached, on%.200s; %s%.300s. Once the cause is mended: --run.max_stalled=0",
                 run, p->stalled, e->saved, e->step, p->hosts.data ? p->hosts.data : " unknown hosts",
                 e->error ? "the last error: " : "the last start was killed", e->error ? e->error : "");
}

/* ---- rollbacks ---- */

/* Those that still count, in the order of their steps: a stack, as going back takes later ones off. */
struct rollbacks {
  lm_journal_rollback *items;
  size_t n;
};

static void go_back_to(struct rollbacks *all, uint64_t step)
{
  while (all->n > 0 && all->items[all->n - 1].to > step) all->n--;
}

/* A start that reached no step took nothing off. A rollback to the step of an earlier one begins where that one ended.
 */
static void follow_row(struct rollbacks *all, const json_t *row)
{
  const json_t *samples = json_object_get(row, "samples_left_out");
  if (number_of(row, "last_step") > 0) go_back_to(all, number_of(row, "resumed_step"));
  if (json_object_get(row, "rollback") == NULL) return;
  go_back_to(all, number_of(row, "to_step"));
  all->items[all->n++] = (lm_journal_rollback){
      .bad = number_of(row, "bad_step"),
      .to = number_of(row, "to_step"),
      .from_sample = (uint64_t)json_integer_value(json_array_get(samples, 0)),
      .to_sample = (uint64_t)json_integer_value(json_array_get(samples, 1)),
  };
}

static lm_status read_rollbacks(struct rollbacks *all, const lm_buffer *text, lm_error *err)
{
  size_t rows = 1;
  for (size_t i = 0; i < text->size; i++) rows += text->data[i] == '\n';
  LM_TRY(lm_alloc(&all->items, rows, sizeof *all->items, "the rollbacks of a run", err));
  for (size_t at = 0; at < text->size;) {
    const char *row = text->data + at, *newline = memchr(row, '\n', text->size - at);
    size_t n = newline ? (size_t)(newline - row) : text->size - at;
    json_t *object = json_loadb(row, n, 0, NULL);
    follow_row(all, object);
    json_decref(object);
    at += n + 1;
  }
  return LM_OK;
}

lm_status lm_journal_rollback_before(const char *run, uint64_t step, lm_journal_rollback *out, bool *found,
                                     lm_error *err)
{
  struct rollbacks all = {0};
  lm_buffer text = {0};
  char path[PATH_MAX];
  *found = false;
  snprintf(path, sizeof path, "%s/journal.jsonl", run);
  if (!lm_file_exists(path)) return LM_OK;
  lm_status s = lm_file_read(path, &text, err);
  if (s == LM_OK) s = read_rollbacks(&all, &text, err);
  go_back_to(&all, step);
  if (s == LM_OK && all.n > 0) {
    *found = true;
    *out = all.items[all.n - 1];
  }
  free(all.items);
  lm_buffer_free(&text);
  return s;
}

/* ---- this start ---- */

static lm_status add_text(lm_buffer *b, const char *key, const char *text, size_t most, lm_error *err)
{
  if (text == NULL) return lm_buffer_printf(b, err, ", \"%s\": null", key);
  /* A cut may fall into a character of several bytes: leave those out. */
  size_t n = strnlen(text, most);
  while (n > 0 && text[n] != '\0' && ((unsigned char)text[n] & 0xc0) == 0x80) n--;
  json_t *string = json_stringn(text, n);
  char *json = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
  lm_status s = lm_buffer_printf(b, err, ", \"%s\": %s", key, json ? json : "\"?\"");
  free(json);
  json_decref(string);
  return s;
}

static lm_status write_entry(lm_journal *j, const char *how, bool sync, lm_error *err)
{
  j->line.size = 0;
  LM_TRY(lm_buffer_append(&j->line, j->head.data, j->head.size, err));
  LM_TRY(lm_buffer_printf(&j->line, err,
                          ", \"resumed_step\": %" PRIu64 ", \"last_step\": %" PRIu64 ", \"saved_step\": %" PRIu64
                          ", \"slowest_step\": %.3f, \"slowest_save\": %.3f%s}",
                          j->now.resumed, j->now.step, j->now.saved, j->now.slowest_step, j->now.slowest_save, how));
  size_t room = j->head.size + ROOM;
  LM_TRY(lm_buffer_reserve(&j->line, room, err));
  if (j->line.size < room) memset(j->line.data + j->line.size, ' ', room - j->line.size);
  j->line.data[room - 1] = '\n';
  LM_TRY(lm_pwrite_all(j->fd, j->path, j->line.data, room, j->at, err));
  if (j->next < j->at + (off_t)room) j->next = j->at + (off_t)room;
  if (sync && fsync(j->fd) != 0) return lm_fail(err, LM_EIO, "%s: cannot fsync: %s", j->path, strerror(errno));
  return LM_OK;
}

/* Each host once. @param hosts  [size] names of 64 bytes, in rank order */
static lm_status add_names(lm_buffer *b, const char (*hosts)[64], int size, lm_error *err)
{
  LM_TRY(lm_buffer_printf(b, err, ", \"ranks\": %d, \"hosts\": [", size));
  for (int i = 0, named = 0; i < size; i++) {
    bool seen = false;
    for (int k = i; k-- > 0 && !seen;) seen = strcmp(hosts[i], hosts[k]) == 0;
    if (!seen) LM_TRY(lm_buffer_printf(b, err, "%s\"%s\"", named++ ? ", " : "", hosts[i]));
  }
  return lm_buffer_printf(b, err, "]");
}

static void write_time(char out[32])
{
  time_t seconds = time(NULL);
  strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", gmtime(&seconds));
}

static lm_status describe_start(lm_journal *j, const char (*hosts)[64], int size, lm_error *err)
{
  char now[32];
  write_time(now);
  LM_TRY(lm_buffer_printf(&j->head, err, "{\"start\": \"%s\"", now));
  LM_TRY(add_text(&j->head, "job", lm_slurm_job_id(), 100, err));
  LM_TRY(lm_buffer_printf(&j->head, err, ", \"restart\": %ld", lm_slurm_restarts()));
  return add_names(&j->head, hosts, size, err);
}

/* A torn last row keeps its place: it was a start. */
static lm_status open_file(lm_journal *j, const lm_buffer *old, lm_error *err)
{
  j->fd = open(j->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (j->fd < 0) return lm_fail(err, LM_EIO, "%s: cannot open for writing: %s", j->path, strerror(errno));
  j->at = (off_t)old->size;
  if (old->size == 0 || old->data[old->size - 1] == '\n') return LM_OK;
  LM_TRY(lm_pwrite_all(j->fd, j->path, "\n", 1, j->at, err));
  j->at++;
  return LM_OK;
}

static void release(lm_journal *j)
{
  if (j->fd >= 0) close(j->fd);
  lm_buffer_free(&j->head);
  lm_buffer_free(&j->line);
  free(j->path);
  free(j);
}

static lm_status begin(lm_journal *j, const char *run, const char (*hosts)[64], int size, int64_t allowed,
                       double *slowest_save, lm_error *err)
{
  struct past past = {0};
  lm_buffer text = {0};
  if (asprintf(&j->path, "%s/journal.jsonl", run) < 0) return lm_fail(err, LM_ENOMEM, "no memory for the journal");
  lm_status s = read_past(&past, &text, j->path, err);
  if (s == LM_OK) say_last(&past);
  if (s == LM_OK) s = refuse_stalled(&past, run, allowed, err);
  if (s == LM_OK) s = open_file(j, &text, err);
  if (s == LM_OK) s = describe_start(j, hosts, size, err);
  if (s == LM_OK) s = write_entry(j, ", \"exit\": null", true, err);
  *slowest_save = past.slowest_save;
  lm_buffer_free(&text);
  forget(&past);
  return s;
}

static lm_status begin_rank0(lm_journal **out, const char *run, const char (*hosts)[64], int size, int64_t allowed,
                             double *slowest_save, lm_error *err)
{
  lm_journal *j;
  LM_TRY(lm_alloc(&j, 1, sizeof *j, "the journal", err));
  j->fd = -1;
  lm_status s = begin(j, run, hosts, size, allowed, slowest_save, err);
  if (s == LM_OK)
    *out = j;
  else
    release(j);
  return s;
}

lm_status lm_journal_open(lm_journal **out, const lm_comm *comm, const char *run, int64_t allowed, double *slowest_save,
                          lm_error *err)
{
  char(*hosts)[64];
  *out = NULL;
  *slowest_save = 0;
  LM_TRY(lm_alloc_agreed(comm, &hosts, (size_t)comm->size, sizeof *hosts, "the names of hosts", err));
  lm_allgather(comm, comm->host, sizeof comm->host, hosts);
  lm_status s = LM_OK;
  if (comm->rank == 0) s = begin_rank0(out, run, hosts, comm->size, allowed, slowest_save, err);
  free(hosts);
  s = lm_agree(comm, s, err);
  if (s == LM_OK) lm_bcast(comm, slowest_save, sizeof *slowest_save, 0);
  return s;
}

lm_status lm_journal_note(lm_journal *j, const lm_journal_entry *now, lm_error *err)
{
  bool saved = now->saved != j->now.saved;
  j->now = *now;
  return write_entry(j, ", \"exit\": null", saved, err);
}

static lm_status describe_rollback(lm_buffer *line, const lm_journal_rollback *what, lm_error *err)
{
  char now[32];
  write_time(now);
  LM_TRY(lm_buffer_printf(line, err,
                          "{\"rollback\": \"%s\", \"bad_step\": %" PRIu64 ", \"to_step\": %" PRIu64
                          ", \"samples_left_out\": [%" PRIu64 ", %" PRIu64 "]",
                          now, what->bad, what->to, what->from_sample, what->to_sample));
  LM_TRY(add_text(line, "why", what->why, 300, err));
  return lm_buffer_printf(line, err, "}\n");
}

lm_status lm_journal_add_rollback(lm_journal *j, const lm_journal_rollback *what, lm_error *err)
{
  j->line.size = 0;
  LM_TRY(describe_rollback(&j->line, what, err));
  LM_TRY(lm_pwrite_all(j->fd, j->path, j->line.data, j->line.size, j->next, err));
  j->next += (off_t)j->line.size;
  if (fsync(j->fd) != 0) return lm_fail(err, LM_EIO, "%s: cannot fsync: %s", j->path, strerror(errno));
  return LM_OK;
}

void lm_journal_close(lm_journal *j, lm_status s, const lm_error *err)
{
  if (j == NULL) return;
  lm_buffer how = {0};
  lm_error why;
  bool failed = s != LM_OK && s != LM_STOPPED;
  lm_status written = lm_buffer_printf(&how, &why, ", \"exit\": %d", lm_exit_code(s));
  if (written == LM_OK) written = add_text(&how, "error", failed ? err->text : NULL, 300, &why);
  if (written == LM_OK)
    written = add_text(&how, "failed_host", failed && err->host[0] != '\0' ? err->host : NULL, 64, &why);
  if (written == LM_OK) written = write_entry(j, how.data, true, &why);
  if (written != LM_OK) lm_warn("the journal does not tell how this start ended: %s", why.text);
  lm_buffer_free(&how);
  release(j);
}
