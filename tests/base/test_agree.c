/* tests/base/test_agree.c - one failing rank, and all ranks know which and why. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/tap.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A leak checker sees what the others did not give back. */
static void memory_of_one(const lm_comm *comm, int bad)
{
  lm_error err = {0};
  void *p = &err;
  tap_alone(lm_alloc_agreed, bad, lm_alloc_agreed(comm, &p, comm->rank == bad ? SIZE_MAX : 3, 8, "the numbers", &err),
            LM_ENOMEM, &err, "no memory for the numbers");
  tap_ok(p == NULL, "where one rank has none, none has");
  char *bytes;
  tap_ok(lm_alloc_agreed(comm, &bytes, 3, 1, "the bytes", &err) == LM_OK && bytes[0] + bytes[1] + bytes[2] == 0,
         "where all have, it is zeroed");
  free(bytes);
}

int main(int argc, char **argv)
{
  lm_comm comm;
  lm_error err = {0};
  tap_begin(&comm, argc, argv);

  tap_ok(lm_agree(&comm, LM_OK, &err) == LM_OK, "all fine: nobody fails");
  for (int bad = 0; bad < comm.size; bad++) {
    lm_status mine = comm.rank == bad ? lm_fail(&err, LM_EIO, "disk %d is full", bad) : LM_OK;
    lm_status all = lm_agree(&comm, mine, &err);
    char want[64];
    snprintf(want, sizeof want, "disk %d is full", bad);
    tap_alone(lm_agree, bad, all, LM_EIO, &err, want);
    tap_ok(strcmp(err.host, comm.host) == 0, "its host is named");
    memory_of_one(&comm, bad);
  }
  lm_status mine = lm_fail(&err, comm.rank == comm.size - 1 ? LM_ENOMEM : LM_EINVAL, "from %d", comm.rank);
  lm_status all = lm_agree(&comm, mine, &err);
  tap_ok(err.rank == 0 && all == (comm.size == 1 ? LM_ENOMEM : LM_EINVAL), "all fail: the lowest rank speaks");
  tap_ok(lm_agree(&comm, comm.rank == 0 ? LM_EINVAL : LM_OK, NULL) == LM_EINVAL, "no words are wanted: still agreed");

  float x[3] = {1, (float)comm.rank, 0};
  lm_allreduce_sum_f32(&comm, x, 3);
  tap_ok(x[0] == (float)comm.size && x[1] == (float)(comm.size * (comm.size - 1) / 2) && x[2] == 0, "sums over ranks");
  lm_tally tally = {.sum = {1, comm.rank}, .max = {-1, comm.rank}};
  lm_allreduce_tally(&comm, &tally);
  tap_ok(tally.sum[0] == comm.size && tally.sum[1] == comm.size * (comm.size - 1) / 2.0 && tally.max[0] == -1 &&
             tally.max[1] == comm.size - 1,
         "a tally adds its sums and keeps its maxima");
  return tap_end();
}
