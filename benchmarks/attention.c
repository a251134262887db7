/* benchmarks/attention.c - causal attention against the rate of products, on the CPU or on a device. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/clock.h"
#include "benchmarks/operand.h"
#include <omp.h>
#include <stdio.h>

/* usage: attention [--backend=cuda] [--longest=T] [--json]: shapes of at most T positions; rows of a table, or an array
 * of JSON objects. On a device MPILM_CUDA_MMA_SYNC=1 measures the kernels for devices older than sm_90a. */

typedef struct shape {
  int B, T, H, H_kv, D;
} shape;

static const shape of_cpu[] = {{4, 64, 12, 12, 64},   {4, 256, 12, 12, 64},  {4, 1024, 12, 12, 64},
                               {1, 1024, 12, 12, 64}, {1, 4096, 12, 12, 64}, {2, 1024, 16, 4, 128},
                               {4, 1024, 8, 8, 80}};
static const shape of_device[] = {{1, 64, 2, 1, 64},     {64, 1024, 12, 12, 64},  {8, 2048, 16, 16, 64},
                                  {2, 8192, 16, 16, 64}, {16, 1024, 16, 16, 128}, {2, 8192, 16, 16, 128},
                                  {2, 8192, 32, 8, 128}};

static const lm_kernels *k;

typedef struct measured {
  double forward, backward; /* seconds */
} measured;

/* The best of 0.3 s; the host waits for each, which on a device costs some 10 us. */
static measured measure(lm_dtype t, const shape *s)
{
  size_t rows = (size_t)s->B * (size_t)s->T, heads = (size_t)s->H + 2 * (size_t)s->H_kv;
  void *qkv = operand(k, t, rows * heads * (size_t)s->D), *dqkv = operand(k, t, rows * heads * (size_t)s->D);
  void *y = operand(k, t, rows * (size_t)(s->H * s->D)), *dy = operand(k, t, rows * (size_t)(s->H * s->D));
  float *lse = operand(k, LM_F32, rows * (size_t)s->H);
  const lm_attention a = {.B = s->B, .T = s->T, .H = s->H, .H_kv = s->H_kv, .D = s->D};
  measured best = {1e30, 1e30};
  double start = lm_clock();
  for (int turn = 0; turn < 2 || lm_clock() - start < 0.3; turn++) { /* the first one warms up */
    double begin = lm_clock(), middle, end;
    k->attention_fwd(t, y, lse, qkv, &a);
    if (k->on_device) k->to_host(NULL, NULL, 0);
    middle = lm_clock();
    k->attention_bwd(t, dqkv, dy, y, lse, qkv, &a);
    if (k->on_device) k->to_host(NULL, NULL, 0);
    end = lm_clock();
    if (middle - begin < best.forward) best.forward = middle - begin;
    if (end - middle < best.backward) best.backward = end - middle;
  }
  void *all[] = {qkv, dqkv, y, dy, lse};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) k->release(all[i]);
  return best;
}

/* Two products forward, five backward (the scores again), of which the causal half is needed: T (T + 1) / 2 scores. */
static void print(lm_dtype t, const shape *s, measured m, double peak, bool json, bool first)
{
  double product = 2.0 * s->B * s->H * s->D * s->T * (s->T + 1.0) / 2;
  double forward = 2 * product / m.forward, backward = 5 * product / m.backward;
  double share = 7 * product / (m.forward + m.backward) / peak;
  if (json)
    printf(
        "%s{\"type\": \"%s\", \"B\": %d, \"T\": %d, \"H\": %d, \"H_kv\": %d, \"D\": %d, \"forward_flops_per_s\": %.4g, "
        "\"backward_flops_per_s\": %.4g, \"share\": %.4g}",
        first ? "[" : ", ", lm_dtype_name(t), s->B, s->T, s->H, s->H_kv, s->D, forward, backward, share);
  else
    printf("%-4s %2d %2d %5d %3d %3d %4d  %8.1f %8.1f   %5.1f %%\n", lm_dtype_name(t), omp_get_max_threads(), s->B,
           s->T, s->H, s->H_kv, s->D, 1e-9 * forward, 1e-9 * backward, 100 * share);
}

static void run(const shape *shapes, size_t n, int longest, bool json)
{
  lm_dtype first = k->on_device ? LM_BF16 : LM_F32;
  bool any = false;
  if (!json) {
    printf("%s for %s; GFLOP/s of the causal half, best of 0.3 s; share of the %s product rate\n",
           k->on_device ? "kernels" : "loops", k->isa, lm_dtype_name(first));
    printf("type thr B     T   H  kv    D   forward backward     share\n");
  }
  double peak = k->product_rate != NULL ? k->product_rate(first) : lm_cpu_product_rate(first);
  for (int t = (int)first; t <= LM_BF16; t++)
    for (size_t i = 0; i < n; i++) {
      if (shapes[i].T > longest) continue;
      print((lm_dtype)t, &shapes[i], measure((lm_dtype)t, &shapes[i]), peak, json, !any);
      any = true;
    }
  if (json) puts(any ? "]" : "[]");
}

int main(int argc, char **argv)
{
  lm_backend backend = LM_BACKEND_CPU;
  int longest = 1 << 30;
  bool json = false;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--backend=cuda") == 0)
      backend = LM_BACKEND_CUDA;
    else if (strcmp(argv[i], "--json") == 0)
      json = true;
    else if (sscanf(argv[i], "--longest=%d", &longest) != 1)
      return fprintf(stderr, "attention: what is '%s'? [--backend=cuda] [--longest=T] [--json]\n", argv[i]), 2;
  }
  k = operand_kernels(backend);
  if (backend == LM_BACKEND_CUDA)
    run(of_device, sizeof of_device / sizeof *of_device, longest, json);
  else
    run(of_cpu, sizeof of_cpu / sizeof *of_cpu, longest, json);
  return 0;
}
