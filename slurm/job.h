/* slurm/job.h - what Slurm says of the job that this process runs in. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_SLURM_JOB_H
#define LM_SLURM_JOB_H

/** The job's number, or NULL outside of Slurm. Local. */
const char *lm_slurm_job_id(void);

/** How often the job was requeued before this start; 0 outside of Slurm too. Local. */
long lm_slurm_restarts(void);

/** The nodes of the job as Slurm writes them, "node[1-4]"; NULL outside of Slurm. Local. slurm/hosts.h reads it. */
const char *lm_slurm_nodes(void);

/** The tasks on each of these nodes as Slurm writes them, "2(x3),1"; NULL where it does not say. Local. */
const char *lm_slurm_tasks_per_node(void);

/** Did Slurm start several tasks of which MPI knows only this one? Local. A launcher that MPI does not understand makes
 *  N programs that each believe to be rank 0 of 1. Only a job step tells of tasks; a shell inside a job does not.
 *  @param mpi_size  ranks that MPI knows @return how many tasks, 0 where all is well */
int lm_slurm_lost_tasks(int mpi_size);

/** When Slurm will end the job, in seconds since 1970: SLURM_JOB_END_TIME where it is set, else what scontrol tells,
 *  asked once and for at most a few seconds; 0 where there is no limit, or nothing tells. Local. */
double lm_slurm_end_time(void);

/** The end in the text that `scontrol show job` prints, in local time; 0 where it has none ("Unknown"). Local. */
double lm_slurm_parse_end_time(const char *text);

#endif
