/* benchmarks/matmul.c - GFLOP/s of the products of GPT-2 124M, by shape, type and threads. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/clock.h"
#include "benchmarks/operand.h"
#include <dnnl.h>
#include <omp.h>
#include <stdio.h>

/* Rows (tokens of a micro-batch), outputs, inputs: attention in and out, the two of the MLP, and the classifier. */
static const struct {
  int M, N, K;
} shapes[] = {{256, 2304, 768},  {256, 768, 768},  {256, 3072, 768},  {256, 768, 3072},  {256, 50304, 768},
              {4096, 2304, 768}, {4096, 768, 768}, {4096, 3072, 768}, {4096, 768, 3072}, {2048, 50304, 768}};

static const lm_kernels *cpu;

typedef struct problem {
  lm_dtype t;
  int M, N, K;
  void *x, *w, *y, *bias;
  float *dw, *dbias;
} problem;

static void forward(const problem *p)
{
  cpu->linear_fwd(p->t, p->y, p->x, p->w, p->bias, (size_t)p->M, p->N, p->K);
}

static void input_gradient(const problem *p)
{
  cpu->linear_bwd_input(p->t, p->x, p->y, p->w, (size_t)p->M, p->N, p->K);
}

static void weight_gradient(const problem *p)
{
  cpu->linear_bwd_weight(p->t, true, p->dw, p->dbias, p->y, p->x, (size_t)p->M, p->N, p->K);
}

/* The forward product as oneDNN divides it over its threads itself: what our tiles are measured against. */
static void onednn(const problem *p)
{
  dnnl_sgemm('N', 'T', p->M, p->N, p->K, 1, p->x, p->K, p->w, p->K, 0, p->y, p->N);
}

static double gflops(void (*f)(const problem *), const problem *p)
{
  double best = 1e30, start = lm_clock();
  do {
    double before = lm_clock(), now;
    f(p);
    now = lm_clock();
    if (now - before < best) best = now - before;
  } while (lm_clock() - start < 0.1);
  return 2e-9 * p->M * p->N * p->K / best;
}

static void measure(problem *p)
{
  size_t M = (size_t)p->M, N = (size_t)p->N, K = (size_t)p->K;
  p->x = operand(cpu, p->t, M * K);
  p->w = operand(cpu, p->t, N * K);
  p->y = operand(cpu, p->t, M * N);
  p->bias = operand(cpu, p->t, N);
  p->dw = operand(cpu, LM_F32, N * K);
  p->dbias = operand(cpu, LM_F32, N);
  printf("%-4s %2d %5d x %5d x %4d  %8.1f %8.1f %8.1f", lm_dtype_name(p->t), omp_get_max_threads(), p->M, p->N, p->K,
         gflops(forward, p), gflops(input_gradient, p), gflops(weight_gradient, p));
  if (p->t == LM_F32) printf(" %8.1f", gflops(onednn, p));
  printf("\n");
  void *all[] = {p->x, p->w, p->y, p->bias, p->dw, p->dbias};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) cpu->release(all[i]);
}

int main(void)
{
  int most = omp_get_max_threads();
  cpu = operand_kernels();
  printf("loops for %s; GFLOP/s, best of 0.1 s\n", cpu->isa);
  printf("type thr  rows x   out x   in    forward   dinput  dweight   oneDNN\n");
  for (int t = LM_F32; t <= LM_BF16; t++)
    for (int threads = 1; threads <= most; threads = threads * 2 > most && threads < most ? most : threads * 2) {
      omp_set_num_threads(threads);
      for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        measure(&(problem){.t = (lm_dtype)t, .M = shapes[i].M, .N = shapes[i].N, .K = shapes[i].K});
      printf("%-4s %2d peak by lm_cpu_product_rate %.1f\n", lm_dtype_name((lm_dtype)t), threads,
             1e-9 * lm_cpu_product_rate((lm_dtype)t));
    }
  return 0;
}
