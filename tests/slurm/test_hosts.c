/* tests/slurm/test_hosts.c - Slurm's lists of nodes, tasks per node, time limit, tasks that do not know each other. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "slurm/hosts.h"
#include "slurm/job.h"
#include "tests/tap.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static lm_error err;

static void hosts(const char *list, const char *want)
{
  lm_buffer out = {0};
  size_t count = 0, lines = 0;
  lm_status s = lm_hosts_expand(list, &out, &count, &err);
  for (const char *c = want; *c != '\0'; c++) lines += *c == '\n';
  tap_ok(s == LM_OK && strcmp(out.data, want) == 0 && count == lines, "hosts '%s'", list);
  lm_buffer_free(&out);
}

static void no_hosts(const char *list)
{
  lm_buffer out = {0};
  size_t count;
  tap_ok(lm_hosts_expand(list, &out, &count, &err) == LM_EINVAL && strstr(err.text, "node list") != NULL &&
             out.size == 0 && count == 0,
         "'%s' is refused", list);
  lm_buffer_free(&out);
}

static void tasks(const char *text, size_t n, const uint32_t *want)
{
  uint32_t *out;
  size_t count;
  lm_status s = lm_tasks_expand(text, &out, &count, &err);
  tap_ok(s == LM_OK && count == n && memcmp(out, want, n * sizeof *want) == 0, "tasks '%s'", text);
  free(out);
}

static void no_tasks(const char *text)
{
  uint32_t *out;
  size_t count;
  tap_ok(lm_tasks_expand(text, &out, &count, &err) == LM_EINVAL && out == NULL && strstr(err.text, "tasks per node"),
         "'%s' is refused", text);
}

static void set(const char *name, const char *value)
{
  if (value == NULL)
    unsetenv(name);
  else
    setenv(name, value, 1);
}

static void end_times(void)
{
  setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3", 1);
  tzset();
  /* 2026-07-01 12:00:00 in Berlin is 10:00:00 UTC; date -d @1782900000 -u says so. In winter it is an hour's less. */
  tap_ok(lm_slurm_parse_end_time("JobId=7 StartTime=2026-07-01T11:00:00 EndTime=2026-07-01T12:00:00 X=1") == 1782900000,
         "the end in local time, in summer");
  tap_ok(lm_slurm_parse_end_time("JobId=7 EndTime=2026-01-01T12:00:00 X=1") == 1767265200, "and in winter");
  tap_ok(lm_slurm_parse_end_time("JobId=7 EndTime=Unknown X=1") == 0, "no time limit");
  tap_ok(lm_slurm_parse_end_time("JobId=7 PreemptEndTime=2026-07-01T12:00:00") == 0 && lm_slurm_parse_end_time("") == 0,
         "no end at all");
  set("SLURM_JOB_END_TIME", "1782900000");
  tap_ok(lm_slurm_end_time() == 1782900000, "SLURM_JOB_END_TIME");
  set("SLURM_JOB_END_TIME", NULL);
  set("SLURM_JOB_ID", NULL);
  tap_ok(lm_slurm_end_time() == 0, "outside of Slurm there is no end");
  set("SLURM_JOB_ID", "7; echo EndTime=2026-07-01T12:00:00");
  tap_ok(lm_slurm_end_time() == 0, "a job id that is no number is not asked for");
  set("SLURM_JOB_ID", NULL);
}

static void lost_tasks(const char *tasks_of_job, const char *step, const char *rank, int mpi_size, int want)
{
  set("SLURM_NTASKS", tasks_of_job);
  set("SLURM_STEP_ID", step);
  set("SLURM_PROCID", rank);
  tap_ok(lm_slurm_lost_tasks(mpi_size) == want, "SLURM_NTASKS %s, step %s, task %s, MPI size %d: %d lost",
         tasks_of_job ? tasks_of_job : "-", step ? step : "-", rank ? rank : "-", mpi_size, want);
}

int main(int argc, char **argv)
{
  static const char *const bad_lists[] = {
      "",   "node[1-3", "node[3-1]", "node[]", "node[a]", "node[1-]", "node[-3]",      "a,,b",   "a,",
      ",a", "node[1,]", "no de",     "a]",     "n[1]]",   "n[1-2-3]", "n[0-99999999]", "n[1][1", "n[1 ]"};
  static const char *const bad_tasks[] = {"",       "2(x3",   "x",   "2(x)",         "2(3)",       "2x3",
                                          "2,",     ",2",     "2 ",  "-2",           "2(x0)",      "2()",
                                          "2(x3)1", "2(x-1)", "two", "2(x99999999)", "99999999999"};
  lm_comm comm;
  for (const char *const *v = (const char *const[]){"SLURM_NTASKS", "SLURM_STEP_ID", "SLURM_PROCID",
                                                    "SLURM_STEP_NUM_TASKS", "SLURM_RESTART_COUNT", NULL};
       *v; v++)
    unsetenv(*v);
  tap_begin(&comm, argc, argv);
  hosts("node[01-03,07]", "node01\nnode02\nnode03\nnode07\n");
  hosts("b04-[09-10]", "b04-09\nb04-10\n");
  hosts("c[1-2]", "c1\nc2\n");
  hosts("g-[008-011]", "g-008\ng-009\ng-010\ng-011\n");
  hosts("a1,b[2-3]", "a1\nb2\nb3\n");
  hosts("ml-16-node-[001-002,004],ml-17-node-[001-003]",
        "ml-16-node-001\nml-16-node-002\nml-16-node-004\nml-17-node-001\nml-17-node-002\nml-17-node-003\n");
  hosts("single", "single\n");
  hosts("n[9-11]", "n9\nn10\nn11\n");
  hosts("r[1-2]n[08-09]-ib", "r1n08-ib\nr1n09-ib\nr2n08-ib\nr2n09-ib\n");
  hosts("x.example.org", "x.example.org\n");
  for (size_t i = 0; i < sizeof bad_lists / sizeof bad_lists[0]; i++) no_hosts(bad_lists[i]);

  tasks("2(x3),1", 4, (const uint32_t[]){2, 2, 2, 1});
  tasks("8", 1, (const uint32_t[]){8});
  tasks("1(x2)", 2, (const uint32_t[]){1, 1});
  for (size_t i = 0; i < sizeof bad_tasks / sizeof bad_tasks[0]; i++) no_tasks(bad_tasks[i]);

  end_times();
  lost_tasks("4", "0", "2", 1, 4);
  lost_tasks("4", "0", "2", 4, 0);
  lost_tasks("4", NULL, "0", 1, 0); /* the shell of a batch job */
  lost_tasks("1", "0", "0", 1, 0);
  lost_tasks(NULL, NULL, NULL, 1, 0);
  lost_tasks("4x", "0", "2", 1, 0);

  tap_ok(lm_slurm_restarts() == 0, "not requeued");
  set("SLURM_RESTART_COUNT", "3");
  tap_ok(lm_slurm_restarts() == 3, "requeued three times");
  set("SLURM_RESTART_COUNT", "3x");
  tap_ok(lm_slurm_restarts() == 0, "a count that is no number is not one");
  return tap_end();
}
