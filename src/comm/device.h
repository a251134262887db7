/* src/comm/device.h - the ranks' devices, joined: collectives on device buffers. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_COMM_DEVICE_H
#define LM_COMM_DEVICE_H

#include "comm/comm.h"
#include "comm/fabric.h"

/** Ranks that exchange what lies on their devices. Plain data to read; one is made by lm_device_comm_new(). */
typedef struct lm_device_comm {
  const lm_fabric *fabric;
  void *group; /* the first argument of its functions */
} lm_device_comm;

/** Join the devices of all ranks: the id is made on rank 0 and goes round by MPI. Collective.
 *  @param fabric  of the backend that every rank has chosen; kept
 *  @param marks   as lm_fabric.join has it
 *  @param seconds that joining may take
 *  @return LM_EIO with the fabric's words */
lm_status lm_device_comm_new(lm_device_comm **out, const lm_comm *comm, const lm_fabric *fabric, int marks,
                             double seconds, lm_error *err) LM_NODISCARD;
/** Local, but the others must come here too, or to an end of the job. NULL is fine. */
void lm_device_comm_free(lm_device_comm *d);

#endif
