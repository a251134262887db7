/* src/batch/sampler.c - which window is the n-th sample of the endless sequence of shuffled epochs. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "batch/sampler.h"
#include "base/rng.h"
#include "base/status.h"

/* Four rounds make a pseudorandom permutation of a wide domain (Luby & Rackoff 1988); a domain of a few windows, where
 * a half has one or two bits, needs more rounds before all orders are about equally likely. */
enum { ROUNDS = 8 };

/* Bits of one half: the least h with 4^h >= windows, at least 1. */
static int half_bits(uint64_t windows)
{
  int h = 1;
  while (h < 32 && (windows - 1) >> (2 * h) != 0) h++;
  return h;
}

/* One pass of the network over [0, 4^half): (left, right) -> (right, left ^ F(right)). */
static uint64_t feistel(uint64_t seed, uint64_t source, uint64_t epoch, int half, uint64_t x)
{
  uint64_t mask = (UINT64_C(1) << half) - 1, left = x >> half, right = x & mask;
  for (uint64_t round = 0; round < ROUNDS; round++) {
    uint32_t words[4];
    lm_random_words(seed, LM_STREAM_SHUFFLE, epoch, source << 36 | round << 32 | right, words);
    uint64_t mixed = left ^ (words[0] & mask);
    left = right;
    right = mixed;
  }
  return left << half | right;
}

uint64_t lm_sample_window(uint64_t seed, uint64_t source, uint64_t windows, uint64_t position)
{
  LM_ASSERT(windows >= 1 && source >> 28 == 0);
  uint64_t epoch = position / windows, x = position % windows;
  int half = half_bits(windows);
  /* 4^half < 4 windows, so less than four passes are needed on average; the walk ends, since x lies on its own cycle.
   */
  do x = feistel(seed, source, epoch, half, x);
  while (x >= windows);
  return x;
}

void lm_sample_slice(uint64_t global_batch, int rank, int size, uint64_t *first, uint64_t *count)
{
  LM_ASSERT(0 <= rank && rank < size);
  uint64_t r = (uint64_t)rank, each = global_batch / (uint64_t)size, rest = global_batch % (uint64_t)size;
  *first = r * each + (r < rest ? r : rest);
  *count = each + (r < rest);
}
