/* benchmarks/attention.c - causal attention against the machine's rate of products, and its memory. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/clock.h"
#include "benchmarks/operand.h"
#include <omp.h>
#include <stdio.h>

static const struct {
  int B, T, H, H_kv, D;
} shapes[] = {{4, 64, 12, 12, 64},   {4, 256, 12, 12, 64},  {4, 1024, 12, 12, 64}, {1, 1024, 12, 12, 64},
              {1, 4096, 12, 12, 64}, {2, 1024, 16, 4, 128}, {4, 1024, 8, 8, 80}};

static const lm_kernels *k;

static void measure(lm_dtype t, int B, int T, int H, int H_kv, int D, double peak)
{
  size_t rows = (size_t)B * (size_t)T, heads = (size_t)H + 2 * (size_t)H_kv;
  void *qkv = operand(k, t, rows * heads * (size_t)D), *dqkv = operand(k, t, rows * heads * (size_t)D);
  void *y = operand(k, t, rows * (size_t)(H * D)), *dy = operand(k, t, rows * (size_t)(H * D));
  float *lse = operand(k, LM_F32, rows * (size_t)H);
  const lm_attention a = {.B = B, .T = T, .H = H, .H_kv = H_kv, .D = D};
  double forward = 1e30, backward = 1e30, start = lm_clock();

  do {
    double begin = lm_clock(), middle, end;
    k->attention_fwd(t, y, lse, qkv, &a);
    middle = lm_clock();
    k->attention_bwd(t, dqkv, dy, y, lse, qkv, &a);
    end = lm_clock();
    if (middle - begin < forward) forward = middle - begin;
    if (end - middle < backward) backward = end - middle;
  } while (lm_clock() - start < 0.3);
  /* Two products forward, five backward (the scores again), of which the causal half is needed: T (T + 1) / 2 scores.
   */
  double product = 2.0 * B * H * D * T * (T + 1.0) / 2;
  printf("%-4s %2d %2d %5d %3d %3d %4d  %8.1f %8.1f   %5.1f %%\n", lm_dtype_name(t), omp_get_max_threads(), B, T, H,
         H_kv, D, 2e-9 * product / forward, 5e-9 * product / backward, 100 * 7 * product / (forward + backward) / peak);
  void *all[] = {qkv, dqkv, y, dy, lse};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) k->release(all[i]);
}

int main(void)
{
  k = operand_kernels();
  printf("loops for %s; GFLOP/s of the causal half, best of 0.3 s; share of the f32 product rate\n", k->isa);
  printf("type thr B     T   H  kv    D   forward backward     share\n");
  for (int t = LM_F32; t <= LM_BF16; t++)
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
      measure((lm_dtype)t, shapes[i].B, shapes[i].T, shapes[i].H, shapes[i].H_kv, shapes[i].D,
              lm_cpu_product_rate(LM_F32));
  return 0;
}
