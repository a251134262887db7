/* tests/no_memory.c - the allocations of one rank fail, one after the other. */
/* SPDX-License-Identifier: BSD-3-Clause */
/* The linker (NO_MEMORY_FLAGS) sends the calls of our own code here; those of MPI and other libraries are their own. */
#include "tests/tap.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *text);
int __real_posix_memalign(void **out, size_t alignment, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *text);
int __wrap_posix_memalign(void **out, size_t alignment, size_t n);

static atomic_long left; /* until the one that fails; below 1: none does any more */

static bool fails(void)
{
  return atomic_fetch_sub(&left, 1) == 1;
}

void *__wrap_malloc(size_t n)
{
  return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
  return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
  return fails() ? NULL : __real_realloc(p, n);
}

char *__wrap_strdup(const char *text)
{
  return fails() ? NULL : __real_strdup(text);
}

int __wrap_posix_memalign(void **out, size_t alignment, size_t n)
{
  return fails() ? ENOMEM : __real_posix_memalign(out, alignment, n);
}

bool tap_check_no_memory(const char *function, const lm_comm *comm, int bad,
                         lm_status (*call)(void *context, lm_error *err), void *context)
{
  bool same = true;
  lm_status s;
  lm_error err;
  int n = 0, failed;
  do {
    n++;
    err = (lm_error){.rank = -1};
    atomic_store(&left, comm->rank == bad ? n : 0);
    s = call(context, &err);
    failed = atomic_exchange(&left, 0) < 1;
    lm_bcast(comm, &failed, sizeof failed, bad);
    int mine[2] = {(int)s, s == LM_OK ? 0 : err.rank}, first[2] = {mine[0], mine[1]};
    lm_bcast(comm, first, sizeof first, 0);
    bool good =
        memcmp(mine, first, sizeof first) == 0 && (s == LM_OK || (failed && strstr(err.text, "memory") != NULL));
    if (!good) fprintf(stderr, "# rank %d: allocation %d of %s: %d '%s'\n", comm->rank, n, function, (int)s, err.text);
    same = same && good;
  } while (failed);
  return tap_ok(same && s == LM_OK && n > 1, "%s, rank %d alone: each of its %d allocations fails once", function, bad,
                n - 1);
}
