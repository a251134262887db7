/* slurm/job.h - what Slurm says of the job that this process runs in. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_SLURM_JOB_H
#define LM_SLURM_JOB_H

/** The job's number, or NULL outside of Slurm. Local. */
const char *lm_slurm_job_id(void);

/** Did Slurm start several tasks of which MPI knows only this one? Local. A launcher that MPI does not understand makes
 *  N programs that each believe to be rank 0 of 1. Only a job step tells of tasks; a shell inside a job does not.
 *  @param mpi_size  ranks that MPI knows @return how many tasks, 0 where all is well */
int lm_slurm_lost_tasks(int mpi_size);

#endif
