/* tests/checkpoint/test_together.c - what all ranks write by MPI-IO has the bytes that each would write by itself. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/fault.h"
#include "base/file.h"
#include "hdf5/state_layout.h"
#include "tests/checkpoint/state.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static lm_comm world;
static lm_error err;
static char path[64], part[80];
static int saves;

static lm_status save_slices(const lm_state_slice *s, const lm_state_how *how, lm_error *e)
{
  lm_state_save *under_way;
  saves++;
  LM_TRY(lm_state_write_begin(&under_way, &world, path, s, STATE_TENSORS, how, e));
  return lm_state_write_end(under_way, e);
}

static lm_status save(unsigned cut, unsigned version, const lm_state_how *how)
{
  lm_state_slice s[STATE_TENSORS];
  state_new(s, &world, cut, version);
  lm_status status = save_slices(s, how, &err);
  state_free(s);
  lm_barrier(&world);
  return status;
}

static void same_file(void)
{
  bool good = true;
  lm_state_kept *kept = NULL;
  for (unsigned cut = 0; cut < 6; cut++)
    for (size_t align = 0; align <= 64; align += 64) { /* small enough for these tensors to be aligned */
      lm_buffer a = {0}, b = {0};
      good = save(cut, cut, &(lm_state_how){.align = align}) == LM_OK && lm_file_read(path, &a, &err) == LM_OK && good;
      lm_barrier(&world);
      good = save(cut, cut, &(lm_state_how){.together = true, .align = align, .kept = &kept}) == LM_OK && good;
      good = lm_file_read(path, &b, &err) == LM_OK && a.size == b.size && memcmp(a.data, b.data, a.size) == 0 && good;
      lm_buffer_free(&a);
      lm_buffer_free(&b);
      lm_barrier(&world);
    }
  lm_state_kept_free(kept);
  tap_ok(good, "the same file as that of each rank by itself, to the last byte, cut and aligned anyhow");
  tap_ok(lm_state_verify(path, &err) == LM_OK && !lm_file_exists(part), "it verifies, and nothing is left");
}

/* Pieces of different sizes, some ranks without any, many calls or few: byte i of the file is i % 251. */
static bool rounds(size_t most, int writers)
{
  enum { N = 100000 };
  static char bytes[N], back[N];
  lm_state_piece pieces[400];
  size_t n = 0, at = 0;
  for (size_t i = 0; i < N; i++) bytes[i] = (char)(i % 251);
  for (size_t k = 0; at < N; k++) {
    size_t length = 300 + k * 37 % 400;
    if (at + length > N) length = N - at;
    if ((int)(k % (size_t)writers) == world.rank)
      pieces[n++] = (lm_state_piece){.data = bytes + at, .bytes = length, .at = at};
    at += length;
  }
  if (world.rank == 0) close(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666));
  lm_barrier(&world);
  bool good = lm_state_write_together(&world, path, "cb_nodes=1", pieces, n, most, &err) == LM_OK;
  lm_barrier(&world);
  int fd = open(path, O_RDONLY);
  good = fd >= 0 && lm_pread_all(fd, path, back, N, 0, &err) == LM_OK && memcmp(bytes, back, N) == 0 && good;
  close(fd);
  lm_barrier(&world);
  return good;
}

static void transfers(void)
{
  tap_ok(rounds(1 << 30, world.size), "all of it in one call");
  tap_ok(rounds(5000, world.size), "split into many calls");
  tap_ok(rounds(1, world.size), "a piece in a call");
  tap_ok(rounds(5000, world.size > 1 ? world.size - 1 : 1), "a rank without anything");
  tap_ok(rounds(5000, 1), "one rank with all");
  tap_ok(lm_state_write_together(&world, "no/such/file", NULL, NULL, 0, 1, &err) == LM_EIO &&
             strncmp(err.text, "no/such/file: MPI-IO cannot open: ", 34) == 0,
         "no such folder: %s", err.text);
}

static void one_rank_fails(void)
{
  for (int bad = 0; bad < world.size; bad++) {
    char fault[64];
    snprintf(fault, sizeof fault, "fail_write@ckpt%d:rank%d", saves + 1, bad);
    bool asked = lm_fault_init(fault, world.rank, &err) == LM_OK;
    lm_status s = save(0, 2, &(lm_state_how){.together = true});
    tap_ok(asked && s == LM_EIO && err.rank == bad && strstr(err.text, part) != NULL && !lm_file_exists(part),
           "rank %d alone cannot write: all ranks hear it, and none waits", bad);
  }
  tap_ok(lm_fault_init(NULL, 0, &err) == LM_OK && lm_state_verify(path, &err) == LM_OK, "the older file stands");
}

static lm_status write_pieces(void *context, lm_error *e)
{
  const lm_state_piece piece = {.data = context, .bytes = 4, .at = 4 * (uint64_t)world.rank};
  return lm_state_write_together(&world, path, NULL, &piece, 1, 1 << 20, e);
}

static lm_state_slice state[STATE_TENSORS];

static lm_status save_together(void *context, lm_error *e)
{
  return save_slices(state, &(lm_state_how){.together = true, .kept = context}, e);
}

static void no_memory(void)
{
  lm_state_kept *kept = NULL;
  state_new(state, &world, 0, 2);
  for (int bad = 0; bad < world.size; bad++) {
    tap_alone_no_memory(lm_state_write_begin, &world, bad, save_together, &kept);
    tap_alone_no_memory(lm_state_write_together, &world, bad, write_pieces, "four");
  }
  lm_state_kept_free(kept);
  state_free(state);
}

static void hints(void)
{
  tap_ok(lm_state_check_hints(NULL, &err) == LM_OK && lm_state_check_hints("", &err) == LM_OK &&
             lm_state_check_hints("cb_nodes=4,striping_unit=1048576", &err) == LM_OK,
         "hints that are");
  static const char *const bad[] = {"cb_nodes", "=4", "a=1,,b=2", "a=1,b", ",a=1"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
    tap_ok(lm_state_check_hints(bad[i], &err) == LM_EINVAL && strstr(err.text, "key=value") != NULL, "'%s' is none",
           bad[i]);
}

int main(int argc, char **argv)
{
  tap_begin(&world, argc, argv);
  int id = (int)getpid();
  lm_bcast(&world, &id, sizeof id, 0);
  snprintf(path, sizeof path, "together-%d.h5", id);
  snprintf(part, sizeof part, ".%s.part", path);
  transfers();
  same_file();
  one_rank_fails();
  hints();
  no_memory();
  lm_barrier(&world);
  if (world.rank == 0) unlink(path);
  return tap_end();
}
