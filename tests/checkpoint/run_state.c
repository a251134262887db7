/* tests/checkpoint/run_state.c - saves and resumes for the scripts: run_state save RUN KEEP STEP... | resume RUN */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/fault.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "tests/checkpoint/state.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static lm_status save(const lm_comm *comm, const char *run, int64_t keep, uint64_t step, lm_error *err)
{
  lm_state_slice s[STATE_TENSORS];
  state_new(s, comm, (unsigned)step, (unsigned)step);
  lm_info("saving %" PRIu64, step);
  lm_status status = lm_checkpoint_save(comm, run, step, s, STATE_TENSORS, keep, err);
  state_free(s);
  if (comm->rank == 0 && status == LM_OK) printf("saved %" PRIu64 "\n", step), fflush(stdout);
  return status;
}

static lm_status resume(const lm_comm *comm, const char *run, lm_error *err)
{
  lm_state_slice s[STATE_TENSORS];
  uint64_t step;
  bool found;
  state_new(s, comm, 2, 0);
  state_clear(s);
  lm_status status = lm_checkpoint_resume(comm, run, s, STATE_TENSORS, &step, &found, err);
  if (status == LM_OK && found && !state_is(s, (unsigned)step))
    status = lm_fail(err, LM_EDAMAGED, "step %" PRIu64 " came back as something else", step);
  status = lm_agree(comm, status, err);
  state_free(s);
  if (comm->rank == 0 && status == LM_OK && found) printf("resumed %" PRIu64 "\n", step);
  if (comm->rank == 0 && status == LM_OK && !found) printf("nothing to resume\n");
  return status;
}

/* A limit on the length of files, for the saves alone: MPI makes files of its own when it starts. */
static void limit_files(void)
{
  const char *bytes = getenv("RUN_STATE_FILE_LIMIT");
  if (bytes == NULL) return;
  rlim_t n = strtoull(bytes, NULL, 10);
  setrlimit(RLIMIT_FSIZE, &(struct rlimit){n, n});
}

int main(int argc, char **argv)
{
  lm_comm comm;
  lm_error err;
  signal(SIGXFSZ, SIG_IGN); /* as the program does */
  lm_status s = lm_comm_world(&comm, &argc, &argv, &err);
  lm_log_init(comm.rank, comm.size, comm.host);
  if (s == LM_OK) s = lm_fault_init(getenv("MPILM_FAULT"), comm.rank, &err);
  if (s == LM_OK && argc > 3 && strcmp(argv[1], "save") == 0) {
    s = lm_checkpoint_prepare(&comm, argv[2], &err);
    limit_files();
    for (int i = 4; s == LM_OK && i < argc; i++) /* a failed save does not end a run: the next may be better */
      if (save(&comm, argv[2], atoll(argv[3]), strtoull(argv[i], NULL, 10), &err) != LM_OK) lm_log_error(&err);
  } else if (s == LM_OK && argc == 3 && strcmp(argv[1], "resume") == 0) {
    s = resume(&comm, argv[2], &err);
  }
  if (s != LM_OK) lm_log_error(&err);
  lm_comm_end(&comm);
  return lm_exit_code(s);
}
