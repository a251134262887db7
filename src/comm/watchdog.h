/* src/comm/watchdog.h - a rank that never arrives is named, and the job ends instead of waiting for ever. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_COMM_WATCHDOG_H
#define LM_COMM_WATCHDOG_H

#include "comm/comm.h"
#include "comm/device.h"

/* MPI cannot say that a rank hangs: all others are inside MPI, waiting for it. So each rank has a thread that knows the
 * phase its main thread is in. Where a phase lasts for half of the time limit, the thread notes it in a small file in
 * the run folder; at the limit, one thread reads the notes of all ranks, says who is where, and ends its process, and
 * with it the job. Nothing is written while all is well, and MPI is never called. The time in which a process is
 * stopped (SIGSTOP, a suspended job) does not count against its own limit.
 *
 * A rank that dies is seen at once by the rank before it on its node, whose thread says so and ends its own process, if
 * the launcher does not do that first. */
typedef struct lm_watchdog lm_watchdog; /* opaque */

/** Start the thread. Local; notes that an earlier start left in the folder are removed.
 *  @param folder   exists; copied
 *  @param timeout  seconds that one phase may last; 0: no watchdog, *out is NULL
 *  @return LM_ENOMEM, LM_EIO where the thread cannot be made */
lm_status lm_watchdog_start(lm_watchdog **out, const lm_comm *comm, const char *folder, double timeout,
                            lm_error *err) LM_NODISCARD;

/** From here on look after the next rank of this node. Collective; w is NULL on all ranks or on none. A process that
 *  cannot be seen (ranks in containers of their own) is not looked after.
 *  The ranks must end together: lm_watchdog_stop() on all of them before the first leaves MPI. */
void lm_watchdog_neighbour(lm_watchdog *w, const lm_comm *comm);

/** The main thread enters a phase of a step; its time begins anew. Local, cheap; w may be NULL.
 *  @param phase  a literal, "gradients": kept */
void lm_watchdog_phase(lm_watchdog *w, uint64_t step, const char *phase);

/** From now on the thread also asks the devices' fabric for failures that no call tells of: it then says so and ends
 * the process, and with it the job. Local; w may be NULL. @param d  kept until the next call; NULL: no more */
void lm_watchdog_device(lm_watchdog *w, const lm_device_comm *d);

/** End the thread and remove the note. Local; w may be NULL. */
void lm_watchdog_stop(lm_watchdog *w);

#endif
