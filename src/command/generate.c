/* src/command/generate.c - mpilm generate: a checkpoint and a prompt -> text. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/clock.h"
#include "base/log.h"
#include "command/command.h"
#include "model/sample.h"
#include "text/vocab.h"
#include "train/restore.h"
#include "train/threads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct generate_options {
  const char *checkpoint, *prompt, *vocab;
  int64_t tokens, top_k, seed, threads;
  double temperature, top_p;
  int backend, precision;
  bool ignore_end;
};

#define AT(field) offsetof(struct generate_options, field)
static const lm_option options[] = {
    {"checkpoint", LM_OPT_STRING, AT(checkpoint), NULL, NULL, NULL, "a checkpoint file, or a run folder: its newest"},
    {"prompt", LM_OPT_STRING, AT(prompt), "", NULL, NULL, "the text to go on from; empty begins a document"},
    {"vocab", LM_OPT_STRING, AT(vocab), "", NULL, NULL, "the vocabulary; empty is the data.vocab of the run"},
    {"tokens", LM_OPT_INT, AT(tokens), "200", "[0, 1e9]", "tokens", "how many to generate at most"},
    {"temperature", LM_OPT_FLOAT, AT(temperature), "1", "[0, 100]", NULL, "0 always takes the likeliest token"},
    {"top-k", LM_OPT_INT, AT(top_k), "0", "[0, 1e9]", "tokens", "choose among the so many likeliest; 0 is all"},
    {"top-p", LM_OPT_FLOAT, AT(top_p), "1", "(0, 1]", NULL, "choose among the likeliest that hold this probability"},
    {"seed", LM_OPT_INT, AT(seed), "1", "[0, 9007199254740992]", NULL, "the same seed gives the same text"},
    {"ignore-end", LM_OPT_BOOL, AT(ignore_end), "false", NULL, NULL, "go on after an end of text"},
    {"threads", LM_OPT_INT, AT(threads), "0", "[0, 4096]", "threads", "0 is OMP_NUM_THREADS, else all cores"},
    {"backend", LM_OPT_CHOICE, AT(backend), "auto", "cpu|cuda|auto|ref", NULL, "what computes"},
    {"precision", LM_OPT_CHOICE, AT(precision), "auto", "f32|bf16|fp16|auto", NULL, "type of weights and activations"},
};

/* The text so far, as the model sees it, and what choosing the next token needs. */
struct story {
  lm_vocab *vocab;
  lm_encoder *encoder;
  lm_ids prompt;
  int32_t *window; /* [n_ctx]: the last n tokens */
  size_t n, n_ctx;
  float *logits;   /* [V] */
  uint32_t *order; /* [V] */
};

static lm_status open_vocab(struct story *s, const struct generate_options *o, const lm_restored *r, lm_error *err)
{
  const char *path = *o->vocab ? o->vocab : r->cfg.data.vocab;
  if (*path == '\0') return lm_fail(err, LM_EINVAL, "the run names no vocabulary (data.vocab); give --vocab");
  LM_TRY(lm_vocab_load(&s->vocab, path, LM_PATTERN_GPT2, err));
  if (lm_vocab_fingerprint(s->vocab) != r->vocab_fingerprint)
    return lm_fail(err, LM_EINVAL, "%s (fingerprint %016llx) is not the vocabulary that the model learned (%016llx)",
                   path, (unsigned long long)lm_vocab_fingerprint(s->vocab), (unsigned long long)r->vocab_fingerprint);
  if (lm_vocab_end_of_text(s->vocab) == LM_NO_ID)
    return lm_fail(err, LM_EINVAL, "%s: has no end of text, which stands before every document", path);
  return lm_encoder_new(&s->encoder, s->vocab, err);
}

static void push(struct story *s, uint32_t id)
{
  if (s->n == s->n_ctx) memmove(s->window, s->window + 1, --s->n * sizeof *s->window);
  s->window[s->n++] = (int32_t)id;
}

static lm_status begin(struct story *s, const struct generate_options *o, const lm_restored *r, lm_error *err)
{
  size_t V = (size_t)r->cfg.model.shape.vocab_size;
  LM_TRY(open_vocab(s, o, r, err));
  s->n_ctx = (size_t)r->cfg.model.shape.n_ctx;
  LM_TRY(lm_alloc(&s->window, s->n_ctx, sizeof *s->window, "the context", err));
  LM_TRY(lm_alloc(&s->logits, V, sizeof *s->logits, "the logits", err));
  LM_TRY(lm_alloc(&s->order, V, sizeof *s->order, "the logits", err));
  LM_TRY(lm_encode(s->encoder, o->prompt, strlen(o->prompt), false, &s->prompt, err));
  if (r->cfg.data.document_mask) lm_model_mask_documents(r->model, (int32_t)lm_vocab_end_of_text(s->vocab));
  push(s, lm_vocab_end_of_text(s->vocab)); /* what stands before every document the model has seen */
  for (size_t i = 0; i < s->prompt.size; i++) push(s, s->prompt.data[i]);
  return LM_OK;
}

static void finish(struct story *s)
{
  free(s->window);
  free(s->logits);
  free(s->order);
  lm_ids_free(&s->prompt);
  lm_encoder_free(s->encoder);
  lm_vocab_free(s->vocab);
}

static uint32_t next_token(struct story *s, const lm_restored *r, const lm_sampling *how, uint64_t position)
{
  lm_model_next(r->model, s->window, (int)s->n, s->logits);
  return lm_sample(how, s->logits, s->order, (uint32_t)r->cfg.model.shape.vocab_size, position);
}

/* Bytes go out as they come: a character of several tokens is whole on the terminal once its last byte is there. */
static void print_token(const lm_vocab *v, uint32_t id)
{
  size_t n;
  const char *bytes = lm_vocab_bytes(v, id, &n);
  if (bytes == NULL) return; /* an id that pads the vocabulary */
  fwrite(bytes, 1, n, stdout);
  fflush(stdout);
}

static void tell(struct story *s, const struct generate_options *o, const lm_restored *r)
{
  lm_sampling how = {.temperature = o->temperature, .top_k = o->top_k, .top_p = o->top_p, .seed = (uint64_t)o->seed};
  double started = lm_clock();
  int64_t made = 0;
  fputs(o->prompt, stdout);
  while (made < o->tokens) {
    uint32_t id = next_token(s, r, &how, (uint64_t)made);
    made++;
    if (id == lm_vocab_end_of_text(s->vocab) && !o->ignore_end) break;
    print_token(s->vocab, id);
    push(s, id);
  }
  putchar('\n');
  lm_info("%lld tokens, %.1f tokens/s; step %llu", (long long)made, (double)made / (lm_clock() - started),
          (unsigned long long)r->step);
}

static lm_status run(const lm_comm *comm, int argc, char **argv, lm_error *err)
{
  struct generate_options o;
  struct story story = {0};
  lm_options *parsed;
  lm_restored r;
  LM_TRY(lm_command_options(&parsed, &lm_command_generate, &o, argc, argv, 0, 0, err));
  lm_threads_set(comm, o.threads);
  lm_status s = lm_restore(&r, comm, o.checkpoint, o.backend, o.precision, 1, err);
  if (s == LM_OK) {
    s = begin(&story, &o, &r, err);
    if (s == LM_OK) tell(&story, &o, &r);
    finish(&story);
    lm_restored_free(&r);
  }
  lm_options_free(parsed);
  return s;
}

const lm_command lm_command_generate = {
    .name = "generate",
    .usage = "generate --checkpoint FILE|RUN [--prompt TEXT] [OPTIONS]",
    .summary = "text from a checkpoint and a prompt",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .run = run,
};
