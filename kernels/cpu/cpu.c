/* kernels/cpu/cpu.c - the CPU backend's table: which loops run on this machine, and its memory. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "base/memory.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/linear.h"

#include <stdlib.h>
#include <string.h>

typedef struct level {
  const lm_cpu_loops *loops;
  bool runs; /* on this machine */
} level;

/* The levels built, lowest first. Returns how many. */
static int list_levels(level *list)
{
#if LM_X86_LEVELS
  /* Every CPU with AVX2, FMA and BMI2 has the rest of x86-64-v3 too, whose names not all compilers know. */
  __builtin_cpu_init();
  bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
            __builtin_cpu_supports("avx512vl");
  list[0] = (level){&lm_cpu_loops_v1, true};
  list[1] = (level){&lm_cpu_loops_v3, v3};
  list[2] = (level){&lm_cpu_loops_v4, v4};
  return 3;
#else
  list[0] = (level){&lm_cpu_loops_portable, true};
  return 1;
#endif
}

static lm_status choose_level(const lm_cpu_loops **out, lm_error *err)
{
  level list[3];
  int n = list_levels(list);
  const char *wanted = getenv("MPILM_ISA");
  const lm_cpu_loops *best = NULL, *named = NULL;

  for (int i = 0; i < n; i++) {
    if (!list[i].runs) continue;
    best = list[i].loops;
    if (wanted != NULL && strcmp(wanted, best->table.isa) == 0) named = best;
  }
  *out = wanted == NULL ? best : named;
  if (*out == NULL)
    return lm_fail(err, LM_EINVAL, "MPILM_ISA is '%s', which this build or this CPU does not have; the best here is %s",
                   wanted, best->table.isa);
  return LM_OK;
}

/* A page lies where it is touched first, so all threads clear: memory spreads over the sockets as the work will. */
static void zero(void *p, size_t bytes)
{
  enum { CHUNK = 1 << 20 };
#pragma omp parallel for schedule(static) if (bytes > CHUNK)
  for (size_t i = 0; i < bytes; i += CHUNK) memset((char *)p + i, 0, bytes - i < CHUNK ? bytes - i : CHUNK);
}

static lm_status alloc(void **out, size_t bytes, const char *what, lm_error *err)
{
  *out = lm_reserve(bytes);
  if (*out == NULL) return lm_fail(err, LM_ENOMEM, "no memory for %s (%zu bytes)", what, bytes);
  zero(*out, bytes);
  return LM_OK;
}

static void copy(void *to, const void *from, size_t bytes)
{
  if (bytes > 0) memcpy(to, from, bytes);
}

static const lm_cpu_loops *chosen;
static lm_kernels table;

const lm_cpu_loops *lm_cpu_level(void)
{
  LM_ASSERT(chosen != NULL);
  return chosen;
}

/* A level below the CPU's best does without its bf16 products too. */
bool lm_cpu_bf16_is_fast(void)
{
#if LM_X86_LEVELS
  __builtin_cpu_init();
  return (chosen == NULL || chosen == &lm_cpu_loops_v4) && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

lm_status lm_cpu_start(const lm_kernels **out, lm_error *err)
{
  *out = NULL;
  LM_TRY(choose_level(&chosen, err));
  table = chosen->table; /* its loops; what follows exists once */
  table.name = "cpu";
  table.alloc = alloc;
  table.release = free;
  table.zero = zero;
  table.to_device = table.to_host = copy;

  table.linear_fwd = lm_linear_fwd_cpu;
  table.linear_bwd_input = lm_linear_bwd_input_cpu;
  table.linear_bwd_weight = lm_linear_bwd_weight_cpu;
  *out = &table;
  return LM_OK;
}
