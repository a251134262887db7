/* tests/checkpoint/run_state.c - saves and resumes for the scripts: run_state save RUN KEEP STEP... | resume RUN.
 * RUN_STATE_POLICY lists async, mpiio, full, best, milestone=N; the validation loss of step N is that of
 * RUN_STATE_LOSS_N. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/fault.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/saver.h"
#include "tests/checkpoint/state.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static lm_saver_policy policy_of(int64_t keep)
{
  const char *words = getenv("RUN_STATE_POLICY") ? getenv("RUN_STATE_POLICY") : "", *milestone;
  lm_saver_policy p = {.keep = keep, .keep_best = strstr(words, "best") != NULL};
  p.how.background = strstr(words, "async") != NULL;
  p.how.together = strstr(words, "mpiio") != NULL;
  p.how.read_back = strstr(words, "full") != NULL;
  if ((milestone = strstr(words, "milestone=")) != NULL) p.milestone_every = atoll(milestone + 10);
  return p;
}

static double loss_of(uint64_t step)
{
  char name[64];
  snprintf(name, sizeof name, "RUN_STATE_LOSS_%" PRIu64, step);
  return getenv(name) != NULL ? atof(getenv(name)) : (double)NAN;
}

/* The state is gone as soon as the save has begun: in the background only the snapshot is left. */
static lm_status save(const lm_comm *comm, lm_saver *saver, uint64_t step, lm_error *err)
{
  lm_state_slice s[STATE_TENSORS + 1];
  double loss = loss_of(step);
  float value = (float)loss;
  state_new(s, comm, (unsigned)step, (unsigned)step);
  s[STATE_TENSORS] = (lm_state_slice){
      .name = "/provenance/validation_loss", .dtype = LM_F32, .count = comm->rank == 0, .data = &value};
  lm_info("saving %" PRIu64, step);
  lm_status status = lm_saver_begin(saver, step, s, STATE_TENSORS + 1, loss, err);
  state_clear(s);
  state_free(s);
  if (status == LM_OK) status = lm_saver_end(saver, err);
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
  lm_status status = lm_checkpoint_resume(comm, run, UINT64_MAX, s, STATE_TENSORS, &step, &found, err);
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
    lm_run_lock *lock;
    s = lm_checkpoint_prepare(&comm, argv[2], getenv("RUN_STATE_LOCK") ? atof(getenv("RUN_STATE_LOCK")) : 30, 8, &lock,
                              &err);
    limit_files();
    lm_saver *saver = NULL;
    const lm_saver_policy policy = policy_of(atoll(argv[3]));
    if (s == LM_OK) s = lm_saver_new(&saver, &comm, argv[2], &policy, &err);
    for (int i = 4; s == LM_OK && i < argc; i++) /* a failed save does not end a run: the next may be better */
      if (save(&comm, saver, strtoull(argv[i], NULL, 10), &err) != LM_OK) lm_log_error(&err);
    lm_saver_free(saver);
    lm_run_lock_release(lock);
  } else if (s == LM_OK && argc == 3 && strcmp(argv[1], "resume") == 0) {
    s = resume(&comm, argv[2], &err);
  }
  if (s != LM_OK) lm_log_error(&err);
  lm_comm_end(&comm);
  return lm_exit_code(s);
}
