/* src/base/log.h - messages for people, on stderr. Results go to stdout, never through here. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_BASE_LOG_H
#define LM_BASE_LOG_H

#include "base/status.h"
#include <stdbool.h>

/** Say who speaks; before this call rank 0 of 1 does. Local. host is copied. */
void lm_log_init(int rank, int size, const char *host);

/** Show what lm_verbose() prints. Local. */
void lm_log_verbose(bool on);

/** A line on rank 0; the other ranks are silent. Local. */
void lm_info(const char *format, ...) LM_PRINTF(1, 2);

/** As lm_info, only with --verbose. Local. */
void lm_verbose(const char *format, ...) LM_PRINTF(1, 2);

/** "warning: ..." on rank 0. Local. */
void lm_warn(const char *format, ...) LM_PRINTF(1, 2);

/** "[rank 12 node07] warning: ..." on the rank that calls. Local. */
void lm_warn_all(const char *format, ...) LM_PRINTF(1, 2);

/** Print a failure once: on rank 0, naming rank and host where the run has several ranks. Local. */
void lm_log_error(const lm_error *err);

#endif
