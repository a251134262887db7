/* src/base/process.h - is a process of this host still there. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_BASE_PROCESS_H
#define LM_BASE_PROCESS_H

#include <stdint.h>

/** When a process began, in ticks since the host's boot: a pid alone comes again. Local. Field 22 of /proc/PID/stat; 0
 * where there is no such process, or only its exit code, state Z, waits for its parent. */
int64_t lm_process_start(int64_t pid);

#endif
