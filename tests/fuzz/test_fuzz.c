/* tests/fuzz/test_fuzz.c - every reader on mutations of good inputs: a few seconds of what `make fuzz` does for long.
 */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/clock.h"
#include "tests/fuzz/targets.h"
#include "tests/tap.h"

#include <stdlib.h>
#include <string.h>

enum { ROOM = 4096, SECONDS = 1, MOST = 20000 };

static uint32_t state = 1;

static uint32_t draw(uint32_t below)
{
  state = state * 1664525u + 1013904223u;
  return (uint32_t)((uint64_t)(state >> 1) * below >> 31);
}

/* A few changes of one seed: a byte, a bit, a hole, a repetition, the start of another one. */
static size_t mutate(const fuzz_target *t, size_t seeds, uint8_t out[ROOM])
{
  const fuzz_seed *s = &t->seeds[draw((uint32_t)seeds)];
  size_t n = s->n;
  memcpy(out, s->bytes, n);
  for (uint32_t changes = 1 + draw(4); changes > 0 && n > 0; changes--) {
    size_t at = draw((uint32_t)n), length = 1 + draw(8);
    if (length > n - at) length = n - at;
    switch (draw(5)) {
    case 0: out[at] = (uint8_t)draw(256); break;
    case 1: out[at] ^= (uint8_t)(1u << draw(8)); break;
    case 2:
      memmove(out + at, out + at + length, n - at - length);
      n -= length;
      break;
    case 3:
      if (n + length > ROOM) break;
      memmove(out + at + length, out + at, n - at);
      n += length;
      break;
    default: n = at; break;
    }
  }
  return n;
}

int main(int argc, char **argv)
{
  lm_comm comm;
  static uint8_t bytes[ROOM];
  tap_begin(&comm, argc, argv);
  for (const fuzz_target *t = fuzz_targets; t->name != NULL; t++) {
    size_t seeds = 0, tried = 0;
    for (; t->seeds[seeds].bytes != NULL; seeds++) t->run((const uint8_t *)t->seeds[seeds].bytes, t->seeds[seeds].n);
    t->run(NULL, 0);
    for (double end = lm_clock() + SECONDS; lm_clock() < end && tried < MOST; tried++) {
      size_t n = mutate(t, seeds, bytes);
      t->run(bytes, n);
    }
    tap_ok(tried > 0, "%s comes back from %zu damaged inputs", t->name, tried);
  }
  return tap_end();
}
