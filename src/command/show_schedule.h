/* src/command/show_schedule.h - mpilm train --show-schedule: the rates of a run, before it runs. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_COMMAND_SHOW_SCHEDULE_H
#define LM_COMMAND_SHOW_SCHEDULE_H

#include "train/run_config.h"

/** Print a table of step, rate, batch and tokens on stdout, and write a picture of them. Local.
 *  @param svg  the picture's path @return LM_EIO with the path, LM_ENOMEM */
lm_status lm_show_schedule(const lm_config *cfg, const char *svg, lm_error *err) LM_NODISCARD;

#endif
