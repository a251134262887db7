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

/** Print the plan and end MPI; the exit code for main(). Collective. */
int tap_end(void);

#endif
