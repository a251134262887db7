/* tests/slurm/test_preflight.c - which of the ranks is slow. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/tap.h"
#include "train/preflight.h"

int main(int argc, char **argv)
{
  lm_comm comm;
  double room[8];
  tap_begin(&comm, argc, argv);
  tap_ok(lm_preflight_slow((double[]){10, 11, 9, 4, 10}, 5, 0.5, room) == 3, "4 is below half of 10");
  tap_ok(lm_preflight_slow((double[]){10, 11, 9, 6, 10}, 5, 0.5, room) == 5, "6 is not");
  tap_ok(lm_preflight_slow((double[]){0, 11, 9, 10, 2}, 5, 0.5, room) == 4, "0 is not measured");
  tap_ok(lm_preflight_slow((double[]){0, 0}, 2, 0.5, room) == 2, "nothing measured");
  tap_ok(lm_preflight_slow((double[]){1, 10}, 2, 0, room) == 2, "no share asked for");
  tap_ok(lm_preflight_slow((double[]){1, 10}, 2, 0.5, room) == 0, "one of two");
  return tap_end();
}
