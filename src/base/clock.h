/* src/base/clock.h - seconds since some moment in the past, never running backwards. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_BASE_CLOCK_H
#define LM_BASE_CLOCK_H

#include <time.h>

/** Seconds, monotonic. Local. Differences only; compare between ranks never. */
static inline double lm_clock(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
