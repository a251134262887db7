/* tests/checkpoint/test_alone.c - one rank alone cannot take part in a save or a resume: all ranks return its failure.
 */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/fault.h"
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/saver.h"
#include "tests/checkpoint/state.h"
#include "tests/tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static lm_comm world;
static lm_error err;
static char run[64], file[128], nowhere[128];
static int saves; /* of this process, as MPILM_FAULT counts them */
static lm_state_slice state[STATE_TENSORS];

static lm_saver *new_saver(const char *folder)
{
  lm_saver *s;
  const lm_saver_policy policy = {.how.background = true, .keep = 1};
  if (lm_saver_new(&s, &world, folder, &policy, &err) != LM_OK) abort();
  return s;
}

/* The next save of this process fails to write, on one rank. */
static void fail_next_write(int bad)
{
  char fault[64];
  snprintf(fault, sizeof fault, "fail_write@ckpt%d:rank%d", saves + 1, bad);
  if (lm_fault_init(fault, world.rank, &err) != LM_OK) abort();
}

static lm_status prepare(const char *path)
{
  lm_run_lock *lock;
  lm_status s = lm_checkpoint_prepare(&world, path, 30, 0, &lock, &err);
  lm_run_lock_release(lock);
  return s;
}

static void folders(int bad)
{
  char elsewhere[80], under_file[160];
  snprintf(elsewhere, sizeof elsewhere, "%s-elsewhere", run);
  snprintf(under_file, sizeof under_file, "%s/run", file);
  if (bad > 0)
    tap_alone(lm_checkpoint_prepare, bad, prepare(world.rank == bad ? elsewhere : run), LM_EINVAL, &err,
              "is not the folder that rank 0 sees");
  else
    tap_alone(lm_checkpoint_prepare, 0, prepare(world.rank == 0 ? under_file : run), LM_EINVAL, &err,
              "Not a directory");
  tap_ok(prepare(run) == LM_OK, "then all can");
}

static void saves_of_a_run(int bad)
{
  lm_saver *s = new_saver(run);
  lm_saver *lost = new_saver(world.rank == 0 ? file : run); /* rank 0 makes and looks at the folder for all */
  if (bad == 0) {
    tap_alone(lm_saver_prepare, 0, lm_saver_prepare(lost, state, STATE_TENSORS, &err), LM_EIO, &err, file);
    tap_alone(lm_saver_begin, 0, lm_saver_begin(lost, 7, state, STATE_TENSORS, NAN, &err), LM_EINVAL, &err, file);
    tap_ok(!lm_saver_busy(lost, NULL), "nothing is under way");
  }
  lm_saver_free(lost);
  fail_next_write(bad);
  tap_ok(lm_saver_begin(s, 8, state, STATE_TENSORS, NAN, &err) == LM_OK, "begun: the disk is yet to fail");
  tap_alone(lm_saver_end, bad, lm_saver_end(s, &err), LM_EIO, &err, "Input/output error");
  saves++;
  tap_ok(lm_fault_init(NULL, 0, &err) == LM_OK && lm_saver_begin(s, 9, state, STATE_TENSORS, NAN, &err) == LM_OK &&
             lm_saver_end(s, &err) == LM_OK,
         "the next save is good");
  saves++;
  lm_saver_free(s);
}

static void state_files(int bad)
{
  lm_state_save *save;
  const lm_state_how how = {.background = true};
  lm_dtype usual = state[2].dtype;
  size_t count = state[2].count;
  const char *path = world.rank == 0 && bad == 0 ? nowhere : file;
  if (bad > 0 && world.rank == bad) state[2].dtype = LM_U64, state[2].count = 0;
  lm_status s = lm_state_write_begin(&save, &world, path, state, STATE_TENSORS, &how, &err);
  tap_alone(lm_state_write_begin, bad, s, LM_EINVAL, &err,
            bad == 0 ? "No such file" : "differs between rank 0 and rank");
  tap_ok(save == NULL, "nothing is under way");
  saves++;
  state[2].dtype = usual, state[2].count = count;
  fail_next_write(bad);
  if (lm_state_write_begin(&save, &world, file, state, STATE_TENSORS, &how, &err) != LM_OK) abort();
  tap_alone(lm_state_write_end, bad, lm_state_write_end(save, &err), LM_EIO, &err, "Input/output error");
  saves++;
  if (lm_fault_init(NULL, 0, &err) != LM_OK) abort();
}

static lm_status resume(void *context, lm_error *e)
{
  uint64_t step;
  bool found;
  lm_status s = lm_checkpoint_resume(&world, run, UINT64_MAX, context, STATE_TENSORS, &step, &found, e);
  LM_ASSERT(s != LM_OK || (found && step == 9));
  return s;
}

static void resuming(int bad)
{
  size_t usual = state[0].shape[1], count = state[0].count;
  if (world.rank == bad) state[0].shape[1]++, state[0].count = 0;
  tap_alone(lm_checkpoint_resume, bad, resume(state, &err), LM_EINVAL, &err, state[0].name);
  state[0].shape[1] = usual, state[0].count = count;
  tap_alone_no_memory(lm_checkpoint_resume, &world, bad, resume, state);
}

/* ---- memory ---- */

static lm_status save_once(void *context, lm_error *e)
{
  lm_saver *s = NULL;
  const lm_saver_policy policy = {.how.background = true};
  lm_status status = lm_agree(&world, lm_saver_new(&s, &world, run, &policy, e), e);
  if (status == LM_OK && context != NULL) status = lm_saver_prepare(s, state, STATE_TENSORS, e);
  if (status == LM_OK) status = lm_saver_begin(s, 9, state, STATE_TENSORS, NAN, e);
  if (status == LM_OK) status = lm_saver_end(s, e);
  lm_saver_free(s);
  return status;
}

static lm_status read_once(void *context, lm_error *e)
{
  return lm_state_read(&world, context, state, STATE_TENSORS, e);
}

static lm_status write_once(void *context, lm_error *e)
{
  return state_write(&world, context, state, STATE_TENSORS, e);
}

static lm_status prepare_once(void *context, lm_error *e)
{
  lm_run_lock *lock;
  lm_status s = lm_checkpoint_prepare(&world, context, 30, 0, &lock, e);
  lm_run_lock_release(lock);
  return s;
}

static void memory(int bad)
{
  tap_alone_no_memory(lm_state_write_end, &world, bad, write_once, file);
  tap_alone_no_memory(lm_state_read, &world, bad, read_once, file);
  tap_alone_no_memory(lm_saver_prepare, &world, bad, save_once, file);
  tap_alone_no_memory(lm_saver_begin, &world, bad, save_once, NULL);
  if (bad == 0) tap_alone_no_memory(lm_checkpoint_prepare, &world, bad, prepare_once, run);
}

int main(int argc, char **argv)
{
  tap_begin(&world, argc, argv);
  int id = (int)getpid();
  lm_bcast(&world, &id, sizeof id, 0);
  snprintf(run, sizeof run, "alone-%d", id);
  snprintf(file, sizeof file, "alone-%d.h5", id);
  snprintf(nowhere, sizeof nowhere, "%s/none/x.h5", run);
  state_new(state, &world, 1, 1);
  tap_ok(state_write(&world, file, state, STATE_TENSORS, &err) == LM_OK && prepare(run) == LM_OK, "a good start");
  saves++;
  for (int bad = 0; bad < world.size; bad++) {
    folders(bad);
    saves_of_a_run(bad);
    state_files(bad);
    resuming(bad);
  }
  for (int bad = 0; bad < world.size; bad++) memory(bad);
  state_free(state);
  lm_barrier(&world);
  char command[320];
  snprintf(command, sizeof command, "rm -rf %s %s %s-elsewhere", run, file, run);
  tap_ok(world.rank != 0 || system(command) == 0, "cleaned up");
  return tap_end();
}
