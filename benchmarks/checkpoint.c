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

/* Let go of a file's pages; the host of a virtual machine may still have them. */
static void forget(const lm_comm *comm, const char *path)
{
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || fsync(fd) != 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0) exit(1);
  close(fd);
  lm_barrier(comm);
}

/* Reading this rank's share of a file once. */
static double plain_read(const lm_comm *comm, const char *path, char *to, size_t bytes)
{
  forget(comm, path);
  double begin = lm_clock();
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  off_t from = (off_t)(bytes * (size_t)comm->rank);
  for (size_t at = 0; at < bytes; at += 8 << 20)
    must(lm_pread_all(fd, path, to + at, bytes - at < 8 << 20 ? bytes - at : 8 << 20, from + (off_t)at, &err));
  close(fd);
  lm_barrier(comm);
  return lm_clock() - begin;
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
  lm_saver *savers[3];
  for (int i = 0; i < 3; i++) { /* between steps, in the background, by MPI-IO */
    const lm_saver_policy policy = {.how = {.background = i == 1, .together = i == 2, .align = 4096}, .keep = 1};
    must(lm_saver_new(&savers[i], &comm, "benchmark-run", &policy, &err));
    must(lm_saver_prepare(savers[i], slices, TENSORS, &err));
  }
  char *copy;
  must(lm_alloc(&copy, count * TENSORS, sizeof *data, "a copy", &err));
  double plain = 1e9, sync = 1e9, async = 1e9, stall = 1e9, copying = 1e9, load = 1e9, read = 1e9, together = 1e9, all;
  char path[4096];
  uint64_t step = 0, loaded;
  bool found;
  for (int i = 0; i < 4; i++) { /* alternating: the machine changes */
    plain = least(plain, plain_write(&comm, (const char *)data, count * TENSORS * sizeof *data));
    save(&comm, savers[0], ++step, slices, &all);
    sync = least(sync, all);
    stall = least(stall, save(&comm, savers[1], ++step, slices, &all));
    async = least(async, all);
    save(&comm, savers[2], ++step, slices, &all);
    together = least(together, all);
    lm_barrier(&comm);
    double at = lm_clock();
    memcpy(copy, data, count * TENSORS * sizeof *data);
    lm_barrier(&comm);
    copying = least(copying, lm_clock() - at);
    must(lm_checkpoint_file(path, "benchmark-run", step, &err));
    read = least(read, plain_read(&comm, path, copy, count * TENSORS * sizeof *data));
    forget(&comm, path);
    at = lm_clock();
    must(lm_checkpoint_resume(&comm, "benchmark-run", UINT64_MAX, slices, TENSORS, &loaded, &found, &err));
    load = least(load, lm_clock() - at);
  }
  double megabytes = (double)each * TENSORS * sizeof *data * 1e-6;
  if (comm.rank == 0)
    printf("%d ranks, %.0f MB in %d tensors, the best of 4, by turns:\n"
           "plain write + fsync  %6.0f MB/s\nsave                 %6.0f MB/s  %.2f of plain\n"
           "save by MPI-IO       %6.0f MB/s\nsave in background   %6.0f MB/s\n  of which a stall of %.3f s; a copy in "
           "memory %.3f s; 5 %% of a save "
           "%.3f s\n"
           "plain read           %6.0f MB/s\nload                 %6.0f MB/s  %.2f times the time of a plain read\n",
           comm.size, megabytes, TENSORS, megabytes / plain, megabytes / sync, plain / sync, megabytes / together,
           megabytes / async, stall, copying, 0.05 * sync, megabytes / read, megabytes / load, load / read);
  for (int i = 0; i < 3; i++) lm_saver_free(savers[i]);
  if (comm.rank == 0 && lm_checkpoint_file(path, "benchmark-run", step, &err) == LM_OK) unlink(path);
  if (comm.rank == 0) rmdir("benchmark-run/checkpoints"), rmdir("benchmark-run");
  free(copy);
  free(data);
  lm_comm_end(&comm);
  return 0;
}
