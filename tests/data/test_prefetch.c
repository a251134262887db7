/* tests/data/test_prefetch.c - what is read ahead is what the loader reads, also after a change of course. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/file.h"
#include "batch/prefetch.h"
#include "tests/data/single_source.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { T = 8, TOKENS = 1000, MOST = 3 };
#define PATH "test_prefetch.h5"

static lm_error err;
static lm_loader *reference; /* a loader is for one thread */

/* Ids count up; one is out of range where `bad` says. */
static bool make_dataset(int bad)
{
  static const uint64_t end = TOKENS;
  lm_comm self;
  char part[4096];
  uint16_t ids[TOKENS];
  lm_token_info info = {.tokens = TOKENS, .documents = 1, .vocab_size = 5000, .end_of_text = 1};
  lm_comm_self(&self);
  for (int i = 0; i < TOKENS; i++) ids[i] = (uint16_t)(i == bad ? 6000 : i);
  if (lm_token_file_create(&self, PATH, &info, part, &err) != LM_OK) return false;
  int fd = open(part, O_WRONLY);
  bool fine = fd >= 0 && lm_pwrite_all(fd, part, ids, sizeof ids, info.offset, &err) == LM_OK &&
              lm_pwrite_all(fd, part, &end, sizeof end, info.document_offset, &err) == LM_OK;
  if (fd >= 0) close(fd);
  return fine && lm_token_file_commit(&self, part, PATH, &info, &err) == LM_OK;
}

static bool takes_right(lm_prefetch *p, const lm_samples *what)
{
  const int32_t *tokens, *targets;
  int32_t want_tokens[MOST * T], want_targets[MOST * T];
  size_t bytes = what->count * T * sizeof(int32_t);
  return lm_prefetch_take(p, what, &tokens, &targets, &err) == LM_OK &&
         lm_loader_fetch(reference, what->start, what->first, what->count, want_tokens, want_targets, &err) == LM_OK &&
         memcmp(tokens, want_tokens, bytes) == 0 && memcmp(targets, want_targets, bytes) == 0;
}

static void in_order(lm_loader *l, int depth)
{
  lm_prefetch *p;
  bool fine = lm_prefetch_new(&p, l, depth, MOST, T, &err) == LM_OK;
  uint64_t asked = 0;
  for (uint64_t i = 0; fine && i < 200; i++) {
    if (asked < i) asked = i;
    while (lm_prefetch_ask(p, &(lm_samples){asked * 4, asked % 2, 1 + asked % MOST})) asked++;
    fine = asked - i <= (uint64_t)depth && takes_right(p, &(lm_samples){i * 4, i % 2, 1 + i % MOST});
  }
  tap_ok(fine, "depth %d: 200 micro-batches in order", depth);
  lm_prefetch_free(p);
}

static void change_of_course(lm_loader *l)
{
  lm_prefetch *p;
  bool fine = lm_prefetch_new(&p, l, 4, MOST, T, &err) == LM_OK;
  for (uint64_t i = 0; i < 4; i++) fine = fine && lm_prefetch_ask(p, &(lm_samples){i, 0, 1});
  tap_ok(fine && !lm_prefetch_ask(p, &(lm_samples){4, 0, 1}), "a full ring takes no more");
  tap_ok(takes_right(p, &(lm_samples){2, 0, 1}), "one further on: those before it are dropped");
  tap_ok(takes_right(p, &(lm_samples){90, 1, 3}), "one that nobody asked for is read at once");
  tap_ok(lm_prefetch_ask(p, &(lm_samples){91, 0, 1}) && takes_right(p, &(lm_samples){91, 0, 1}),
         "and then all goes on");
  lm_prefetch_ask(p, &(lm_samples){92, 0, 1});
  lm_prefetch_free(p);
  tap_ok(true, "freed with a micro-batch that nobody took");
}

static void bad_id(void)
{
  struct single_source d;
  lm_loader *l = NULL;
  lm_prefetch *p = NULL;
  const int32_t *tokens, *targets;
  bool fine = make_dataset(100) && single_source_open(&d, PATH, T, &err) == LM_OK &&
              lm_loader_new(&l, &d.sources, &d.mixture, 1, T, 4, 0, 1, &err) == LM_OK &&
              lm_prefetch_new(&p, l, 2, MOST, T, &err) == LM_OK;
  lm_status s = LM_OK;
  for (uint64_t i = 0; fine && s == LM_OK && i < TOKENS / T; i++) {
    lm_prefetch_ask(p, &(lm_samples){i, 0, 1});
    s = lm_prefetch_take(p, &(lm_samples){i, 0, 1}, &tokens, &targets, &err);
  }
  tap_ok(fine && s == LM_EDAMAGED && strstr(err.text, "6000") != NULL, "an error of the thread reaches who takes");
  lm_prefetch_free(p);
  lm_loader_free(l);
  single_source_close(&d);
}

int main(int argc, char **argv)
{
  lm_comm comm;
  struct single_source d;
  lm_loader *l;
  tap_begin(&comm, argc, argv);
  tap_ok(make_dataset(-1) && single_source_open(&d, PATH, T, &err) == LM_OK &&
             lm_loader_new(&l, &d.sources, &d.mixture, 1, T, 4, 0, 1, &err) == LM_OK &&
             lm_loader_new(&reference, &d.sources, &d.mixture, 1, T, 4, 0, 1, &err) == LM_OK,
         "a dataset of %d tokens", TOKENS);
  static const int depths[] = {0, 1, 2, 7};
  for (int i = 0; i < 4; i++) in_order(l, depths[i]);
  change_of_course(l);
  lm_loader_free(l);
  lm_loader_free(reference);
  single_source_close(&d);
  bad_id();
  unlink(PATH);
  return tap_end();
}
