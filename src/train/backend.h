/* src/train/backend.h - start a backend on the device that is this rank's own. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_TRAIN_BACKEND_H
#define LM_TRAIN_BACKEND_H

#include "comm/comm.h"
#include "kernels/kernels.h"

/** Which of the GPUs that a rank sees is its own: the only one it sees, which the launcher chose for it, else that of
 * its number on the node. Local.
 *  @param local_rank, local_size  its number on the node, and how many ranks the node has: as MPI says, since a
 *                                 launcher's variables are those of mpirun's daemon where Slurm did not start the ranks
 *  @param visible  GPUs that it sees
 *  @return LM_EINVAL where there is none, or where several are seen but fewer than ranks: none is shared silently */
lm_status lm_backend_device(int *out, int local_rank, int local_size, int visible, lm_error *err) LM_NODISCARD;

/** What LM_BACKEND_AUTO is here: a GPU where there is one. Local. @param[out] why  of the CPU; its text may be empty */
lm_backend lm_backend_auto(lm_error *why);

/** Product FLOP/s of type t, measured in half a second: of this rank's threads, or of its device. Local. 0 where memory
 * is short. */
double lm_backend_rate(const lm_kernels *k, lm_dtype t);

/** lm_kernels_select(), on this rank's own GPU where that is what is asked for. Local. LM_BACKEND_AUTO: a GPU where
 * there is one, else the CPU, with a line that says why. */
lm_status lm_backend_start(const lm_kernels **out, const lm_comm *comm, lm_backend which, lm_error *err) LM_NODISCARD;

#endif
