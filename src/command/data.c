/* src/command/data.c - mpilm data: what is in a token dataset, is it whole, and what does it say. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "batch/dataset.h"
#include "batch/import.h"
#include "batch/loader.h"
#include "checkpoint/checkpoint.h"
#include "command/command.h"
#include "text/vocab.h"
#include "train/journal.h"
#include "train/mixing.h"
#include "train/run_config.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct data_options {
  const char *vocab, *out;
  int64_t document, window, length;
  int pattern, format;
  bool json;
};

#define AT(field) offsetof(struct data_options, field)
static const lm_option options[] = {
    {"vocab", LM_OPT_STRING, AT(vocab), "", NULL, NULL, "cat, import: the vocabulary that the dataset was made with"},
    {"pattern", LM_OPT_CHOICE, AT(pattern), "auto", LM_PATTERN_WORDS_OR_AUTO, NULL,
     "cat: split pattern of vocabulary files that do not name theirs"},
    {"document", LM_OPT_INT, AT(document), "-1", "[-1, inf)", NULL, "cat: print this document, from 0; -1: all"},
    {"window", LM_OPT_INT, AT(window), "-1", "[-1, inf)", NULL, "cat: print this window of --length tokens, from 0"},
    {"length", LM_OPT_INT, AT(length), "1024", "[1, 2147483647]", "tokens", "cat: of a window"},
    {"out", LM_OPT_STRING, AT(out), "", NULL, NULL, "import: the token dataset to write"},
    {"format", LM_OPT_CHOICE, AT(format), "auto", LM_FOREIGN_WORDS, NULL,
     "import: auto knows llm.c's .bin and Megatron's .bin with .idx; raw ids have no header (nanoGPT: raw16)"},
    {"json", LM_OPT_BOOL, AT(json), "false", NULL, NULL, "info: print one JSON object"},
};

/* ---- info ---- */

static lm_status info_json(const char *path, const lm_token_info *i, lm_error *err)
{
  char checksum[17], fingerprint[17]; /* as text: JSON numbers of many readers have 53 bits */
  snprintf(checksum, sizeof checksum, "%016" PRIx64, i->checksum);
  snprintf(fingerprint, sizeof fingerprint, "%016" PRIx64, i->vocab_fingerprint);
  json_t *o = json_pack("{s:s, s:I, s:I, s:i, s:I, s:I, s:s, s:s, s:s%}", "path", path, "tokens", (json_int_t)i->tokens,
                        "documents", (json_int_t)i->documents, "bits", 8 * i->width, "vocab_size",
                        (json_int_t)i->vocab_size, "end_of_text", (json_int_t)i->end_of_text, "vocab_fingerprint",
                        fingerprint, "checksum", checksum, "sources", i->sources, strlen(i->sources));
  if (o == NULL)
    return lm_fail(err, LM_EINVAL, "%s: its path or its sources are not UTF-8, JSON cannot name them", path);
  json_dumpf(o, stdout, JSON_INDENT(1));
  putchar('\n');
  json_decref(o);
  return LM_OK;
}

static void info_lines(const lm_token_info *i)
{
  printf("tokens             %" PRIu64 "\n", i->tokens);
  printf("documents          %" PRIu64 "\n", i->documents);
  printf("stored as          %d bits at byte %lld\n", 8 * i->width, (long long)i->offset);
  printf("vocabulary size    %" PRIu64 "\n", i->vocab_size);
  printf("end of text        %" PRIu64 "\n", i->end_of_text);
  if (i->begins_documents) printf("begin of text      %" PRIu64 "\n", i->begin_of_text);
  printf("fingerprint        %016" PRIx64 "\n", i->vocab_fingerprint);
  printf("checksum           %016" PRIx64 "\n", i->checksum);
  for (const char *line = i->sources; *line != '\0';) {
    int n = (int)strcspn(line, "\n");
    printf("%-18s %.*s\n", line == i->sources ? "sources" : "", n, line);
    line += n + (line[n] == '\n');
  }
}

static lm_status data_info(const lm_dataset *d, const struct data_options *o, lm_error *err)
{
  if (o->json) return info_json(lm_dataset_path(d), lm_dataset_info(d), err);
  info_lines(lm_dataset_info(d));
  return LM_OK;
}

/* ---- verify ---- */

static lm_status data_verify(const lm_dataset *d, const struct data_options *o, lm_error *err)
{
  (void)o;
  LM_TRY(lm_dataset_verify(d, err));
  const lm_token_info *i = lm_dataset_info(d);
  printf("%s: %" PRIu64 " tokens in %" PRIu64 " documents are whole\n", lm_dataset_path(d), i->tokens, i->documents);
  return LM_OK;
}

/* ---- cat ---- */

static lm_status print_tokens(const lm_dataset *d, const lm_vocab *v, uint64_t begin, uint64_t end, lm_error *err)
{
  enum { CHUNK = 2048 };
  uint32_t wide[CHUNK]; /* ids as stored: of 2 or of 4 bytes */
  const lm_token_info *info = lm_dataset_info(d);
  for (uint64_t at = begin; at < end;) {
    size_t step = end - at < CHUNK ? (size_t)(end - at) : CHUNK;
    LM_TRY(lm_dataset_ids(d, at, step, wide, err));
    for (size_t k = 0; k < step; k++) {
      uint32_t id = info->width == 2 ? ((const uint16_t *)(const void *)wide)[k] : wide[k];
      if (id >= info->vocab_size)
        return lm_fail(err, LM_EDAMAGED,
                       "%s: token %" PRIu64 " is id %" PRIu32 ", not below the vocabulary size %" PRIu64,
                       lm_dataset_path(d), at + k, id, info->vocab_size);
      size_t n;
      const char *bytes = lm_vocab_bytes(v, id, &n);
      if (bytes == NULL)
        return lm_fail(err, LM_EDAMAGED, "%s: token %" PRIu64 " is id %" PRIu32 ", which the vocabulary leaves unused",
                       lm_dataset_path(d), at + k, id);
      fwrite(bytes, 1, n, stdout);
    }
    at += step;
  }
  return ferror(stdout) ? lm_fail(err, LM_EIO, "cannot write to stdout") : LM_OK;
}

/* Without its end of text. */
static lm_status print_document(const lm_dataset *d, const lm_vocab *v, uint64_t n, lm_error *err)
{
  const lm_token_info *info = lm_dataset_info(d);
  uint64_t border[2] = {0, 0};
  if (n >= info->documents)
    return lm_fail(err, LM_EINVAL, "%s: --document %" PRIu64 ": there are %" PRIu64 ", counted from 0",
                   lm_dataset_path(d), n, info->documents);
  LM_TRY(n == 0 ? lm_dataset_document_ends(d, 0, 1, border + 1, err)
                : lm_dataset_document_ends(d, n - 1, 2, border, err));
  if (border[0] >= border[1] || border[1] > info->tokens)
    return lm_fail(err, LM_EDAMAGED, "%s: document %" PRIu64 " is [%" PRIu64 ", %" PRIu64 ") of %" PRIu64 " tokens",
                   lm_dataset_path(d), n, border[0], border[1], info->tokens);
  return print_tokens(d, v, border[0], border[1] - 1, err);
}

static lm_status print_window(const lm_dataset *d, const lm_vocab *v, uint64_t i, int T, lm_error *err)
{
  uint64_t windows = lm_dataset_windows(d, T);
  if (i >= windows)
    return lm_fail(err, LM_EINVAL, "%s: --window %" PRIu64 ": there are %" PRIu64 " of %d tokens, counted from 0",
                   lm_dataset_path(d), i, windows, T);
  return print_tokens(d, v, i * (uint64_t)T, (i + 1) * (uint64_t)T, err);
}

static lm_status cat(const lm_dataset *d, const lm_vocab *v, const struct data_options *o, lm_error *err)
{
  const lm_token_info *info = lm_dataset_info(d);
  if (lm_vocab_fingerprint(v) != info->vocab_fingerprint)
    return lm_fail(err, LM_EINVAL,
                   "%s: was made with another vocabulary: fingerprint %016" PRIx64
                   ", that of --vocab %s is %016" PRIx64,
                   lm_dataset_path(d), info->vocab_fingerprint, o->vocab, lm_vocab_fingerprint(v));
  if (o->document >= 0 && o->window >= 0) return lm_fail(err, LM_EINVAL, "--document and --window exclude each other");
  if (o->window >= 0) return print_window(d, v, (uint64_t)o->window, (int)o->length, err);
  if (o->document >= 0) return print_document(d, v, (uint64_t)o->document, err);
  return print_tokens(d, v, 0, info->tokens, err);
}

static lm_status data_cat(const lm_dataset *d, const struct data_options *o, lm_error *err)
{
  lm_vocab *v;
  if (o->vocab[0] == '\0') return lm_fail(err, LM_EINVAL, "data cat needs --vocab: ids alone are no text");
  LM_TRY(lm_vocab_load(&v, o->vocab, (lm_pattern)o->pattern, err));
  lm_status s = cat(d, v, o, err);
  lm_vocab_free(v);
  return s;
}

/* ---- import ---- */

static lm_status import(const lm_comm *self, const char *from, const lm_vocab *v, const struct data_options *o,
                        lm_error *err)
{
  uint64_t added;
  lm_token_info info = {.vocab_size = lm_vocab_size(v),
                        .end_of_text = lm_vocab_end_of_text(v),
                        .vocab_fingerprint = lm_vocab_fingerprint(v)};
  if (lm_vocab_end_of_text(v) == LM_NO_ID)
    return lm_fail(err, LM_EINVAL, "%s: has no end of text, which closes every document", o->vocab);
  LM_TRY(lm_import(self, from, (lm_foreign)o->format, o->out, &info, &added, err));
  printf("%s: %" PRIu64 " documents, %" PRIu64 " tokens of %d bits; %" PRIu64 " ends of text added\n", o->out,
         info.documents, info.tokens, 8 * info.width, added);
  return LM_OK;
}

static lm_status data_import(const char *from, const struct data_options *o, lm_error *err)
{
  lm_vocab *v;
  lm_comm self;
  if (o->out[0] == '\0') return lm_fail(err, LM_EINVAL, "data import needs --out: the dataset to write");
  if (o->vocab[0] == '\0')
    return lm_fail(err, LM_EINVAL, "data import needs --vocab: the vocabulary that the ids are of");
  LM_TRY(lm_vocab_load(&v, o->vocab, (lm_pattern)o->pattern, err));
  lm_comm_self(&self);
  lm_status s = import(&self, from, v, o, err);
  lm_comm_end(&self);
  lm_vocab_free(v);
  return s;
}

/* ---- which: the documents that a step of a run trains on ---- */

struct which_options {
  int64_t step;
};

static const lm_option which_options[] = {
    {"step", LM_OPT_INT, offsetof(struct which_options, step), "1", "[1, inf)", NULL,
     "which: of this step, as metrics.jsonl counts them"},
};

/* The document that token `at` is in: the first whose end lies behind it. */
static lm_status find_document(const lm_dataset *d, uint64_t at, uint64_t *document, lm_error *err)
{
  uint64_t low = 0, high = lm_dataset_info(d)->documents;
  while (low < high) {
    uint64_t middle = low + (high - low) / 2, end;
    LM_TRY(lm_dataset_document_ends(d, middle, 1, &end, err));
    if (end > at)
      high = middle;
    else
      low = middle + 1;
  }
  *document = low;
  return LM_OK;
}

/* What a step of a run is made of. */
struct plan {
  lm_sources sources;
  lm_mixture mixture;
  uint64_t now;        /* position of the newest checkpoint */
  uint64_t begin, end; /* positions of the step's samples */
};

/* What the checkpoints of the run folder know: what was drawn, and with which weights. The newest one tells of all that
 * came before it, and the config of what comes after. @param[out] last  its step, 0: there is none */
static lm_status plan_from_checkpoints(struct plan *p, const lm_config *cfg, uint64_t *last, lm_error *err)
{
  lm_checkpoint *list;
  size_t n;
  *last = p->now = 0;
  LM_TRY(lm_checkpoint_scan(cfg->run.folder, &list, &n, err));
  while (n > 0 && !list[n - 1].complete) n--;
  lm_status s = LM_OK;
  if (n > 0) {
    const lm_checkpoint *newest = &list[n - 1];
    *last = newest->step;
    s = lm_mixing_read(&p->mixture, &p->now, newest->path, err);
    if (s == LM_OK)
      s = lm_mixing_follow(&p->mixture, &p->sources, p->now, newest->path, cfg->run.allow_change == 1, err);
  }
  free(list);
  return s;
}

/* Rollbacks leave samples out, which the steps before do not tell: the newest checkpoint knows where the data goes on
 * behind it, and the journal where it went on before. */
static lm_status place_in_data(struct plan *p, const lm_config *cfg, uint64_t step, uint64_t last, lm_error *err)
{
  const lm_ramp ramp = lm_config_ramp(cfg);
  lm_journal_rollback jump;
  bool jumped = false;
  p->begin = lm_ramp_position(&ramp, step - 1);
  if (step > last)
    p->begin += p->now - lm_ramp_position(&ramp, last);
  else
    LM_TRY(lm_journal_rollback_before(cfg->run.folder, step - 1, &jump, &jumped, err));
  if (jumped) p->begin += jump.to_sample - lm_ramp_position(&ramp, jump.to);
  p->end = p->begin + lm_ramp_batch(&ramp, step - 1);
  return LM_OK;
}

static lm_status make_plan(struct plan *p, const lm_config *cfg, uint64_t step, lm_error *err)
{
  uint64_t last;
  LM_TRY(lm_sources_open(&p->sources, &cfg->data.train, (int)cfg->model.shape.n_ctx, err));
  LM_TRY(plan_from_checkpoints(p, cfg, &last, err));
  LM_TRY(place_in_data(p, cfg, step, last, err));
  return last > 0 ? LM_OK : lm_sources_mix(&p->sources, &p->mixture, 0, err);
}

static lm_status print_sample(lm_loader *l, const struct plan *p, uint64_t position, uint64_t T, lm_error *err)
{
  uint64_t first, last;
  lm_sample what = lm_loader_sample(l, position);
  if (what.source == NULL) {
    printf("%" PRIu64 " - - - checksum:%016" PRIx64 "\n", position, p->mixture.checksum[what.column]);
    return LM_OK;
  }
  const lm_dataset *d = what.source->data;
  LM_TRY(find_document(d, what.window * T, &first, err));
  LM_TRY(find_document(d, (what.window + 1) * T - 1, &last, err));
  printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %s\n", position, what.window, first, last,
         lm_dataset_path(d));
  return LM_OK;
}

/* Shares, and epochs of each dataset: until the newest checkpoint, and at the end of the run. */
static lm_status print_mixture(const struct plan *p, uint64_t now, uint64_t end, lm_error *err)
{
  size_t n = p->mixture.sources;
  uint64_t *drawn;
  LM_TRY(lm_alloc(&drawn, 2 * n, sizeof *drawn, "the samples drawn of each source", err));
  lm_status s = lm_mixture_drawn(&p->mixture, now, drawn, err);
  if (s == LM_OK) s = lm_mixture_drawn(&p->mixture, end, drawn + n, err);
  if (s == LM_OK)
    printf("%8s  %16s  %12s  %12s  %10s  %10s  dataset\n", "share", "tokens", "windows", "samples", "epochs",
           "at the end");
  for (size_t i = 0; s == LM_OK && i < p->sources.n; i++) {
    const lm_source *source = &p->sources.items[i];
    const lm_token_info *info = lm_dataset_info(source->data);
    size_t column = lm_mixture_column(&p->mixture, info->checksum);
    double windows = (double)source->windows;
    printf("%7.3f%%  %16" PRIu64 "  %12" PRIu64 "  %12" PRIu64 "  %10.3f  %10.3f  %s\n",
           100 * lm_mixture_share(&p->mixture, column), info->tokens, source->windows, drawn[column],
           (double)drawn[column] / windows, (double)drawn[n + column] / windows, lm_dataset_path(source->data));
  }
  free(drawn);
  return s;
}

static lm_status print_samples(const struct plan *p, const lm_config *cfg, lm_error *err)
{
  int T = (int)cfg->model.shape.n_ctx;
  lm_loader *l;
  LM_TRY(lm_loader_new(&l, &p->sources, &p->mixture, (uint64_t)cfg->run.seed, T, p->end - p->begin, 0, 1, err));
  printf("sample window first_document last_document dataset\n");
  lm_status s = LM_OK;
  for (uint64_t at = p->begin; s == LM_OK && at < p->end; at++) s = print_sample(l, p, at, (uint64_t)T, err);
  lm_loader_free(l);
  return s;
}

/* What a config says of its data: of a step, or, without one, of the run. */
static lm_status print_plan(const lm_config *cfg, uint64_t step, lm_error *err)
{
  struct plan plan = {0};
  lm_status s = make_plan(&plan, cfg, step > 0 ? step : (uint64_t)cfg->run.steps, err);
  if (s == LM_OK) s = step > 0 ? print_samples(&plan, cfg, err) : print_mixture(&plan, plan.now, plan.end, err);
  lm_mixture_free(&plan.mixture);
  lm_sources_close(&plan.sources);
  return s;
}

static lm_status data_of_config(bool which, int argc, char **argv, lm_error *err)
{
  struct which_options o;
  lm_options *own, *config = NULL;
  lm_config cfg;
  LM_TRY(lm_options_new(&own, which_options, which ? 1 : 0, &o, err));
  lm_status s = lm_options_take(own, &argc, argv, err);
  if (s == LM_OK) s = lm_config_load(&cfg, &config, argc, argv, err);
  if (s == LM_OK) s = print_plan(&cfg, which ? (uint64_t)o.step : 0, err);
  lm_options_free(config);
  lm_options_free(own);
  return s;
}

/* ---- the subcommand ---- */

static const struct verb {
  const char *name;
  lm_status (*run)(const lm_dataset *d, const struct data_options *o, lm_error *err);
} verbs[] = {{"info", data_info}, {"verify", data_verify}, {"cat", data_cat}};
enum { N_VERBS = sizeof verbs / sizeof verbs[0] };

static const struct verb *find_verb(const char *name)
{
  for (size_t i = 0; i < N_VERBS; i++)
    if (strcmp(verbs[i].name, name) == 0) return &verbs[i];
  return NULL;
}

static lm_status run_verb(const lm_list *words, const struct data_options *o, lm_error *err)
{
  const struct verb *verb = find_verb(words->items[0]);
  lm_dataset *d;
  if (strcmp(words->items[0], "import") == 0) return data_import(words->items[1], o, err);
  if (verb == NULL)
    return lm_fail(err, LM_EINVAL, "data: '%s' is not info, verify, cat, which or import", words->items[0]);
  LM_TRY(lm_dataset_open(&d, words->items[1], err));
  lm_status s = verb->run(d, o, err);
  lm_dataset_close(d);
  return s;
}

static bool is_config(const char *path)
{
  const char *dot = strrchr(path, '.');
  return dot != NULL && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0);
}

static lm_status run(const lm_comm *comm, int argc, char **argv, lm_error *err)
{
  (void)comm;
  struct data_options o;
  lm_options *parsed;
  if (argc > 0 && strcmp(argv[0], "which") == 0) return data_of_config(true, argc - 1, argv + 1, err);
  if (argc > 1 && strcmp(argv[0], "info") == 0 && is_config(argv[1]))
    return data_of_config(false, argc - 1, argv + 1, err);
  LM_TRY(lm_command_options(&parsed, &lm_command_data, &o, argc, argv, 2, 2, err));
  lm_status s = run_verb(lm_options_words(parsed), &o, err);
  lm_options_free(parsed);
  return s;
}

const lm_command lm_command_data = {
    .name = "data",
    .usage =
        "data info D.h5 [--json]\ndata info CONFIG.yaml [--section.key=value]\ndata verify D.h5\ndata cat D.h5 --vocab "
        "V [--document N | --window N --length T]\n"
        "data which CONFIG --step N [--section.key=value]\ndata import FILE --vocab V --out D.h5 [--format F]",
    .summary = "what is in a token dataset; is it whole; print it as text; which of it a step trains on; convert one",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .run = run,
};
