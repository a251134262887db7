/* src/command/ckpt.c - mpilm ckpt: what checkpoints a run has, whether they are whole, and which go. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "command/command.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct ckpt_options {
  bool json, full;
  int64_t keep, milestone_every;
};

static const lm_option options[] = {
    {"json", LM_OPT_BOOL, offsetof(struct ckpt_options, json), "false", NULL, NULL,
     "ls, verify, show, diff, prune: print one JSON object"},
    {"full", LM_OPT_BOOL, offsetof(struct ckpt_options, full), "false", NULL, NULL,
     "ls: also compare every byte with its hash, as verify does"},
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

/* What a checkpoint says of itself. */
struct origin {
  uint64_t ranks;
  float loss, validation_loss; /* NaN: none */
  const char *hashes;          /* "good", "damaged", "not read" */
};

static struct origin origin_of(const struct ckpt_options *o, const lm_checkpoint *c)
{
  struct origin out = {.loss = NAN, .validation_loss = NAN, .hashes = c->complete ? "not read" : "damaged"};
  const lm_state_slice slices[] = {
      {.name = "/provenance/loss", .dtype = LM_F32, .count = 1, .data = &out.loss, .optional = true},
      {.name = "/provenance/validation_loss",
       .dtype = LM_F32,
       .count = 1,
       .data = &out.validation_loss,
       .optional = true},
  };
  lm_comm self;
  lm_comm_self(&self);
  if (!c->complete) return out;
  if (lm_state_ranks(c->path, &out.ranks, NULL) != LM_OK) out.ranks = 0;
  if (lm_state_read(&self, c->path, slices, 2, NULL) != LM_OK) out.loss = out.validation_loss = NAN;
  if (o->full) out.hashes = lm_state_verify(c->path, NULL) == LM_OK ? "good" : "damaged";
  return out;
}

static json_t *number_or_null(double x)
{
  return isfinite(x) ? json_real(x) : json_null();
}

static json_t *describe(const struct ckpt_options *asked, const lm_checkpoint *c)
{
  struct origin from = origin_of(asked, c);
  json_t *o =
      json_pack("{s:I, s:b, s:s, s:I, s:o, s:o, s:I, s:f, s:s}", "step", (json_int_t)c->step, "complete", c->complete,
                "hashes", from.hashes, "ranks", (json_int_t)from.ranks, "loss", number_or_null((double)from.loss),
                "validation_loss", number_or_null((double)from.validation_loss), "bytes", (json_int_t)c->bytes, "age_s",
                age_of(c->path), "path", c->path);
  if (o != NULL && !c->complete) json_object_set_new(o, "reason", json_string(c->reason));
  return o;
}

static void print_row(const struct ckpt_options *o, const lm_checkpoint *c)
{
  char age[32], loss[32] = "-";
  struct origin from = origin_of(o, c);
  print_age(age_of(c->path), age);
  if (isfinite(from.loss)) snprintf(loss, sizeof loss, "%.4f", (double)from.loss);
  printf("%10" PRIu64 "  %-8s  %-8s  %5" PRIu64 "  %8s  %15" PRIu64 "  %8s  %s\n", c->step, c->complete ? "yes" : "no",
         from.hashes, from.ranks, loss, c->bytes, age, c->complete ? c->path : c->reason);
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
    for (size_t i = 0; i < n; i++) json_array_append_new(rows, describe(o, &c[i]));
    s = print_json(json_pack("{s:s, s:o}", "run", run, "checkpoints", rows), err);
  } else {
    printf("%10s  %-8s  %-8s  %5s  %8s  %15s  %8s\n", "step", "complete", "hashes", "ranks", "loss", "bytes", "age");
    for (size_t i = 0; i < n; i++) print_row(o, &c[i]);
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

static lm_status print_removed(const struct ckpt_options *o, const char *run, const lm_buffer *paths, lm_error *err)
{
  json_t *list = json_array();
  for (size_t at = 0; at < paths->size; at += strlen(paths->data + at) + 1) {
    if (o->json)
      json_array_append_new(list, json_string(paths->data + at));
    else
      puts(paths->data + at);
  }
  if (o->json) return print_json(json_pack("{s:s, s:o}", "run", run, "removed", list), err);
  json_decref(list);
  return LM_OK;
}

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
  if (s == LM_OK) s = print_removed(o, run, &going, err);
  lm_buffer_free(&going);
  return s;
}

/* ---- diff ---- */

/* One tensor of two files; b: the entry of the same name, NULL where B has none. */
struct pair {
  const lm_state_entry *a, *b;
  bool equal;           /* to the last bit */
  double largest, root; /* difference: largest, root of the mean square; of floats */
};

static bool is_float(lm_dtype t)
{
  return t == LM_F32 || t == LM_BF16 || t == LM_F16;
}

static size_t elements_of(const lm_state_entry *e)
{
  size_t n = 1;
  for (int d = 0; d < e->ndim; d++) n *= e->shape[d];
  return n;
}

static bool comparable(const struct pair *p)
{
  if (p->b == NULL || p->a->ndim != p->b->ndim) return false;
  for (int d = 0; d < p->a->ndim; d++)
    if (p->a->shape[d] != p->b->shape[d]) return false;
  return p->a->dtype == p->b->dtype || (is_float(p->a->dtype) && is_float(p->b->dtype));
}

static void compare_floats(struct pair *p, const float *a, const float *b, size_t n)
{
  double sum = 0;
  for (size_t i = 0; i < n; i++) {
    double d = fabs((double)a[i] - (double)b[i]);
    if (!(d <= p->largest)) p->largest = d; /* NaN is a difference too */
    sum += d * d;
  }
  p->root = n > 0 ? sqrt(sum / (double)n) : 0;
}

/* Floats are compared as f32, which every type of ours converts to without a loss. */
static lm_status compare_pair(const char *A, const char *B, struct pair *p, lm_error *err)
{
  LM_ASSERT(p->b != NULL); /* who is alone has nothing to be compared with */
  size_t n = elements_of(p->a);
  lm_dtype as = is_float(p->a->dtype) ? LM_F32 : p->a->dtype;
  lm_state_slice s = {.dtype = as, .ndim = p->a->ndim, .count = n};
  lm_comm self;
  char *a = NULL, *b = NULL;
  lm_comm_self(&self);
  memcpy(s.name, p->a->name, sizeof s.name);
  memcpy(s.shape, p->a->shape, sizeof s.shape);
  lm_status status = lm_alloc(&a, n, lm_dtype_size(as), "a tensor", err);
  if (status == LM_OK) status = lm_alloc(&b, n, lm_dtype_size(as), "a tensor", err);
  s.data = a;
  if (status == LM_OK) status = lm_state_read(&self, A, &s, 1, err);
  s.data = b;
  if (status == LM_OK) status = lm_state_read(&self, B, &s, 1, err);
  if (status == LM_OK) p->equal = p->a->dtype == p->b->dtype && memcmp(a, b, n * lm_dtype_size(as)) == 0;
  if (status == LM_OK && as == LM_F32) compare_floats(p, (float *)(void *)a, (float *)(void *)b, n);
  free(a);
  free(b);
  return status;
}

static json_t *pair_json(const struct pair *p)
{
  json_t *o = json_pack("{s:s, s:b}", "name", p->a->name, "equal", p->equal);
  if (o == NULL || p->equal) return o;
  if (!comparable(p)) {
    json_object_set_new(o, "reason", json_string(p->b == NULL ? "only in the first" : "another shape or type"));
  } else if (is_float(p->a->dtype)) {
    json_object_set_new(o, "max", number_or_null(p->largest));
    json_object_set_new(o, "rms", number_or_null(p->root));
  }
  return o;
}

static void print_pair(const struct pair *p)
{
  if (p->equal)
    printf("equal    %s\n", p->a->name);
  else if (p->b == NULL)
    printf("missing  %s: only in the first\n", p->a->name);
  else if (!comparable(p))
    printf("differs  %s: another shape or type\n", p->a->name);
  else if (is_float(p->a->dtype))
    printf("differs  %s: max %.6g, rms %.6g\n", p->a->name, p->largest, p->root);
  else
    printf("differs  %s\n", p->a->name);
}

static const lm_state_entry *entry_of(const lm_state_entry *list, size_t n, const char *name)
{
  for (size_t i = 0; i < n; i++)
    if (strcmp(list[i].name, name) == 0) return &list[i];
  return NULL;
}

struct two_lists {
  lm_state_entry *a, *b;
  size_t n_a, n_b;
};

static lm_status diff_lists(const struct ckpt_options *o, const char *A, const char *B, const struct two_lists *l,
                            lm_error *err)
{
  size_t differ = 0;
  json_t *rows = json_array();
  lm_status s = LM_OK;
  for (size_t i = 0; i < l->n_a && s == LM_OK; i++) {
    struct pair p = {.a = &l->a[i], .b = entry_of(l->b, l->n_b, l->a[i].name)};
    if (comparable(&p)) s = compare_pair(A, B, &p, err);
    differ += !p.equal;
    if (s == LM_OK && o->json) json_array_append_new(rows, pair_json(&p));
    if (s == LM_OK && !o->json) print_pair(&p);
  }
  for (size_t i = 0; i < l->n_b && s == LM_OK; i++) {
    if (entry_of(l->a, l->n_a, l->b[i].name) != NULL) continue;
    differ++;
    if (!o->json) printf("missing  %s: only in the second\n", l->b[i].name);
    if (o->json)
      json_array_append_new(
          rows, json_pack("{s:s, s:b, s:s}", "name", l->b[i].name, "equal", 0, "reason", "only in the second"));
  }
  if (s == LM_OK && o->json)
    s = print_json(json_pack("{s:s, s:s, s:I, s:o}", "a", A, "b", B, "differ", (json_int_t)differ, "tensors", rows),
                   err);
  else
    json_decref(rows);
  if (s == LM_OK && differ > 0) s = lm_fail(err, LM_EDAMAGED, "%s and %s differ in %zu tensors", A, B, differ);
  return s;
}

static lm_status diff(const struct ckpt_options *o, const char *A, const char *B, lm_error *err)
{
  struct two_lists l = {0};
  lm_status s = lm_state_list(A, &l.a, &l.n_a, err);
  if (s == LM_OK) s = lm_state_list(B, &l.b, &l.n_b, err);
  if (s == LM_OK) s = diff_lists(o, A, B, &l, err);
  free(l.a);
  free(l.b);
  return s;
}

/* ---- copy ---- */

static lm_status copy_bytes(int from, const char *from_path, int to, const char *to_path, lm_error *err)
{
  enum { PIECE = 8 << 20 };
  char *piece;
  struct stat st;
  if (fstat(from, &st) != 0) return lm_fail(err, LM_EIO, "%s: cannot ask for its size: %s", from_path, strerror(errno));
  LM_TRY(lm_alloc(&piece, PIECE, 1, "a piece of a checkpoint", err));
  lm_status s = LM_OK;
  for (off_t at = 0; s == LM_OK && at < st.st_size; at += PIECE) {
    size_t n = st.st_size - at < PIECE ? (size_t)(st.st_size - at) : PIECE;
    s = lm_pread_all(from, from_path, piece, n, at, err);
    if (s == LM_OK) s = lm_pwrite_all(to, to_path, piece, n, at, err);
  }
  free(piece);
  if (s == LM_OK && fsync(to) != 0) s = lm_fail(err, LM_EIO, "%s: cannot fsync: %s", to_path, strerror(errno));
  return s;
}

static lm_status copy_to(const char *A, const char *part, lm_error *err)
{
  int from = open(A, O_RDONLY | O_CLOEXEC);
  if (from < 0) return lm_fail(err, LM_EINVAL, "%s: cannot open for reading: %s", A, strerror(errno));
  int to = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  lm_status s = to >= 0 ? copy_bytes(from, A, to, part, err)
                        : lm_fail(err, LM_EINVAL, "%s: cannot open for writing: %s", part, strerror(errno));
  if (to >= 0 && close(to) != 0 && s == LM_OK) s = lm_fail(err, LM_EIO, "%s: cannot close: %s", part, strerror(errno));
  close(from);
  return s;
}

/* The copy has its name only when all of it has been read back and compared. */
static lm_status copy(const struct ckpt_options *o, const char *A, const char *B, lm_error *err)
{
  char part[PATH_MAX];
  (void)o;
  if (lm_file_exists(B)) return lm_fail(err, LM_EINVAL, "%s: is there already; want the name of a new file", B);
  if ((size_t)snprintf(part, sizeof part, "%s.part", B) >= sizeof part)
    return lm_fail(err, LM_EINVAL, "%s: the path is too long", B);
  LM_TRY(lm_state_verify(A, err));
  lm_status s = copy_to(A, part, err);
  if (s == LM_OK) s = lm_state_verify(part, err);
  if (s == LM_OK) s = lm_file_commit(part, B, err);
  if (s != LM_OK) unlink(part);
  return s;
}

static const struct {
  const char *name;
  lm_status (*one)(const struct ckpt_options *o, const char *path, lm_error *err);
  lm_status (*two)(const struct ckpt_options *o, const char *A, const char *B, lm_error *err);
} actions[] = {{"ls", list, NULL},     {"verify", verify, NULL}, {"show", show, NULL},
               {"prune", prune, NULL}, {"diff", NULL, diff},     {"copy", NULL, copy}};
enum { N_ACTIONS = sizeof actions / sizeof actions[0] };

static lm_status act(const struct ckpt_options *o, const lm_list *words, lm_error *err)
{
  const char *names[N_ACTIONS];
  for (int i = 0; i < N_ACTIONS; i++) {
    names[i] = actions[i].name;
    if (strcmp(words->items[0], names[i]) != 0) continue;
    size_t want = actions[i].two != NULL ? 3 : 2;
    if (words->count != want)
      return lm_fail(err, LM_EINVAL, "ckpt %s: %zu paths, want %zu", names[i], words->count - 1, want - 1);
    return actions[i].two != NULL ? actions[i].two(o, words->items[1], words->items[2], err)
                                  : actions[i].one(o, words->items[1], err);
  }
  const char *near = lm_nearest_word(words->items[0], names, N_ACTIONS);
  return lm_fail(err, LM_EINVAL, "ckpt: '%s' is unknown; want ls, verify, show, diff, copy or prune%s%s%s",
                 words->items[0], near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static lm_status run(const lm_comm *comm, int argc, char **argv, lm_error *err)
{
  (void)comm;
  struct ckpt_options o;
  lm_options *parsed;
  LM_TRY(lm_command_options(&parsed, &lm_command_ckpt, &o, argc, argv, 2, 3, err));
  lm_status s = act(&o, lm_options_words(parsed), err);
  lm_options_free(parsed);
  return s;
}

const lm_command lm_command_ckpt = {
    .name = "ckpt",
    .usage = "ckpt ls RUN [--json] [--full]\nckpt verify RUN|FILE [--json]\nckpt show FILE [--json]\nckpt diff A B "
             "[--json]\nckpt copy A B\nckpt prune RUN --keep N "
             "[--milestone_every K]",
    .summary = "list, verify, show, compare, copy and prune the checkpoints of a run",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .run = run,
};
