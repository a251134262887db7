/* src/base/rng.c - counter-based random numbers. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/rng.h"

#include <math.h>

double lm_normal(uint32_t word0, uint32_t word1)
{
  return sqrt(-2 * log(lm_uniform(word0))) * cos(6.283185307179586476925 * lm_uniform(word1));
}
