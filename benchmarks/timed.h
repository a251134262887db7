/* benchmarks/timed.h - a backend's table of operations with a clock around each: no code of the program changes. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_BENCHMARKS_TIMED_H
#define LM_BENCHMARKS_TIMED_H

#include "kernels/kernels.h"

/** What an operation took since lm_timed_reset(). flops: of products alone, attention's included; bytes: of all
 * tensors, each once. */
typedef struct lm_timed {
  const char *name;
  double seconds, flops, bytes;
  long calls;
} lm_timed;

enum { LM_TIMED_MOST = 40 };

/** A table that calls k's functions and notes their times. Local. One at a time. */
const lm_kernels *lm_timed_table(const lm_kernels *k);

/** Does the table wait for a device after each call, so that an operation's time is its own? At first it does. A step
 *  is faster when nobody waits. Local. */
void lm_timed_wait(bool wait);

/** Seconds by the clock that lm_timed_table() measures with: the processor's time where one thread of it does the work,
 *  so that others on the machine count less; else the wall's. Local. */
double lm_timed_clock(void);

void lm_timed_reset(void);
/** @param[out] out [LM_TIMED_MOST] @return how many */
int lm_timed_read(lm_timed *out);

#endif
