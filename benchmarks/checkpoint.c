/* benchmarks/checkpoint.c - saves and loads of a state, against a plain write with fsync of as many bytes. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/checkpoint.h"
#include "base/clock.h"
#include "base/file.h"
#include "checkpoint/saver.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* GPT-2 124M: weights and two moments in f32, 148 tensors of each. CHECKPOINT_MB makes it smaller. */
enum { TENSORS = 444 };

static lm_error err;

static void must(lm_status s)
{
  if (s == LM_OK) return;
  fprintf(stderr, "%s\n", err.text);
  exit(1);
}

/* What dd bs=8M conv=fsync does, of this rank's share. */
static double plain_write(const lm_comm *comm, const char *data, size_t bytes)
{
  char path[64];
  snprintf(path, sizeof path, "benchmark-run/plain-%d", comm->rank);
  lm_barrier(comm);
  double begin = lm_clock();
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  for (size_t at = 0; at < bytes; at += 8 << 20)
    must(lm_pwrite_all(fd, path, data + at, bytes - at < 8 << 20 ? bytes - at : 8 << 20, (off_t)at, &err));
  if (fsync(fd) != 0 || close(fd) != 0) exit(1);
  lm_barrier(comm);
  double seconds = lm_clock() - begin;
  unlink(path);
  return seconds;
}

static double least(double a, double b)
{
  return a < b ? a : b;
}

/* Seconds that the caller loses; with a background thread all others pass while nothing else is to be done. */
static double save(const lm_comm *comm, lm_saver *s, uint64_t step, const lm_state_slice *slices, double *all)
{
  lm_barrier(comm);
  double begin = lm_clock();
  must(lm_saver_begin(s, step, slices, TENSORS, NAN, &err));
  double begun = lm_clock();
  for (uint64_t done = 0; done < (uint64_t)comm->size;) {
    usleep(2000);
    done = lm_saver_done(s);
    lm_allreduce_sum_u64(comm, &done, 1);
  }
  double written = lm_clock();
  must(lm_saver_end(s, &err));
  double end = lm_clock();
  *all = end - begin;
  return begun - begin + (end - written);
}

int main(int argc, char **argv)
{
  lm_comm comm;
  must(lm_comm_world(&comm, &argc, &argv, &err));
  size_t mb = getenv("CHECKPOINT_MB") ? (size_t)atoll(getenv("CHECKPOINT_MB")) : 1493;
  size_t each = (mb << 20) / TENSORS / sizeof(float), share = each / (size_t)comm.size;
  size_t begin = share * (size_t)comm.rank, count = comm.rank + 1 == comm.size ? each - begin : share;
  static lm_state_slice slices[TENSORS];
  float *data;
  must(lm_alloc(&data, count * TENSORS, sizeof *data, "the state", &err));
  for (size_t i = 0; i < count * TENSORS; i++) data[i] = (float)i;
  for (int t = 0; t < TENSORS; t++) {
    slices[t] = (lm_state_slice){
        .dtype = LM_F32, .ndim = 1, .shape = {each}, .begin = begin, .count = count, .data = data + (size_t)t * count};
    snprintf(slices[t].name, sizeof slices[t].name, "/model/%d", t);
  }
  must(lm_folder_make("benchmark-run/checkpoints", &err));
  lm_saver *savers[2];
  for (int async = 0; async < 2; async++) {
    const lm_saver_policy policy = {.how = {.background = async}, .keep = 1};
    must(lm_saver_new(&savers[async], &comm, "benchmark-run", &policy, &err));
    must(lm_saver_prepare(savers[async], slices, TENSORS, &err));
  }
  char *copy;
  must(lm_alloc(&copy, count * TENSORS, sizeof *data, "a copy", &err));
  double plain = 1e9, sync = 1e9, async = 1e9, stall = 1e9, copying = 1e9, load = 1e9, all;
  uint64_t step = 0, loaded;
  bool found;
  for (int i = 0; i < 4; i++) { /* alternating: the machine changes */
    plain = least(plain, plain_write(&comm, (const char *)data, count * TENSORS * sizeof *data));
    save(&comm, savers[0], ++step, slices, &all);
    sync = least(sync, all);
    stall = least(stall, save(&comm, savers[1], ++step, slices, &all));
    async = least(async, all);
    double at = lm_clock();
    memcpy(copy, data, count * TENSORS * sizeof *data);
    copying = least(copying, lm_clock() - at);
    at = lm_clock();
    must(lm_checkpoint_resume(&comm, "benchmark-run", UINT64_MAX, slices, TENSORS, &loaded, &found, &err));
    load = least(load, lm_clock() - at);
  }
  double megabytes = (double)each * TENSORS * sizeof *data * 1e-6;
  if (comm.rank == 0)
    printf("%d ranks, %.0f MB in %d tensors, the best of 4, by turns:\n"
           "plain write + fsync  %6.0f MB/s\nsave                 %6.0f MB/s  %.2f of plain\n"
           "save in background   %6.0f MB/s\n  of which a stall of %.3f s; a copy in memory %.3f s; 5 %% of a save "
           "%.3f s\n"
           "load                 %6.0f MB/s (page cache)\n",
           comm.size, megabytes, TENSORS, megabytes / plain, megabytes / sync, plain / sync, megabytes / async, stall,
           copying, 0.05 * sync, megabytes / load);
  for (int i = 0; i < 2; i++) lm_saver_free(savers[i]);
  char path[4096];
  if (comm.rank == 0 && lm_checkpoint_file(path, "benchmark-run", step, &err) == LM_OK) unlink(path);
  if (comm.rank == 0) rmdir("benchmark-run/checkpoints"), rmdir("benchmark-run");
  free(copy);
  free(data);
  lm_comm_end(&comm);
  return 0;
}
