/* slurm/job.c - what Slurm says of the job that this process runs in. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "slurm/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A variable that holds a whole number in [0, max]; -1 where it is not there or holds anything else. */
static long number_in(const char *variable, long max)
{
  const char *text = getenv(variable);
  if (text == NULL || *text < '0' || *text > '9') return -1;
  char *end;
  long n = strtol(text, &end, 10);
  return *end == '\0' && n <= max ? n : -1;
}

const char *lm_slurm_job_id(void)
{
  return getenv("SLURM_JOB_ID");
}

long lm_slurm_restarts(void)
{
  long n = number_in("SLURM_RESTART_COUNT", 1L << 30);
  return n > 0 ? n : 0;
}

const char *lm_slurm_nodes(void)
{
  const char *step = getenv("SLURM_STEP_NODELIST"); /* a step may use fewer nodes than the job has */
  return step != NULL ? step : getenv("SLURM_JOB_NODELIST");
}

const char *lm_slurm_tasks_per_node(void)
{
  return getenv("SLURM_STEP_NODELIST") != NULL ? getenv("SLURM_STEP_TASKS_PER_NODE") : getenv("SLURM_TASKS_PER_NODE");
}

int lm_slurm_lost_tasks(int mpi_size)
{
  if (mpi_size != 1 || getenv("SLURM_STEP_ID") == NULL || getenv("SLURM_PROCID") == NULL) return 0;
  long n = number_in("SLURM_STEP_NUM_TASKS", 1L << 30);
  if (n < 0) n = number_in("SLURM_NTASKS", 1L << 30);
  return n > 1 ? (int)n : 0;
}

double lm_slurm_parse_end_time(const char *text)
{
  static const char key[] = " EndTime=";
  const char *at = strstr(text, key);
  struct tm t = {.tm_isdst = -1};
  if (at == NULL || strptime(at + sizeof key - 1, "%Y-%m-%dT%H:%M:%S", &t) == NULL) return 0;
  time_t end = mktime(&t);
  return end > 0 ? (double)end : 0;
}

/* A controller that does not answer must not hold up the run. */
static double ask_scontrol(long job)
{
  char command[96], text[16384];
  snprintf(command, sizeof command, "timeout 10 scontrol show job -o %ld 2>/dev/null", job);
  FILE *answer = popen(command, "r");
  if (answer == NULL) return 0;
  size_t n = fread(text, 1, sizeof text - 1, answer);
  text[n] = '\0';
  return pclose(answer) == 0 ? lm_slurm_parse_end_time(text) : 0;
}

double lm_slurm_end_time(void)
{
  long end = number_in("SLURM_JOB_END_TIME", 1L << 40);
  if (end >= 0) return (double)end;
  long job = number_in("SLURM_JOB_ID", 1L << 40);
  return job > 0 ? ask_scontrol(job) : 0;
}
