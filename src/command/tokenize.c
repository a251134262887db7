/* src/command/tokenize.c - mpilm tokenize: a corpus becomes a token dataset, on as many ranks as there are. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "text/tokenize.h"
#include "base/log.h"
#include "command/command.h"
#include "command/input_options.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct tokenize_options {
  const char *vocab, *out, *val_out, *begin;
  double val_fraction;
  int64_t part;
  int pattern;
  lm_input_options input;
  bool json;
};

#define AT(field) offsetof(struct tokenize_options, field)
static const lm_option options[] = {
    {"vocab", LM_OPT_STRING, AT(vocab), NULL, NULL, NULL, "bytes, or a vocabulary file"},
    {"pattern", LM_OPT_CHOICE, AT(pattern), "auto", LM_PATTERN_WORDS_OR_AUTO, NULL,
     "split pattern of vocabulary files that do not name theirs"},
    {"out", LM_OPT_STRING, AT(out), NULL, NULL, NULL, "the token dataset to write"},
    {"val-out", LM_OPT_STRING, AT(val_out), "", NULL, NULL,
     "the token dataset of the documents held out for validation"},
    {"val-fraction", LM_OPT_FLOAT, AT(val_fraction), "0.01", "(0, 1)", NULL,
     "about this share of the documents is held out, chosen by their hash: the same ones in every run"},
    {"bos", LM_OPT_STRING, AT(begin), "", NULL, NULL,
     "the special token that begins every document, such as <|begin_of_text|>; empty: none"},
    {"part", LM_OPT_INT, AT(part), "4", "[1, 1048576]", "MiB",
     "the input is read, and after a kill done again, in parts of this much text"},
    LM_INPUT_ROWS(AT(input)),
    {"json", LM_OPT_BOOL, AT(json), "false", NULL, NULL, "print the result as one JSON object"},
};

static bool same_file(const char *a, const char *b)
{
  struct stat x, y;
  return strcmp(a, b) == 0 || (stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino);
}

static lm_status check_out(const char *option, const char *path, lm_error *err)
{
  struct stat st;
  if (path[0] == '\0') return lm_fail(err, LM_EINVAL, "--%s is empty, a file name was wanted", option);
  if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
    return lm_fail(err, LM_EINVAL, "--%s %s: is a folder, a file name was wanted", option, path);
  return LM_OK;
}

static lm_status check(const struct tokenize_options *o, const lm_options *parsed, int size, lm_error *err)
{
  const lm_list *inputs = lm_options_words(parsed);
  LM_TRY(check_out("out", o->out, err));
  if (o->val_out[0] != '\0') {
    LM_TRY(check_out("val-out", o->val_out, err));
    if (same_file(o->out, o->val_out))
      return lm_fail(err, LM_EINVAL, "--out and --val-out are both %s; two files were wanted", o->out);
  } else if (lm_options_origin(parsed, "val-fraction", NULL) != LM_FROM_DEFAULT) {
    return lm_fail(err, LM_EINVAL, "--val-fraction without --val-out: where should the held-out documents go?");
  }
  for (size_t i = 0; i < inputs->count && size > 1; i++)
    if (strcmp(inputs->items[i], "-") == 0)
      return lm_fail(err, LM_EINVAL, "-: stdin reaches only one of %d ranks; name files, or run on one rank", size);
  return LM_OK;
}

/* ---- the report ---- */

static const char *const split_names[LM_SPLITS] = {"train", "val"};

static json_t *split_as_json(const char *path, const lm_token_info *info, uint64_t bytes)
{
  return json_pack("{s:s, s:I, s:I, s:I, s:i, s:f}", "path", path, "documents", (json_int_t)info->documents, "tokens",
                   (json_int_t)info->tokens, "text_bytes", (json_int_t)bytes, "bits", 8 * info->width,
                   "bytes_per_token", (double)bytes / (double)info->tokens);
}

static lm_status print_json(const struct tokenize_options *o, const lm_tokenize_result *r, int ranks, lm_error *err)
{
  const char *path[LM_SPLITS] = {o->out, o->val_out};
  const lm_documents_counts *c = &r->counts;
  json_t *all = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:f}", "documents", (json_int_t)c->documents, "empty",
                          (json_int_t)c->empty, "skipped", (json_int_t)c->bad, "lone_surrogates",
                          (json_int_t)c->lone_surrogates, "invalid_utf8", (json_int_t)c->invalid_utf8, "text_bytes",
                          (json_int_t)c->bytes, "ranks", ranks, "seconds", r->seconds);
  int failed = all == NULL;
  for (int i = 0; i < LM_SPLITS && !failed; i++)
    if (r->info[i].tokens > 0)
      failed = json_object_set_new(all, split_names[i], split_as_json(path[i], &r->info[i], r->text_bytes[i]));
  if (!failed) failed = json_dumpf(all, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
  putchar('\n');
  json_decref(all);
  return failed ? lm_fail(err, LM_ENOMEM, "no memory for the report, or stdout is closed") : LM_OK;
}

static void print_lines(const struct tokenize_options *o, const lm_tokenize_result *r)
{
  const char *path[LM_SPLITS] = {o->out, o->val_out};
  for (int i = 0; i < LM_SPLITS; i++) {
    const lm_token_info *info = &r->info[i];
    if (info->tokens == 0) continue;
    printf("%s: %" PRIu64 " documents, %" PRIu64 " tokens of %d bits, %.3f bytes a token\n", path[i], info->documents,
           info->tokens, 8 * info->width, (double)r->text_bytes[i] / (double)info->tokens);
  }
}

static void tell_summary(const lm_tokenize_result *r, int ranks)
{
  const lm_documents_counts *c = &r->counts;
  double mib = (double)c->bytes / (1 << 20);
  lm_input_warn(c, r->first_bad);
  lm_info("tokenize: %" PRIu64 " documents, %.1f MiB of text in %.1f s, %.1f MiB/s on %d rank%s; %" PRIu64
          " empty dropped, %" PRIu64 " skipped",
          c->documents, mib, r->seconds, mib / r->seconds, ranks, ranks == 1 ? "" : "s", c->empty, c->bad);
}

static lm_status tokenize(const lm_comm *comm, const struct tokenize_options *o, const lm_options *parsed,
                          lm_buffer *separator, lm_vocab **vocab, lm_error *err)
{
  const lm_list *inputs = lm_options_words(parsed);
  lm_documents_config documents;
  lm_status s = check(o, parsed, comm->size, err);
  if (s == LM_OK) s = lm_input_config(&o->input, separator, &documents, err);
  if (s == LM_OK) s = lm_vocab_load(vocab, o->vocab, (lm_pattern)o->pattern, err);
  LM_TRY(lm_agree(comm, s, err));
  lm_tokenize_config cfg = {
      .paths = inputs->items,
      .n_paths = inputs->count,
      .out = o->out,
      .val_out = o->val_out,
      .begin = o->begin,
      .val_fraction = o->val_fraction,
      .part_bytes = (uint64_t)o->part << 20,
      .documents = documents,
  };
  lm_tokenize_result result;
  LM_TRY(lm_tokenize(comm, *vocab, &cfg, &result, err));
  tell_summary(&result, comm->size);
  if (comm->rank == 0 && o->json) s = print_json(o, &result, comm->size, err);
  if (comm->rank == 0 && !o->json) print_lines(o, &result);
  return lm_agree(comm, s, err);
}

static lm_status run(const lm_comm *comm, int argc, char **argv, lm_error *err)
{
  struct tokenize_options o;
  lm_options *parsed;
  lm_buffer separator = {0};
  lm_vocab *vocab = NULL;
  /* Every rank has the same words: all succeed or all fail. */
  LM_TRY(lm_command_options(&parsed, &lm_command_tokenize, &o, argc, argv, 1, -1, err));
  lm_status s = tokenize(comm, &o, parsed, &separator, &vocab, err);
  lm_vocab_free(vocab);
  lm_buffer_free(&separator);
  lm_options_free(parsed);
  return s;
}

const lm_command lm_command_tokenize = {
    .name = "tokenize",
    .usage = "tokenize --vocab V --out D.h5 [--val-out E.h5 --val-fraction 0.01] [OPTIONS] FILE...",
    .summary = "texts -> a token dataset, on any number of ranks",
    .parallel = true,
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .run = run,
};
