/* src/train/stop.h - stop requests: SIGUSR1, SIGTERM, SIGINT, SIGHUP, the end of the job's time. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TRAIN_STOP_H
#define LM_TRAIN_STOP_H

#include <stdbool.h>

/** From now on these signals are noted instead of ending the process; a second SIGINT ends it. SIGHUP stays ignored
 * where nohup had it so, and writing to a pipe that nobody reads is an error like others. Local. */
void lm_stop_watch(void);

/** From now on the end of the job's time is a stop request too. Local; one rank is enough, as with a signal.
 *  @param end  on lm_clock(): what is to be done must be done by then */
void lm_stop_before(double end);

/** What is still to be done after a stop request takes so many seconds. Local. 0 until it is said. */
void lm_stop_reserve(double seconds);

/** Did this rank get one? Local; ranks agree on it in the step's reduction. */
bool lm_stop_requested(void);

/** "as asked by SIGUSR1", "as the job's time is ending", or "as asked" where it came to another rank. Local. */
const char *lm_stop_reason(void);

#endif
