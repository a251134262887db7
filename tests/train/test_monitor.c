/* tests/train/test_monitor.c - the z-score of a loss, by hand. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/tap.h"
#include "train/monitor.h"

#include <math.h>
#include <string.h>

static void add(lm_monitor *m, const double *losses, size_t n)
{
  for (size_t i = 0; i < n; i++) lm_monitor_add(m, losses[i]);
}

int main(int argc, char **argv)
{
  static lm_monitor m, after;
  double mean;
  lm_comm comm;
  tap_begin(&comm, argc, argv);

  add(&m, (const double[]){2, 4, 4}, 3);
  tap_ok(isnan(lm_monitor_z(&m, 4, 1e30, &mean)) && isnan(mean), "3 losses say nothing of a window of 4");
  add(&m, (const double[]){6}, 1);
  /* mean 4, squares 4 + 0 + 0 + 4, over n - 1 = 3 */
  tap_near(lm_monitor_z(&m, 4, 10, &mean), 6 / sqrt(8.0 / 3), 1e-12, "2 4 4 6, then 10");
  tap_near(mean, 4, 1e-12, "the mean of the four");
  tap_near(lm_monitor_z(&m, 4, -2, &mean), -6 / sqrt(8.0 / 3), 1e-12, "a loss that falls is below 0");
  tap_near(lm_monitor_z(&m, 2, 10, &mean), 5 / sqrt(2.0), 1e-12, "the last two only: 4 6, then 10");

  memset(&m, 0, sizeof m);
  add(&m, (const double[]){5, 5, 5}, 3);
  tap_near(lm_monitor_z(&m, 3, 5.01, &mean), 2, 1e-9, "losses all alike: the deviation is a thousandth of the mean");
  tap_ok(isnan(lm_monitor_z(&m, 3, NAN, &mean)), "no number, no score");

  /* The circle goes round; what has left it counts for nothing. */
  for (int i = 0; i < LM_MONITOR_MOST; i++) lm_monitor_add(&m, i % 2 ? 3 : 1);
  tap_near(lm_monitor_z(&m, LM_MONITOR_MOST, 2, &mean), 0, 1e-12, "a full circle: mean 2");
  lm_monitor_add(&m, 100);
  tap_near(lm_monitor_z(&m, 2, 0, &mean), (0 - 51.5) / (97 / sqrt(2.0)), 1e-12, "3 100: over the end of the circle");

  after = m;
  tap_ok(lm_monitor_z(&after, 1000, 7, &mean) == lm_monitor_z(&m, 1000, 7, &mean), "a copy goes on with the same bits");
  return tap_end();
}
