/* src/command/generate.c - mpilm generate: a checkpoint and prompts -> text. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "command/command.h"
#include "model/generation.h"
#include "model/sample.h"
#include "text/split.h"
#include "text/vocab.h"
#include "train/restore.h"
#include "train/threads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct generate_options {
  const char *checkpoint, *prompt, *prompts, *vocab, *begin;
  int64_t tokens, top_k, seed, threads, batch;
  double temperature, top_p;
  int pattern, backend, precision;
  bool ignore_end;
};

#define AT(field) offsetof(struct generate_options, field)
static const lm_option options[] = {
    {"checkpoint", LM_OPT_STRING, AT(checkpoint), NULL, NULL, NULL, "a checkpoint file, or a run folder: its newest"},
    {"prompt", LM_OPT_STRING, AT(prompt), "", NULL, NULL, "the text to go on from; empty begins a document"},
    {"prompts", LM_OPT_STRING, AT(prompts), "", NULL, NULL,
     "a file with a prompt a line, instead; - is standard input"},
    {"batch", LM_OPT_INT, AT(batch), "16", "[1, 4096]", "prompts", "how many to go on with at a time"},
    {"vocab", LM_OPT_STRING, AT(vocab), "", NULL, NULL, "the vocabulary; empty is the data.vocab of the run"},
    {"pattern", LM_OPT_CHOICE, AT(pattern), "auto", LM_PATTERN_WORDS_OR_AUTO, NULL,
     "split pattern of vocabulary files that do not name theirs, as it was for mpilm tokenize"},
    {"bos", LM_OPT_STRING, AT(begin), "", NULL, NULL,
     "the special token that began every document, as for mpilm tokenize; a prompt that begins with it has it once"},
    {"tokens", LM_OPT_INT, AT(tokens), "200", "[0, 1e9]", "tokens", "how many to generate at most, for each prompt"},
    {"temperature", LM_OPT_FLOAT, AT(temperature), "1", "[0, 100]", NULL, "0 always takes the likeliest token"},
    {"top-k", LM_OPT_INT, AT(top_k), "0", "[0, 1e9]", "tokens", "choose among the so many likeliest; 0 is all"},
    {"top-p", LM_OPT_FLOAT, AT(top_p), "1", "(0, 1]", NULL, "choose among the likeliest that hold this probability"},
    {"seed", LM_OPT_INT, AT(seed), "1", "[0, 9007199254740992]", NULL, "the same seed and prompt give the same text"},
    {"ignore-end", LM_OPT_BOOL, AT(ignore_end), "false", NULL, NULL, "go on after an end of text"},
    {"threads", LM_OPT_INT, AT(threads), "0", "[0, 4096]", "threads", "0 is OMP_NUM_THREADS, else all cores"},
    {"backend", LM_OPT_CHOICE, AT(backend), "auto", LM_BACKEND_WORDS, NULL, "what computes"},
    {"precision", LM_OPT_CHOICE, AT(precision), "auto", LM_PRECISION_WORDS, NULL, "type of weights and activations"},
};

/* A prompt and what follows it. */
typedef struct story {
  const char *prompt;
  lm_ids ids;    /* end of text, which stands before every document the model has seen, its begin, and the prompt */
  lm_buffer out; /* what follows, where it has to wait for its turn */
  int64_t made;  /* tokens */
  bool done;
} story;

typedef struct teller {
  const struct generate_options *o;
  lm_sampling how;
  lm_vocab *vocab;
  lm_encoder *encoder;
  lm_buffer file; /* of prompts, its lines ended by 0 */
  story *stories;
  size_t n, room;
  int batch;                      /* stories at a time */
  uint32_t V, end_of_text, begin; /* begin: LM_NO_ID where documents have none */
  lm_generation *generation;
  float *logits;   /* [batch,V] */
  uint32_t *order; /* [V] */
  int *slots;      /* [batch] */
  int32_t *next;   /* [batch] */
  double read_seconds, told_seconds;
} teller;

static lm_status open_vocab(teller *t, const lm_restored *r, lm_error *err)
{
  const char *path = *t->o->vocab ? t->o->vocab : r->cfg.data.vocab;
  if (*path == '\0') return lm_fail(err, LM_EINVAL, "the run names no vocabulary (data.vocab); give --vocab");
  LM_TRY(lm_vocab_load(&t->vocab, path, (lm_pattern)t->o->pattern, err));
  if (lm_vocab_fingerprint(t->vocab) != r->vocab_fingerprint)
    return lm_fail(err, LM_EINVAL, "%s (fingerprint %016llx) is not the vocabulary that the model learned (%016llx)",
                   path, (unsigned long long)lm_vocab_fingerprint(t->vocab), (unsigned long long)r->vocab_fingerprint);
  t->end_of_text = lm_vocab_end_of_text(t->vocab);
  if (t->end_of_text == LM_NO_ID)
    return lm_fail(err, LM_EINVAL, "%s: has no end of text, which stands before every document", path);
  t->begin = LM_NO_ID;
  if (*t->o->begin != '\0') LM_TRY(lm_vocab_begin_of_text(t->vocab, t->o->begin, &t->begin, err));
  return lm_encoder_new(&t->encoder, t->vocab, err);
}

static lm_status add_story(teller *t, const char *prompt, lm_error *err)
{
  LM_TRY(lm_grow(&t->stories, &t->room, t->n + 1, sizeof *t->stories, err));
  t->stories[t->n++] = (story){.prompt = prompt};
  return LM_OK;
}

static lm_status read_prompts(teller *t, lm_error *err)
{
  if (*t->o->prompts == '\0') return add_story(t, t->o->prompt, err);
  if (*t->o->prompt != '\0') return lm_fail(err, LM_EINVAL, "--prompt and --prompts are both given; want one of them");
  LM_TRY(lm_file_read(t->o->prompts, &t->file, err));
  char *line = t->file.data, *end = line + t->file.size;
  while (line < end) {
    char *stop = memchr(line, '\n', (size_t)(end - line));
    if (stop == NULL) stop = end; /* a buffer has a 0 behind it */
    *stop = '\0';
    LM_TRY(add_story(t, line, err));
    line = stop + 1;
  }
  return t->n > 0 ? LM_OK : lm_fail(err, LM_EINVAL, "%s: holds no prompts; want one a line", t->o->prompts);
}

static lm_status encode(teller *t, story *s, lm_error *err)
{
  const char *text = s->prompt;
  size_t begin = strlen(t->o->begin);
  LM_TRY(lm_grow(&s->ids.data, &s->ids.capacity, 2, sizeof *s->ids.data, err));
  s->ids.data[s->ids.size++] = t->end_of_text;
  if (t->begin != LM_NO_ID) s->ids.data[s->ids.size++] = t->begin;
  if (t->begin != LM_NO_ID && strncmp(text, t->o->begin, begin) == 0) text += begin;
  return lm_encode(t->encoder, text, strlen(text), false, &s->ids, err);
}

static lm_status begin(teller *t, const lm_restored *r, lm_error *err)
{
  size_t longest = 0;
  LM_TRY(open_vocab(t, r, err));
  LM_TRY(read_prompts(t, err));
  for (size_t i = 0; i < t->n; i++) {
    LM_TRY(encode(t, &t->stories[i], err));
    if (t->stories[i].ids.size > longest) longest = t->stories[i].ids.size;
  }
  t->V = (uint32_t)r->cfg.model.shape.vocab_size;
  t->batch = t->n < (size_t)t->o->batch ? (int)t->n : (int)t->o->batch;
  size_t batch = (size_t)t->batch;
  LM_TRY(lm_alloc(&t->logits, batch * t->V, sizeof *t->logits, "the logits", err));
  LM_TRY(lm_alloc(&t->order, t->V, sizeof *t->order, "the logits", err));
  LM_TRY(lm_alloc(&t->slots, batch, sizeof *t->slots, "the prompts", err));
  LM_TRY(lm_alloc(&t->next, batch, sizeof *t->next, "the prompts", err));
  if (r->cfg.data.document_mask) lm_model_mask_documents(r->model, (int32_t)t->end_of_text);
  return lm_generation_new(&t->generation, r->model, t->batch, (int64_t)longest + t->o->tokens, err);
}

static void finish(teller *t)
{
  for (size_t i = 0; i < t->n; i++) {
    lm_ids_free(&t->stories[i].ids);
    lm_buffer_free(&t->stories[i].out);
  }
  free(t->stories);
  lm_buffer_free(&t->file);
  free(t->logits);
  free(t->order);
  free(t->slots);
  free(t->next);
  lm_generation_free(t->generation);
  lm_encoder_free(t->encoder);
  lm_vocab_free(t->vocab);
}

/* The bytes of one story go out as they come: a character of several tokens is whole on the terminal once its last
 * byte is there. Those of several wait. */
static lm_status say(teller *t, story *s, uint32_t id, lm_error *err)
{
  size_t n;
  const char *bytes = lm_vocab_bytes(t->vocab, id, &n);
  if (bytes == NULL) return LM_OK; /* an id that pads the vocabulary */
  if (t->n > 1) return lm_buffer_append(&s->out, bytes, n, err);
  fwrite(bytes, 1, n, stdout);
  fflush(stdout);
  return LM_OK;
}

/* From the logits of a story's next token to the token, or to the story's end. */
static lm_status go_on(teller *t, story *s, float *logits, int32_t *next, lm_error *err)
{
  s->done = s->made == t->o->tokens;
  if (s->done) return LM_OK;
  /* A model may have more outputs than its vocabulary has tokens: those were never a target. */
  uint32_t known = lm_vocab_size(t->vocab) < t->V ? lm_vocab_size(t->vocab) : t->V;
  uint32_t id = lm_sample(&t->how, logits, t->order, known, (uint64_t)s->made);
  s->made++;
  *next = (int32_t)id;
  if (id == t->end_of_text && !t->o->ignore_end) {
    s->done = true;
    return LM_OK;
  }
  s->done = s->made == t->o->tokens;
  return say(t, s, id, err);
}

/* Stories [0, n) of a batch, each in the slot of its number, to their ends. */
static lm_status tell(teller *t, story *stories, int n, lm_error *err)
{
  double started = lm_clock();
  float *logits = t->logits;
  int going = 0;
  for (int i = 0; i < n; i++) {
    story *s = &stories[i];
    lm_generation_begin(t->generation, i, (const int32_t *)s->ids.data, s->ids.size, logits);
    LM_TRY(go_on(t, s, logits, &t->next[going], err));
    t->slots[going] = i;
    going += !s->done;
  }
  double read = lm_clock();
  t->read_seconds += read - started;
  while (going > 0) {
    int left = 0;
    lm_generation_next(t->generation, t->slots, t->next, going, logits);
    for (int i = 0; i < going; i++) {
      story *s = &stories[t->slots[i]];
      LM_TRY(go_on(t, s, logits + (size_t)i * t->V, &t->next[left], err));
      t->slots[left] = t->slots[i];
      left += !s->done;
    }
    going = left;
  }
  t->told_seconds += lm_clock() - read;
  return LM_OK;
}

static lm_status tell_all(teller *t, lm_error *err)
{
  if (t->n == 1) fputs(t->stories[0].prompt, stdout);
  for (size_t i = 0; i < t->n; i += (size_t)t->batch) {
    size_t n = t->n - i < (size_t)t->batch ? t->n - i : (size_t)t->batch;
    LM_TRY(tell(t, &t->stories[i], (int)n, err));
    for (size_t j = i; t->n > 1 && j < i + n; j++) {
      printf("== %zu\n%s", j + 1, t->stories[j].prompt);
      fwrite(t->stories[j].out.data, 1, t->stories[j].out.size, stdout);
      putchar('\n');
    }
  }
  if (t->n == 1) putchar('\n');
  return LM_OK;
}

/* What it took, and the least that it could take: a token cannot be had without reading all weights once, but all
 * prompts of a batch share that. */
static void report(const teller *t, const lm_restored *r)
{
  lm_generation_work work = lm_generation_done(t->generation);
  int64_t made = 0;
  size_t prompt = 0;
  for (size_t i = 0; i < t->n; i++) {
    made += t->stories[i].made;
    prompt += t->stories[i].ids.size;
  }
  lm_info("%zu prompts of %zu tokens read in %.2f s; %lld tokens made; step %llu", t->n, prompt, t->read_seconds,
          (long long)made, (unsigned long long)r->step);
  if (work.slides > 0)
    lm_info("%llu times a context was full: its last half was read again, as a beginning",
            (unsigned long long)work.slides);
  if (work.passes == 0 || strcmp(r->k->name, "cpu") != 0) return;
  double rate = (double)work.tokens / t->told_seconds, bandwidth = lm_cpu_read_rate();
  double limit = (double)work.tokens / (work.bytes / bandwidth);
  lm_info("%.1f tokens/s; memory, read at %.1f GB/s, allows %.1f (%.0f MB a pass, %.1f tokens a pass): %.0f %%", rate,
          1e-9 * bandwidth, limit, 1e-6 * work.bytes / (double)work.passes, (double)work.tokens / (double)work.passes,
          100 * rate / limit);
}

static lm_status run(const lm_comm *comm, int argc, char **argv, lm_error *err)
{
  struct generate_options o;
  teller t = {.o = &o};
  lm_options *parsed;
  lm_restored r;
  LM_TRY(lm_command_options(&parsed, &lm_command_generate, &o, argc, argv, 0, 0, err));
  t.how = (lm_sampling){.temperature = o.temperature, .top_k = o.top_k, .top_p = o.top_p, .seed = (uint64_t)o.seed};
  lm_threads_set(comm, o.threads);
  lm_status s = lm_restore(&r, comm, o.checkpoint, o.backend, o.precision, 1, err);
  if (s == LM_OK) {
    s = begin(&t, &r, err);
    if (s == LM_OK) s = tell_all(&t, err);
    if (s == LM_OK) report(&t, &r);
    finish(&t);
    lm_restored_free(&r);
  }
  lm_options_free(parsed);
  return s;
}

const lm_command lm_command_generate = {
    .name = "generate",
    .usage = "generate --checkpoint FILE|RUN [--prompt TEXT | --prompts FILE] [OPTIONS]",
    .summary = "text from a checkpoint and prompts",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .run = run,
};
