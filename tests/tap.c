/* tests/tap.c - checks in TAP, the same on one rank and on many. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/tap.h"

#include "base/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lm_comm *world;
static int n_checks, n_failed;

void tap_begin(lm_comm *comm, int argc, char **argv)
{
  lm_error err;
  if (lm_comm_world(comm, &argc, &argv, &err) != LM_OK) {
    printf("Bail out! %s\n", err.text);
    exit(99);
  }
  lm_log_init(comm->rank, comm->size, comm->host);
  world = comm;
  setvbuf(stdout, NULL, _IOLBF, 0);
}

void tap_skip_all(const char *reason)
{
  if (world->rank == 0) printf("1..0 # SKIP %s\n", reason);
  lm_comm_end(world);
  exit(0);
}

static bool LM_PRINTF(2, 0) verdict(bool holds, const char *format, va_list args)
{
  double failing = !holds;
  lm_allreduce_sum_f64(world, &failing, 1);
  n_checks++;
  n_failed += failing > 0;
  if (world->rank == 0) {
    printf("%s %d - ", failing > 0 ? "not ok" : "ok", n_checks);
    vprintf(format, args);
    putchar('\n');
  }
  return failing == 0;
}

bool tap_check(bool holds, const char *cond, const char *file, int line, const char *format, ...)
{
  if (!holds) fprintf(stderr, "# rank %d: %s:%d: %s does not hold\n", world->rank, file, line, cond);
  va_list args;
  va_start(args, format);
  bool all = verdict(holds, format, args);
  va_end(args);
  return all;
}

bool tap_check_near(double got, double want, double tolerance, const char *file, int line, const char *format, ...)
{
  bool holds = fabs(got - want) <= tolerance * fmax(1, fabs(want)); /* false where one is NaN */
  if (!holds) fprintf(stderr, "# rank %d: %s:%d: got %.9g, want %.9g\n", world->rank, file, line, got, want);
  va_list args;
  va_start(args, format);
  bool all = verdict(holds, format, args);
  va_end(args);
  return all;
}

/* Has every rank the sentence of rank 0? Collective. */
static bool is_shared(const lm_error *err)
{
  lm_error first = *err;
  lm_bcast(world, &first, sizeof first, 0);
  return strcmp(first.text, err->text) == 0 && first.rank == err->rank;
}

bool tap_check_alone(const char *function, int bad, lm_status got, lm_status want, const lm_error *err,
                     const char *words, const char *file, int line)
{
  bool holds = is_shared(err) && got == want && err->rank == bad && strstr(err->text, words) != NULL;
  if (!holds)
    fprintf(stderr, "# rank %d: %s:%d: status %d, want %d; rank %d, want %d; '%s', want '%s'\n", world->rank, file,
            line, got, want, err->rank, bad, err->text, words);
  return tap_ok(holds, "%s, rank %d alone: %s", function, bad, err->text);
}

int tap_end(void)
{
  if (world->rank == 0) printf("1..%d\n", n_checks);
  fflush(stdout);
  lm_comm_end(world);
  return n_failed > 0;
}
