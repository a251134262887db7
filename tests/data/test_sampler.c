/* tests/data/test_sampler.c - every epoch shows every window once, in an order of its own. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "batch/sampler.h"
#include "tests/tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_bijection(uint64_t seed, uint64_t windows, uint64_t epoch)
{
  bool *seen = calloc(windows, 1), good = true;
  for (uint64_t i = 0; i < windows && good; i++) {
    uint64_t w = lm_sample_window(seed, 0, windows, epoch * windows + i);
    good = w < windows && !seen[w];
    if (good) seen[w] = true;
  }
  free(seen);
  return good;
}

static void check_bijections(void)
{
  static const uint64_t some[] = {1,  2,  3,  4,   5,   6,   7,    8,    9,    10,   15,    16,    17,
                                  31, 63, 64, 255, 256, 257, 1000, 4095, 4096, 4097, 65537, 100000};
  for (size_t i = 0; i < sizeof some / sizeof some[0]; i++)
    tap_ok(is_bijection(7, some[i], 0) && is_bijection(7, some[i], 3) && is_bijection(UINT64_MAX, some[i], 1),
           "each of %d windows once an epoch", (int)some[i]);
  tap_ok(is_bijection(7, 10, UINT64_C(1) << 40) && is_bijection(7, 1000, UINT64_C(1) << 53),
         "and so beyond position 2^40");
}

/* Chi-square of how often each window stands first, over many epochs: about W - 1, standard deviation sqrt(2 (W - 1)).
 */
static double chi_square_of_first(uint64_t windows, int epochs)
{
  double *hits = calloc(windows, sizeof *hits), expected = (double)epochs / (double)windows, chi = 0;
  for (int e = 0; e < epochs; e++) hits[lm_sample_window(5, 0, windows, (uint64_t)e * windows)]++;
  for (uint64_t w = 0; w < windows; w++) chi += (hits[w] - expected) * (hits[w] - expected) / expected;
  free(hits);
  return chi;
}

/* The 24 orders of 4 windows, told apart as base-4 numbers, are about equally likely. */
static double chi_square_of_orders(int epochs)
{
  static double hits[256];
  double expected = epochs / 24.0, chi = 0;
  for (int e = 0; e < epochs; e++) {
    unsigned order = 0;
    for (unsigned i = 0; i < 4; i++) order = order * 4 + (unsigned)lm_sample_window(5, 0, 4, (uint64_t)e * 4 + i);
    hits[order]++;
  }
  for (int o = 0; o < 256; o++)
    if (hits[o] > 0) chi += (hits[o] - expected) * (hits[o] - expected) / expected;
  return chi;
}

/* Correlation between the place in the epoch and the window that stands there; of order 1/sqrt(W) for a random order.
 */
static double correlation(uint64_t windows)
{
  double mean = (double)(windows - 1) / 2, sum = 0, variance = 0;
  for (uint64_t i = 0; i < windows; i++) {
    double a = (double)i - mean, b = (double)lm_sample_window(3, 0, windows, i) - mean;
    sum += a * b;
    variance += a * a;
  }
  return sum / variance;
}

static void check_shuffled(void)
{
  tap_ok(fabs(chi_square_of_first(10, 10000) - 9) < 6 * sqrt(2 * 9), "10 windows: each is first about equally often");
  tap_ok(fabs(chi_square_of_first(1000, 100000) - 999) < 6 * sqrt(2 * 999.0), "1000 windows: likewise");
  tap_ok(fabs(chi_square_of_orders(24000) - 23) < 6 * sqrt(2 * 23), "4 windows: 24 orders, about equally often");
  tap_ok(fabs(correlation(100000)) < 6 / sqrt(100000.0), "the order is not that of the file");
  int same = 0, steps = 0;
  for (uint64_t i = 0; i < 1000; i++) {
    same += lm_sample_window(3, 0, 1000, i) == lm_sample_window(3, 0, 1000, 1000 + i);
    steps += lm_sample_window(3, 0, 1000, i + 1) == lm_sample_window(3, 0, 1000, i) + 1;
  }
  tap_ok(same < 10, "two epochs agree in %d of 1000 places; 1 is expected", same);
  tap_ok(steps < 10, "%d of 1000 windows follow their neighbour; 1 is expected", steps);
  same = 0;
  for (uint64_t i = 0; i < 1000; i++) same += lm_sample_window(3, 0, 1000, i) == lm_sample_window(4, 0, 1000, i);
  tap_ok(same < 10, "two seeds agree in %d of 1000 places", same);
}

static void check_wide(void)
{
  static const uint64_t wide[] = {UINT64_C(1) << 31, (UINT64_C(1) << 31) + 100, UINT64_C(3000000000000), UINT64_MAX};
  for (size_t k = 0; k < sizeof wide / sizeof wide[0]; k++) {
    uint64_t w = wide[k], upper = 0;
    bool inside = true;
    for (uint64_t i = 0; i < 2000; i++) {
      uint64_t x = lm_sample_window(1, 0, w, w - 1 - i);
      inside = inside && x < w;
      upper += x >= w / 2;
    }
    tap_ok(inside, "%g windows: all inside", (double)w);
    tap_ok(upper > 800 && upper < 1200, "%g windows: both halves alike (%d of 2000 above)", (double)w, (int)upper);
  }
}

/* 10 windows, global batch 4, two ranks, 12 steps: no window comes back before all were shown. */
static void check_epoch_border(void)
{
  uint64_t shown[48];
  bool each_once = true;
  for (uint64_t step = 0; step < 12; step++)
    for (int rank = 0; rank < 2; rank++) {
      uint64_t first, count;
      lm_sample_slice(4, rank, 2, &first, &count);
      for (uint64_t i = first; i < first + count; i++) shown[step * 4 + i] = lm_sample_window(11, 0, 10, step * 4 + i);
    }
  for (int epoch = 0; epoch < 4; epoch++) {
    unsigned seen = 0;
    for (int i = 0; i < 10; i++) seen |= 1u << shown[epoch * 10 + i];
    each_once = each_once && seen == 0x3ff;
  }
  tap_ok(each_once, "an epoch ends inside a batch: all 10 windows are shown before one comes back");
  tap_ok(memcmp(shown, shown + 10, 10 * sizeof *shown) != 0, "and the next epoch has another order");
}

static void check_slices(void)
{
  bool good = true;
  for (uint64_t batch = 0; batch < 20; batch++)
    for (int size = 1; size < 9; size++) {
      uint64_t next = 0, first, count, least = UINT64_MAX, most = 0;
      for (int rank = 0; rank < size; rank++) {
        lm_sample_slice(batch, rank, size, &first, &count);
        good = good && first == next;
        next += count;
        least = count < least ? count : least;
        most = count > most ? count : most;
      }
      good = good && next == batch && most - least <= 1;
    }
  tap_ok(good, "slices lie side by side, cover the batch, and differ by at most one");
}

int main(int argc, char **argv)
{
  lm_comm comm;
  tap_begin(&comm, argc, argv);
  check_bijections();
  check_shuffled();
  check_wide();
  check_epoch_border();
  check_slices();
  return tap_end();
}
