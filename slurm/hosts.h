/* slurm/hosts.h - Slurm's short forms of node names and of tasks per node. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_SLURM_HOSTS_H
#define LM_SLURM_HOSTS_H

#include "base/memory.h"
#include <stdint.h>

/** "node[01-03,07],login" -> "node01\nnode02\nnode03\nnode07\nlogin\n", in order. Local. Leading zeros are kept; a name
 *  may have several brackets ("r[1-2]n[1-4]"), the last one counting fastest.
 *  @param[out] out    appended to; nothing where the list is refused
 *  @param[out] count  names
 *  @return LM_EINVAL shows the list and what is wrong with it; LM_ENOMEM */
lm_status lm_hosts_expand(const char *list, lm_buffer *out, size_t *count, lm_error *err) LM_NODISCARD;

/** "2(x3),1" -> 2, 2, 2, 1. Local.
 *  @param[out] out    [count], the caller's to free(); NULL after a failure
 *  @return LM_EINVAL shows the text and what is wrong with it; LM_ENOMEM */
lm_status lm_tasks_expand(const char *text, uint32_t **out, size_t *count, lm_error *err) LM_NODISCARD;

#endif
