/* tests/checkpoint/test_damage.c - any byte changed, any byte missing: found, said in one line, on all ranks. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/file.h"
#include "tests/checkpoint/state.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static lm_comm world, self;
static lm_error err;
static char path[64];
static lm_state_slice all[STATE_TENSORS]; /* of one rank that reads everything */
static lm_buffer good;                    /* the undamaged file */

static bool replace(const char *bytes, size_t n)
{
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  bool done = fd >= 0 && lm_pwrite_all(fd, path, bytes, n, 0, &err) == LM_OK;
  if (fd >= 0) close(fd);
  return done;
}

static bool change(size_t at, const char *bytes, size_t n)
{
  int fd = open(path, O_WRONLY);
  bool done = fd >= 0 && lm_pwrite_all(fd, path, bytes, n, (off_t)at, &err) == LM_OK;
  if (fd >= 0) close(fd);
  return done;
}

static bool one_line(void)
{
  return strncmp(err.text, path, strlen(path)) == 0 && strchr(err.text, '\n') == NULL;
}

/* Both ways of looking at the file say that it is damaged; in turn, because there are many bytes. */
static bool noticed(void)
{
  static unsigned turn;
  lm_status s = turn++ % 2 == 0 ? lm_state_verify(path, &err) : lm_state_read(&self, path, all, STATE_TENSORS, &err);
  return s == LM_EDAMAGED && one_line();
}

static void every_byte(void)
{
  size_t missed = 0;
  for (size_t i = 0; i < good.size; i++) {
    char flipped = (char)(good.data[i] ^ (1 << i % 8));
    bool seen = change(i, &flipped, 1) && noticed();
    if (!seen && missed++ == 0) fprintf(stderr, "# byte %zu of %zu: %s\n", i, good.size, err.text);
    if (!change(i, &good.data[i], 1)) return;
  }
  tap_ok(missed == 0, "a flipped bit is noticed in each of %zu bytes: %zu were not", good.size, missed);
  tap_ok(lm_state_verify(path, &err) == LM_OK, "and the file as it was is good");
}

static void lengths(void)
{
  size_t missed = 0;
  for (size_t n = 0; n < good.size; n += n < 1024 ? 1 : 37) missed += !(replace(good.data, n) && noticed());
  tap_ok(missed == 0, "truncation is noticed at every length: %zu were not", missed);
  missed = 0;
  char *longer = calloc(1, good.size + 8192);
  memcpy(longer, good.data, good.size);
  for (size_t more = 1; more <= 8192; more *= 2) missed += !(replace(longer, good.size + more) && noticed());
  free(longer);
  tap_ok(missed == 0, "so are bytes behind the end: %zu were not", missed);
}

/* A page that never reached the disk. */
static void holes(void)
{
  static const char zeros[512];
  size_t missed = 0;
  for (size_t i = 0; i < good.size; i += sizeof zeros) {
    size_t n = good.size - i < sizeof zeros ? good.size - i : sizeof zeros;
    if (memcmp(good.data + i, zeros, n) == 0) continue;
    missed += !(replace(good.data, good.size) && change(i, zeros, n) && noticed());
  }
  tap_ok(missed == 0, "a block of zeros is noticed anywhere: %zu were not", missed);
}

static void strangers(void)
{
  tap_ok(replace("# a config\n", 11) && noticed(), "a text is no state file");
  unlink(path);
  tap_ok(lm_state_verify(path, &err) == LM_EINVAL && strstr(err.text, "No such file") != NULL, "a missing file");
  tap_ok(lm_state_verify("/", &err) == LM_EINVAL, "a folder");
}

/* Two tensors of one rank, [n0] and [n1], both damaged: what is told is what one thread would meet first, whichever of
 * several threads is the first to fail. */
static bool first_is_named(size_t n0, size_t n1)
{
  lm_state_slice s[2] = {{.name = "/model/first", .count = n0}, {.name = "/model/second", .count = n1}};
  bool right = true;
  for (int i = 0; i < 2; i++) {
    s[i].dtype = LM_F32;
    s[i].ndim = 1;
    s[i].shape[0] = s[i].count;
    float *x = s[i].data = calloc(s[i].count, sizeof *x);
    for (size_t k = 0; k < s[i].count; k++) x[k] = (float)(2 * k + (size_t)i + 1);
  }
  right = state_write(&self, path, s, 2, &err) == LM_OK && lm_state_read(&self, path, s, 2, &err) == LM_OK &&
          ((float *)s[0].data)[n0 - 1] == (float)(2 * n0 - 1) && ((float *)s[1].data)[n1 - 1] == (float)(2 * n1);
  lm_buffer file = {0};
  right = right && lm_file_read(path, &file, &err) == LM_OK;
  for (int i = 0; i < 2 && right; i++) {
    char *at = memmem(file.data, file.size, s[i].data, 16);
    char flipped = at != NULL ? (char)(at[1] ^ 4) : 0;
    right = at != NULL && change((size_t)(at - file.data), &flipped, 1);
  }
  right = right && lm_state_read(&self, path, s, 2, &err) == LM_EDAMAGED && one_line() && strstr(err.text, s[0].name);
  lm_buffer_free(&file);
  for (int i = 0; i < 2; i++) free(s[i].data);
  return right;
}

static void by_threads(void)
{
  int wrong = 0;
  omp_set_num_threads(4);
  for (int round = 0; round < 10; round++) wrong += !first_is_named(1 << 21, 16) + !first_is_named(1 << 20, 1 << 21);
  omp_set_num_threads(1);
  tap_ok(wrong == 0, "4 threads read what was written, and name the first of two damaged tensors: %d times not", wrong);
}

/* One rank needs the damaged slab; all must say so, alike. */
static void on_all_ranks(void)
{
  lm_state_slice s[STATE_TENSORS];
  state_new(s, &world, 0, 7);
  lm_status status = state_write(&world, path, s, STATE_TENSORS, &err);
  tap_ok(status == LM_OK, "all ranks write");
  for (int victim = 0; victim < world.size; victim++) {
    /* The bytes of the victim's slice are somewhere in the file, and nowhere else. */
    const lm_state_slice *v = &s[5];
    float *bytes = malloc(210 * sizeof(float));
    uint64_t range[2] = {v->begin, v->count};
    if (world.rank == victim) memcpy(bytes, v->data, v->count * sizeof(float));
    lm_bcast(&world, range, sizeof range, victim);
    lm_bcast(&world, bytes, range[1] * sizeof(float), victim);
    lm_buffer file = {0};
    bool damaged = false;
    if (world.rank == 0 && lm_file_read(path, &file, &err) == LM_OK) {
      char *at = memmem(file.data, file.size, bytes, range[1] * sizeof(float));
      if (at != NULL) at[1] ^= 4;
      damaged = at != NULL && replace(file.data, file.size);
    }
    lm_barrier(&world);
    status = lm_state_read(&world, path, s, STATE_TENSORS, &err);
    tap_ok(status == LM_EDAMAGED && strstr(err.text, s[5].name) && err.rank == victim,
           "damage in what rank %d reads: every rank names the tensor and the rank", victim);
    tap_ok(damaged || world.rank != 0, "it was damaged");
    if (world.rank == 0) {
      char *at = damaged ? memmem(file.data, file.size, (char *)bytes + 2, range[1] * sizeof(float) - 2) : NULL;
      if (at != NULL) at[-1] ^= 4;
      damaged = at != NULL && replace(file.data, file.size);
    }
    lm_barrier(&world);
    lm_buffer_free(&file);
    free(bytes);
  }
  tap_ok(lm_state_read(&world, path, s, STATE_TENSORS, &err) == LM_OK && state_is(s, 7), "mended, it is read");
  state_free(s);
  lm_barrier(&world);
  if (world.rank == 0) unlink(path);
}

int main(int argc, char **argv)
{
  tap_begin(&world, argc, argv);
  int id = (int)getpid();
  lm_bcast(&world, &id, sizeof id, 0);
  snprintf(path, sizeof path, "damage-%d.h5", id);
  lm_comm_self(&self);
  if (world.size > 1) {
    on_all_ranks();
    return tap_end();
  }
  state_new(all, &self, 0, 3);
  tap_ok(state_write(&self, path, all, STATE_TENSORS, &err) == LM_OK && lm_file_read(path, &good, &err) == LM_OK,
         "a good file");
  every_byte();
  lengths();
  holes();
  by_threads();
  strangers();
  state_free(all);
  lm_buffer_free(&good);
  return tap_end();
}
