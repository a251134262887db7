/* tests/checkpoint/test_failures.c - one rank alone fails to save or to load: all ranks say so, and no file is lost. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/fault.h"
#include "base/file.h"
#include "tests/checkpoint/state.h"
#include "tests/tap.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static lm_comm world;
static lm_error err;
static char folder[64], path[128], part[128];
static int saves; /* of this process, as MPILM_FAULT counts them */

static lm_status write_state(lm_state_slice *s)
{
  saves++;
  return state_write(&world, path, s, STATE_TENSORS, &err);
}

/* Is the file what version 1 was, and nothing beside it? */
static bool old_file_stands(void)
{
  lm_state_slice s[STATE_TENSORS];
  lm_error ignored;
  state_new(s, &world, 1, 1);
  state_clear(s);
  bool good = lm_state_read(&world, path, s, STATE_TENSORS, &ignored) == LM_OK && state_is(s, 1);
  state_free(s);
  return good && !lm_file_exists(part);
}

static bool same_everywhere(const lm_error *e)
{
  lm_error first = *e;
  lm_bcast(&world, &first, sizeof first, 0);
  return strcmp(first.text, e->text) == 0 && first.rank == e->rank && first.status == e->status;
}

static void one_write_fails(void)
{
  for (int bad = 0; bad < world.size; bad++) {
    lm_state_slice s[STATE_TENSORS];
    char fault[64];
    snprintf(fault, sizeof fault, "fail_write@ckpt%d:rank%d", saves + 1, bad);
    bool asked = lm_fault_init(fault, world.rank, &err) == LM_OK;
    state_new(s, &world, (unsigned)bad, 2);
    lm_status status = write_state(s);
    tap_alone(lm_state_write_end, bad, status, LM_EIO, &err, "Input/output error");
    tap_ok(asked && strstr(err.text, part) != NULL, "with the path");
    tap_ok(old_file_stands(), "the older file stands, the temporary one is gone");
    state_free(s);
  }
  tap_ok(lm_fault_init(NULL, 0, &err) == LM_OK, "no more faults");
}

/* Mistakes of ours that would write nonsense. */
static void lists_that_differ(void)
{
  lm_state_slice s[STATE_TENSORS];
  for (int bad = 0; bad < world.size; bad++) {
    state_new(s, &world, 0, 2);
    if (world.rank == bad) s[2].dtype = LM_U64, s[2].count = 0;
    lm_status status = world.size > 1 ? write_state(s) : LM_EINVAL;
    tap_ok(status == LM_EINVAL && (world.size == 1 || strstr(err.text, "differs between rank 0 and rank")),
           "rank %d has another list", bad);
    state_free(s);
    state_new(s, &world, 0, 2);
    int who = bad; /* leave out an element of a tensor that the rank has some of */
    if (world.rank == who) s[5].count--;
    status = write_state(s);
    tap_ok(status == LM_EINVAL && strstr(err.text, s[5].name) && same_everywhere(&err), "rank %d leaves out an element",
           bad);
    state_free(s);
  }
  tap_ok(old_file_stands(), "the older file stands, the temporary one is gone");
}

static void nowhere_to_write(void)
{
  char keep[sizeof path];
  lm_state_slice s[STATE_TENSORS];
  state_new(s, &world, 0, 2);
  memcpy(keep, path, sizeof path);
  snprintf(path, sizeof path, "%s/none/x.h5", folder);
  tap_ok(write_state(s) == LM_EINVAL && strstr(err.text, "No such file") && same_everywhere(&err), "no such folder");
  snprintf(path, sizeof path, "%s/", folder);
  tap_ok(write_state(s) == LM_EINVAL && same_everywhere(&err), "a folder is no file");
  memcpy(path, keep, sizeof path);
  state_free(s);
}

static lm_status read_one(lm_state_slice *s, size_t n)
{
  return lm_state_read(&world, path, s, n, &err);
}

static void what_does_not_fit(void)
{
  for (int bad = 0; bad < world.size; bad++) {
    lm_state_slice s[STATE_TENSORS];
    state_new(s, &world, 0, 1);
    if (world.rank == bad) s[0].shape[1] = 8, s[0].count = 0;
    tap_alone(lm_state_read, bad, read_one(s, STATE_TENSORS), LM_EINVAL, &err, s[0].name);
    tap_ok(strstr(err.text, "[61, 7]") && strstr(err.text, "[61, 8]"), "another shape: both are shown");
    s[0].shape[1] = 7;
    if (world.rank == bad) s[7].dtype = LM_F32, s[7].count = 0;
    tap_ok(read_one(s, STATE_TENSORS) == LM_EINVAL && strstr(err.text, "u64") && strstr(err.text, "f32") &&
               same_everywhere(&err),
           "rank %d wants another type", bad);
    s[7].dtype = LM_U64;
    if (world.rank == bad) strcpy(s[3].name, "/model/none");
    tap_ok(read_one(s, STATE_TENSORS) == LM_EINVAL && strstr(err.text, "has no /model/none") && same_everywhere(&err),
           "rank %d wants what is not there", bad);
    state_free(s);
  }
}

int main(int argc, char **argv)
{
  lm_state_slice s[STATE_TENSORS];
  tap_begin(&world, argc, argv);
  int id = (int)getpid();
  lm_bcast(&world, &id, sizeof id, 0);
  snprintf(folder, sizeof folder, "failures-%d", id);
  snprintf(path, sizeof path, "%s/s.h5", folder);
  snprintf(part, sizeof part, "%s/.s.h5.part", folder);
  if (world.rank == 0) mkdir(folder, 0777);
  lm_barrier(&world);
  state_new(s, &world, 2, 1);
  tap_ok(write_state(s) == LM_OK && old_file_stands(), "an older file");
  state_free(s);
  one_write_fails();
  lists_that_differ();
  nowhere_to_write();
  what_does_not_fit();
  lm_barrier(&world);
  if (world.rank == 0) unlink(path), rmdir(folder);
  return tap_end();
}
