/* src/batch/prefetch.c - a thread that reads the next micro-batches while the model computes. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "batch/prefetch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct slot {
  lm_samples what;
  int32_t *tokens, *targets;
  lm_status status;
  lm_error err;
};

/* Slots are used in a circle: [taken, filled) can be taken, [filled, asked) wait to be read. The slot before `taken` is
 * the caller's, so there is one more than the depth. */
struct lm_prefetch {
  lm_loader *loader;
  size_t depth, slots;
  struct slot *slot;
  int32_t *block; /* what all slots point into */
  uint64_t taken, filled, asked;
  bool threaded, end;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
};

static void fill(lm_prefetch *p, struct slot *s)
{
  s->status = lm_loader_fetch(p->loader, s->what.start, s->what.first, s->what.count, s->tokens, s->targets, &s->err);
}

static void *work(void *arg)
{
  lm_prefetch *p = arg;
  pthread_mutex_lock(&p->lock);
  while (!p->end) {
    if (p->filled == p->asked) {
      pthread_cond_wait(&p->changed, &p->lock);
      continue;
    }
    struct slot *s = &p->slot[p->filled % p->slots];
    pthread_mutex_unlock(&p->lock);
    fill(p, s); /* nobody else looks at a slot between asked and filled */
    pthread_mutex_lock(&p->lock);
    p->filled++;
    pthread_cond_broadcast(&p->changed);
  }
  pthread_mutex_unlock(&p->lock);
  return NULL;
}

/* Signals are for the main thread: a read that they interrupt here would help nobody. */
static int start_thread(lm_prefetch *p)
{
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = pthread_create(&p->thread, NULL, work, p);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  p->threaded = failed == 0;
  return failed;
}

static lm_status make(lm_prefetch *p, size_t most, int T, lm_error *err)
{
  size_t each = most * (size_t)T;
  LM_TRY(lm_alloc(&p->slot, p->slots, sizeof *p->slot, "the micro-batches read ahead", err));
  LM_TRY(lm_alloc(&p->block, 2 * each * p->slots, sizeof *p->block, "the micro-batches read ahead", err));
  for (size_t i = 0; i < p->slots; i++) {
    p->slot[i].tokens = p->block + 2 * i * each;
    p->slot[i].targets = p->slot[i].tokens + each;
  }
  int failed = p->depth > 0 ? start_thread(p) : 0;
  return failed ? lm_fail(err, LM_ENOMEM, "the loader's thread cannot be made: %s", strerror(failed)) : LM_OK;
}

lm_status lm_prefetch_new(lm_prefetch **out, lm_loader *loader, int depth, size_t most, int T, lm_error *err)
{
  LM_ASSERT(depth >= 0 && most >= 1 && T >= 1);
  LM_TRY(lm_alloc(out, 1, sizeof **out, "the loader", err));
  lm_prefetch *p = *out;
  *p = (lm_prefetch){.loader = loader, .depth = (size_t)depth, .slots = (size_t)depth + 1};
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->changed, NULL);
  lm_status s = make(p, most, T, err);
  if (s != LM_OK) {
    lm_prefetch_free(p);
    *out = NULL;
  }
  return s;
}

void lm_prefetch_free(lm_prefetch *p)
{
  if (p == NULL) return;
  if (p->threaded) {
    pthread_mutex_lock(&p->lock);
    p->end = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
  }
  pthread_cond_destroy(&p->changed);
  pthread_mutex_destroy(&p->lock);
  free(p->block);
  free(p->slot);
  free(p);
}

bool lm_prefetch_ask(lm_prefetch *p, const lm_samples *what)
{
  pthread_mutex_lock(&p->lock);
  bool room = p->asked - p->taken < p->depth;
  if (room) {
    p->slot[p->asked % p->slots].what = *what;
    p->asked++;
    pthread_cond_broadcast(&p->changed);
  }
  pthread_mutex_unlock(&p->lock);
  return room;
}

static bool same(const lm_samples *a, const lm_samples *b)
{
  return a->start == b->start && a->first == b->first && a->count == b->count;
}

/* The oldest slot that was asked for, once it is read; NULL where nothing is left. Under the lock. */
static struct slot *wait_oldest(lm_prefetch *p)
{
  if (p->taken == p->asked) return NULL;
  while (p->filled == p->taken) pthread_cond_wait(&p->changed, &p->lock);
  return &p->slot[p->taken++ % p->slots];
}

lm_status lm_prefetch_take(lm_prefetch *p, const lm_samples *what, const int32_t **tokens, const int32_t **targets,
                           lm_error *err)
{
  pthread_mutex_lock(&p->lock);
  struct slot *s = wait_oldest(p);
  while (s != NULL && !same(&s->what, what)) s = wait_oldest(p);
  if (s == NULL) { /* not asked for: read here and now, in the slot that is next */
    LM_ASSERT(p->slot != NULL);
    s = &p->slot[p->taken % p->slots];
    LM_ASSERT(s != NULL);
    p->filled = p->asked = ++p->taken;
    s->what = *what;
    fill(p, s);
  }
  pthread_mutex_unlock(&p->lock);
  *tokens = s->tokens;
  *targets = s->targets;
  if (s->status != LM_OK && err != NULL) *err = s->err;
  return s->status;
}
