/* kernels/cpu/rate.c - how fast this machine multiplies: the peak that a run is compared with. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/clock.h"
#include "base/memory.h"
#include "kernels/cpu/linear.h"
#include <omp.h>
#include <stdlib.h>

double lm_cpu_product_rate(lm_dtype t)
{
  /* Large enough to be limited by arithmetic, small enough to repeat on a slow core; more rows for more threads. */
  const size_t M = 256 * (size_t)omp_get_max_threads();
  const int N = 768, K = 768;
  const double flops = 2.0 * (double)M * N * K, limit = 0.25;
  enum {
    SETTLED = 24
  }; /* products in a row, some 30 ms on two fast cores, none of which is 1 % faster than the best */
  char *x;
  if (t == LM_F16 || (t == LM_BF16 && !lm_cpu_bf16_is_fast())) t = LM_F32; /* such products are computed in f32 */
  size_t size = lm_dtype_size(t), x_bytes = M * K * size, w_bytes = (size_t)N * K * size, y_bytes = M * N * size;

  /* Zeros take as long as other numbers. */
  if ((x = lm_reserve(x_bytes + w_bytes + y_bytes)) == NULL) return 0;
  memset(x, 0, x_bytes + w_bytes + y_bytes);
  double best = 0, start = lm_clock(), now = start;
  for (int same = 0; same < SETTLED && now - start < limit; same++) {
    double before = now;
    lm_linear_fwd_cpu(t, x + x_bytes + w_bytes, x, x + x_bytes, NULL, M, N, K);
    now = lm_clock();
    double rate = flops / (now - before);
    if (rate > 1.01 * best) same = 0;
    if (rate > best) best = rate;
  }
  free(x);
  return best;
}

enum { BYTES = 256 << 20, CHUNK = 1 << 20 }; /* more than caches hold */

/* A value that depends on every word, so that every word is read. */
static uint64_t read_all(const uint64_t *x, size_t n)
{
  uint64_t sum = 0;
#pragma omp parallel for simd schedule(static) reduction(+ : sum)
  for (size_t i = 0; i < n; i++) sum += x[i];
  return sum;
}

static void copy_half(char *x)
{
  const size_t half = BYTES / 2;
#pragma omp parallel for schedule(static)
  for (size_t i = 0; i < half; i += CHUNK) memcpy(x + half + i, x + i, CHUNK);
}

static volatile uint64_t sink; /* what is never looked at need not be read */

static double memory_rate(bool copy)
{
  char *x = lm_reserve(BYTES);
  if (x == NULL) return 0;
#pragma omp parallel for schedule(static)
  for (size_t i = 0; i < BYTES; i += CHUNK) memset(x + i, 1, CHUNK);
  double best = 0, start = lm_clock(), now = start;
  do {
    double before = now;
    if (copy)
      copy_half(x);
    else
      sink = read_all((const uint64_t *)(const void *)x, BYTES / sizeof(uint64_t));
    now = lm_clock();
    if (BYTES / (now - before) > best) best = BYTES / (now - before);
  } while (now - start < 0.2);
  free(x);
  return best;
}

double lm_cpu_read_rate(void)
{
  return memory_rate(false);
}

double lm_cpu_copy_rate(void)
{
  return memory_rate(true);
}
