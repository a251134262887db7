/* benchmarks/memory.c - what memory gives: copies, and AdamW beside a loop that moves the same bytes. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/memory.h"
#include "base/clock.h"
#include "kernels/kernels.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined __SSE__
#include <xmmintrin.h>
#endif

enum { N = 1 << 25, BLOCK = 1 << 12, ROUNDS = 12 }; /* elements of each of four arrays: more than caches hold */

static const lm_kernels *cpu;
static float *w, *m, *v, *g;

static void copy(void)
{
#pragma omp parallel for schedule(static)
  for (size_t i = 0; i < N; i += BLOCK) memcpy(m + i, g + i, BLOCK * sizeof *m);
}

/* Stores that read no line first. */
static void copy_past_caches(void)
{
#pragma omp parallel for schedule(static)
  for (size_t i = 0; i < N; i += 4) {
#if defined __SSE__
    _mm_stream_ps(m + i, _mm_load_ps(g + i));
#else
    memcpy(m + i, g + i, 4 * sizeof *m);
#endif
  }
}

/* Reads four arrays and writes three, as AdamW does, with as good as no arithmetic. */
static void same_mix(void)
{
#pragma omp parallel for schedule(static)
  for (size_t i = 0; i < N; i += BLOCK) {
#pragma omp simd
    for (size_t j = i; j < i + BLOCK; j++) {
      w[j] += g[j];
      m[j] += g[j];
      v[j] += g[j];
    }
  }
}

static void adamw(void)
{
  const lm_adamw_config cfg = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .decay = 0.1f};
  cpu->adamw(LM_F32, w, m, v, g, NULL, N, &cfg, 1e-4f, 1, 10);
}

int main(void)
{
  static const struct {
    const char *name;
    void (*run)(void);
    double bytes; /* an element */
  } loops[] = {{"copy, ordinary stores", copy, 8},
               {"copy past the caches", copy_past_caches, 8},
               {"4 read, 3 written", same_mix, 28},
               {"adamw", adamw, 28}};
  enum { LOOPS = sizeof loops / sizeof *loops };
  double best[LOOPS];
  float **const arrays[] = {&w, &m, &v, &g};
  lm_error err;
  if (lm_kernels_select(&cpu, LM_BACKEND_CPU, &err) != LM_OK) return 2;
  for (size_t a = 0; a < 4; a++) {
    if ((*arrays[a] = lm_reserve(N * sizeof(float))) == NULL) return 1;
    cpu->zero(*arrays[a], N * sizeof(float));
  }
  for (size_t l = 0; l < LOOPS; l++) best[l] = 1e30;
  for (int r = 0; r < ROUNDS; r++)
    for (size_t l = 0; l < LOOPS; l++) {
      double began = lm_clock();
      loops[l].run();
      double seconds = lm_clock() - began;
      if (seconds < best[l]) best[l] = seconds;
    }
  printf("%d threads, %d MiB an array, best of %d rounds in turns\n", omp_get_max_threads(), N >> 18, ROUNDS);
  for (size_t l = 0; l < LOOPS; l++) printf("%-24s %6.1f GB/s\n", loops[l].name, 1e-9 * loops[l].bytes * N / best[l]);
  printf("adamw takes %.2f times as long as the same bytes, %.2f times as long as they take to copy past the caches\n",
         best[3] / best[2], best[3] / best[1] * 8 / 28);
  for (size_t a = 0; a < 4; a++) free(*arrays[a]);
  return 0;
}
