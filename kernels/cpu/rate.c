/* kernels/cpu/rate.c - how fast this machine multiplies: the peak that a run is compared with. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/clock.h"
#include "kernels/cpu/linear.h"
#include <omp.h>
#include <stdlib.h>

double lm_cpu_product_rate(lm_dtype t)
{
  /* Large enough to be limited by arithmetic, small enough to repeat on a slow core; more rows for more threads. */
  const size_t M = 256 * (size_t)omp_get_max_threads();
  const int N = 768, K = 768;
  const double flops = 2.0 * (double)M * N * K, limit = 0.25;
  char *x = NULL;
  if (t == LM_F16 || (t == LM_BF16 && !lm_cpu_bf16_is_fast())) t = LM_F32; /* such products are computed in f32 */
  size_t size = lm_dtype_size(t), x_bytes = M * K * size, w_bytes = (size_t)N * K * size, y_bytes = M * N * size;

  /* Zeros take as long as other numbers. */
  if (posix_memalign((void **)&x, 64, x_bytes + w_bytes + y_bytes) != 0) return 0;
  memset(x, 0, x_bytes + w_bytes + y_bytes);
  double best = 0, start = lm_clock(), now = start;
  do {
    double before = now;
    lm_linear_fwd_cpu(t, x + x_bytes + w_bytes, x, x + x_bytes, NULL, M, N, K);
    now = lm_clock();
    if (flops / (now - before) > best) best = flops / (now - before);
  } while (now - start < limit);
  free(x);
  return best;
}
