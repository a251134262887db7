/* src/comm/device.c - the ranks' devices, joined. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/device.h"

#include "base/memory.h"

#include <stdlib.h>

lm_status lm_device_comm_new(lm_device_comm **out, const lm_comm *comm, const lm_fabric *fabric, int marks,
                             double seconds, lm_error *err)
{
  char id[LM_FABRIC_ID] = {0};
  *out = NULL;
  LM_TRY(lm_agree(comm, comm->rank == 0 ? fabric->make_id(id, err) : LM_OK, err));
  lm_bcast(comm, id, sizeof id, 0);
  lm_status s = lm_alloc_agreed(comm, out, 1, sizeof **out, "the ranks' devices", err);
  if (s == LM_OK) {
    (*out)->fabric = fabric;
    s = lm_agree(comm, fabric->join(&(*out)->group, id, comm->rank, comm->size, marks, seconds, err), err);
  }
  if (s == LM_OK) return LM_OK;
  /* Some ranks may have joined while another could not: leaving would wait for it. */
  if (*out != NULL && (*out)->group != NULL) {
    fabric->abort((*out)->group);
    fabric->leave((*out)->group);
  }
  free(*out);
  *out = NULL;
  return s;
}

void lm_device_comm_free(lm_device_comm *d)
{
  if (d == NULL) return;
  d->fabric->leave(d->group);
  free(d);
}
