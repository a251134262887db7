/* tests/train/test_schedule.c - learning rates at the borders of the schedule. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "optim/schedule.h"
#include "tests/tap.h"

#include <math.h>

int main(int argc, char **argv)
{
  lm_comm comm;
  tap_begin(&comm, argc, argv);
  lm_schedule s = {.peak = 6e-4, .floor = 6e-5, .warmup = 100, .end = 1000};
  /* floor + (1 + cos(pi r)) / 2 (peak - floor) at r = 0, 1/4, 1/2, 3/4, 1, to seven digits by hand */
  static const struct {
    int64_t step;
    double lr;
  } known[] = {{100, 6e-4},  {325, 5.209188e-4}, {550, 3.3e-4}, {775, 1.390812e-4}, {1000, 6e-5},
               {1500, 6e-5}, {0, 6e-6},          {49, 3e-4},    {99, 6e-4}};
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    double lr = lm_schedule_lr(&s, known[i].step);
    tap_ok(fabs(lr - known[i].lr) < 1e-10, "lr(%lld) is %.6e", (long long)known[i].step, known[i].lr);
  }
  lm_schedule cold = {.peak = 1, .floor = 0, .warmup = 0, .end = 10},
              all = {.peak = 1, .floor = 0, .warmup = 10, .end = 10};
  tap_ok(lm_schedule_lr(&cold, 0) == 1, "no warm-up begins at the peak");
  tap_ok(lm_schedule_lr(&all, 9) == 1 && lm_schedule_lr(&all, 10) == 1 && lm_schedule_lr(&all, 11) == 0,
         "warm-up to the very end divides nothing by zero");
  return tap_end();
}
