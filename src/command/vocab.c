/* src/command/vocab.c - mpilm vocab: learning a vocabulary, what it is, and writing it as a tokenizer.json. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "command/command.h"

#include "base/log.h"
#include "command/input_options.h"
#include "text/split.h"
#include "text/unicode.h"
#include "text/vocab.h"
#include "text/vocab_train.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct vocab_options {
  const char *out;
  int64_t size;
  lm_input_options input;
  int pattern;
  bool json;
};

static const lm_option options[] = {
    {"out", LM_OPT_STRING, offsetof(struct vocab_options, out), "", NULL, NULL, "the tokenizer.json to write"},
    {"pattern", LM_OPT_CHOICE, offsetof(struct vocab_options, pattern), "auto", LM_PATTERN_WORDS_OR_AUTO, NULL,
     "the split pattern to learn with (auto: gpt2), or of a vocabulary file that does not say its own"},
    {"json", LM_OPT_BOOL, offsetof(struct vocab_options, json), "false", NULL, NULL, "print one JSON object"},
    {"size", LM_OPT_INT, offsetof(struct vocab_options, size), "0", "[0, inf)", "ids",
     "train: ids wanted, the 256 bytes and <|endoftext|> included"},
    LM_INPUT_ROWS(offsetof(struct vocab_options, input)),
};

/* ---- info ---- */

static json_t *list_specials(const lm_vocab *v)
{
  json_t *list = json_array();
  for (uint32_t id = 0; id < lm_vocab_size(v); id++) {
    size_t n;
    const char *text = lm_vocab_bytes(v, id, &n);
    if (lm_vocab_is_special(v, id))
      json_array_append_new(list, json_pack("{s:i, s:s%}", "id", (int)id, "text", text, n));
  }
  return list;
}

static json_t *describe(const lm_vocab *v)
{
  char fingerprint[17];
  uint32_t used = 0, end = lm_vocab_end_of_text(v);
  for (uint32_t id = 0; id < lm_vocab_size(v); id++) {
    size_t n;
    used += lm_vocab_bytes(v, id, &n) != NULL;
  }
  snprintf(fingerprint, sizeof fingerprint, "%016" PRIx64, lm_vocab_fingerprint(v));
  return json_pack("{s:i, s:i, s:s, s:o, s:s, s:s, s:o}", "size", (int)lm_vocab_size(v), "tokens", (int)used, "pattern",
                   lm_pattern_name(lm_vocab_pattern(v)), "end_of_text",
                   end == LM_NO_ID ? json_null() : json_integer(end), "fingerprint", fingerprint, "unicode",
                   lm_unicode_version, "specials", list_specials(v));
}

static void print_table(const json_t *info)
{
  const json_t *specials = json_object_get(info, "specials"), *end = json_object_get(info, "end_of_text");
  printf("size         %lld\n", (long long)json_integer_value(json_object_get(info, "size")));
  printf("tokens       %lld\n", (long long)json_integer_value(json_object_get(info, "tokens")));
  printf("pattern      %s, Unicode %s\n", json_string_value(json_object_get(info, "pattern")), lm_unicode_version);
  if (json_is_integer(end))
    printf("end of text  %lld\n", (long long)json_integer_value(end));
  else
    printf("end of text  none\n");
  printf("fingerprint  %s\n", json_string_value(json_object_get(info, "fingerprint")));
  printf("specials     %zu\n", json_array_size(specials));
  size_t i;
  json_t *special;
  json_array_foreach(specials, i, special)
      printf("  %8lld %s\n", (long long)json_integer_value(json_object_get(special, "id")),
             json_string_value(json_object_get(special, "text")));
}

static lm_status print_info(const lm_vocab *v, bool as_json, lm_error *err)
{
  json_t *info = describe(v);
  if (info == NULL) return lm_fail(err, LM_ENOMEM, "no memory for the report");
  if (as_json)
    json_dumpf(info, stdout, JSON_INDENT(1)), putchar('\n');
  else
    print_table(info);
  json_decref(info);
  return LM_OK;
}

/* ---- train ---- */

static lm_status print_trained(const char *path, const lm_vocab *v, const lm_vocab_report *r, bool as_json,
                               lm_error *err)
{
  const lm_documents_counts *c = &r->read;
  const char *pattern = lm_pattern_name(lm_vocab_pattern(v));
  if (!as_json) {
    printf("%s: %u ids, pattern %s, fingerprint %016" PRIx64 "\n", path, lm_vocab_size(v), pattern,
           lm_vocab_fingerprint(v));
    return LM_OK;
  }
  json_t *all =
      json_pack("{s:s, s:i, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "path", path, "size", (int)lm_vocab_size(v),
                "pattern", pattern, "documents", (json_int_t)c->documents, "empty", (json_int_t)c->empty, "skipped",
                (json_int_t)c->bad, "text_bytes", (json_int_t)c->bytes, "pieces", (json_int_t)r->pieces, "merges",
                (json_int_t)r->merges, "read_seconds", r->read_seconds, "merge_seconds", r->merge_seconds);
  if (all == NULL) return lm_fail(err, LM_ENOMEM, "no memory for the report");
  json_dumpf(all, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6)), putchar('\n');
  json_decref(all);
  return LM_OK;
}

static void tell_trained(const lm_vocab *v, const struct vocab_options *o, const lm_vocab_report *r)
{
  const lm_documents_counts *c = &r->read;
  lm_info("vocab train: %" PRIu64 " documents, %.1f MB of text, %" PRIu64 " distinct pieces in %.1f s; %" PRIu64
          " merges in %.1f s; %" PRIu64 " documents were empty, %" PRIu64 " records skipped",
          c->documents, (double)c->bytes / 1e6, r->pieces, r->read_seconds, r->merges, r->merge_seconds, c->empty,
          c->bad);
  lm_input_warn(c, r->first_bad);
  if (lm_vocab_size(v) < o->size)
    lm_warn("the text has no more pairs to merge: the vocabulary has %u ids, %lld were wanted", lm_vocab_size(v),
            (long long)o->size);
}

/* Found out before the work, not after it. */
static lm_status check_out(const char *path, lm_error *err)
{
  struct stat st;
  const char *slash = strrchr(path, '/');
  int n = slash == NULL ? 0 : slash == path ? 1 : (int)(slash - path);
  char folder[4096];
  snprintf(folder, sizeof folder, "%.*s", n > 0 ? n : 1, n > 0 ? path : ".");
  if (*path == '\0') return lm_fail(err, LM_EINVAL, "vocab train: --out FILE is wanted");
  if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
    return lm_fail(err, LM_EINVAL, "--out %s: is a folder, a file name was wanted", path);
  if (stat(folder, &st) != 0 || !S_ISDIR(st.st_mode))
    return lm_fail(err, LM_EINVAL, "--out %s: there is no folder %s", path, folder);
  return LM_OK;
}

static lm_status train(const lm_comm *comm, const lm_list *words, const struct vocab_options *o, lm_buffer *separator,
                       lm_error *err)
{
  lm_documents_config cfg;
  lm_vocab_report report;
  lm_vocab *v;
  lm_pattern pattern = o->pattern == LM_PATTERN_AUTO ? LM_PATTERN_GPT2 : (lm_pattern)o->pattern;
  lm_status s = comm->rank == 0 ? check_out(o->out, err) : LM_OK;
  if (s == LM_OK) s = lm_input_config(&o->input, separator, &cfg, err);
  LM_TRY(lm_agree(comm, s, err));
  LM_TRY(lm_vocab_train(&v, comm, words->items + 1, words->count - 1, &cfg, o->size, pattern, &report, err));
  tell_trained(v, o, &report);
  if (comm->rank == 0) s = lm_vocab_save(v, o->out, err);
  if (comm->rank == 0 && s == LM_OK) s = print_trained(o->out, v, &report, o->json, err);
  lm_vocab_free(v);
  return lm_agree(comm, s, err);
}

/* ---- the subcommand ---- */

/* What one rank does for all: info and export. */
static lm_status one_vocab(const char *action, const char *path, const struct vocab_options *o, lm_error *err)
{
  lm_vocab *v;
  bool export = strcmp(action, "export") == 0;
  if (export && *o->out == '\0') return lm_fail(err, LM_EINVAL, "vocab export: --out FILE is wanted");
  LM_TRY(lm_vocab_load(&v, path, (lm_pattern)o->pattern, err));
  lm_status s = export ? lm_vocab_save(v, o->out, err) : print_info(v, o->json, err);
  lm_vocab_free(v);
  return s;
}

static lm_status dispatch(const lm_comm *comm, const lm_list *words, const struct vocab_options *o, lm_error *err)
{
  static const char *const actions[] = {"train", "info", "export"};
  const char *action = words->items[0], *near = lm_nearest_word(action, actions, 3);
  if (strcmp(action, "train") == 0) {
    lm_buffer separator = {0};
    lm_status s = train(comm, words, o, &separator, err);
    lm_buffer_free(&separator);
    return s;
  }
  if (strcmp(action, "info") != 0 && strcmp(action, "export") != 0)
    return lm_fail(err, LM_EINVAL, "vocab: unknown action '%s'%s%s%s; want train, info or export", action,
                   near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
  if (words->count != 2)
    return lm_fail(err, LM_EINVAL, "vocab %s: %zu vocabularies given, one is wanted", action, words->count - 1);
  return lm_agree(comm, comm->rank == 0 ? one_vocab(action, words->items[1], o, err) : LM_OK, err);
}

static lm_status run(const lm_comm *comm, int argc, char **argv, lm_error *err)
{
  struct vocab_options o;
  lm_options *parsed;
  LM_TRY(lm_command_options(&parsed, &lm_command_vocab, &o, argc, argv, 1, -1, err));
  lm_status s = dispatch(comm, lm_options_words(parsed), &o, err);
  lm_options_free(parsed);
  return s;
}

const lm_command lm_command_vocab = {
    .name = "vocab",
    .usage = "vocab train --size N --out V.json [--pattern P] [OPTIONS] FILE...\n"
             "vocab info V [--pattern P] [--json]\nvocab export V --out FILE [--pattern P]",
    .summary = "learn a vocabulary, tell what it is, write it as a tokenizer.json",
    .parallel = true,
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .run = run,
};
