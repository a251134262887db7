/* src/train/stop.h - stop requests: SIGUSR1, SIGTERM, SIGINT. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TRAIN_STOP_H
#define LM_TRAIN_STOP_H

#include <stdbool.h>

/** From now on these signals are noted instead of ending the process; a second SIGINT ends it. Local. */
void lm_stop_watch(void);

/** Did this rank get one? Local; ranks agree on it in the step's reduction. */
bool lm_stop_requested(void);

/** "SIGUSR1", or "" where none came. Local. */
const char *lm_stop_signal(void);

#endif
