/* slurm/job.c - what Slurm says of the job that this process runs in. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "slurm/job.h"

#include <stdlib.h>

const char *lm_slurm_job_id(void)
{
  return getenv("SLURM_JOB_ID");
}

int lm_slurm_lost_tasks(int mpi_size)
{
  const char *tasks = getenv("SLURM_STEP_NUM_TASKS");
  if (tasks == NULL) tasks = getenv("SLURM_NTASKS");
  if (mpi_size != 1 || tasks == NULL || getenv("SLURM_STEP_ID") == NULL || getenv("SLURM_PROCID") == NULL) return 0;
  char *end;
  long n = strtol(tasks, &end, 10);
  return end != tasks && *end == '\0' && n > 1 && n <= 1 << 30 ? (int)n : 0;
}
