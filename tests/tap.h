/* tests/tap.h - checks in TAP, the same on one rank and on many. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TESTS_TAP_H
#define LM_TESTS_TAP_H

#include "comm/comm.h"
#include <stdbool.h>

/** Start MPI and the test. Collective. */
void tap_begin(lm_comm *comm, int argc, char **argv);

/** "1..0 # SKIP reason", and the end of the program. Collective. */
_Noreturn void tap_skip_all(const char *reason);

/** One check: ok if it holds on every rank. Rank 0 prints; a failing rank says so on stderr. Collective. */
#define tap_ok(cond, ...) tap_check((cond), #cond, __FILE__, __LINE__, __VA_ARGS__)
bool tap_check(bool holds, const char *cond, const char *file, int line, const char *format, ...) LM_PRINTF(5, 6);

/** ok if |got - want| <= tolerance * max(1, |want|); NaN never passes. Collective. */
#define tap_near(got, want, tolerance, ...) tap_check_near((got), (want), (tolerance), __FILE__, __LINE__, __VA_ARGS__)
bool tap_check_near(double got, double want, double tolerance, const char *file, int line, const char *format, ...)
    LM_PRINTF(6, 7);

/** One rank alone was made to fail in a Collective function: ok if on every rank it returned `want`, and err has that
 *  rank and one and the same sentence, with `words` in it. tests/repo/collective.sh wants one of these, here or in a
 *  script (tap.sh), for each Collective function that can fail. Collective.
 *  @param function  its name: tap_alone(lm_tokenize, bad, s, LM_EINVAL, &err, "no such file") */
#define tap_alone(function, bad, got, want, err, words)                                                                \
  ((void)sizeof(&(function)), tap_check_alone(#function, (bad), (got), (want), (err), (words), __FILE__, __LINE__))
bool tap_check_alone(const char *function, int bad, lm_status got, lm_status want, const lm_error *err,
                     const char *words, const char *file, int line);

/** The same for memory: `call` is called again and again, and each time another of rank `bad`'s allocations fails,
 * until all have had their turn. ok if all ranks always returned the same, a failure whose sentence
 * speaks of memory or the LM_OK of who can do without it, and LM_OK in the end. Only allocations of our own code fail;
 * the program is linked with $(NO_MEMORY_FLAGS). Collective.
 *  @param call  calls the function, and leaves all as it was before */
#define tap_alone_no_memory(function, comm, bad, call, context)                                                        \
  ((void)sizeof(&(function)), tap_check_no_memory(#function, (comm), (bad), (call), (context)))
bool tap_check_no_memory(const char *function, const lm_comm *comm, int bad,
                         lm_status (*call)(void *context, lm_error *err), void *context);

/** Print the plan and end MPI; the exit code for main(). Collective. */
int tap_end(void);

#endif
