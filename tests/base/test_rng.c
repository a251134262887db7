/* tests/base/test_rng.c - Philox4x32-10 against Random123's published vectors. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/rng.h"
#include "tests/tap.h"

#include <math.h>
#include <string.h>

static const struct {
  uint32_t counter[4], key[2], want[4];
} vectors[] = {
  /* Random123, kat_vectors: philox4x32 10 */
  {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
  {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
  {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
   {0xa4093822, 0x299f31d0},
   {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

int main(int argc, char **argv)
{
  lm_comm comm;
  tap_begin(&comm, argc, argv);
  for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
    uint32_t out[4];
    lm_philox4x32(vectors[i].counter, vectors[i].key, out);
    tap_ok(memcmp(out, vectors[i].want, sizeof out) == 0, "published vector %zu", i);
  }
  double sum = 0, squares = 0;
  enum { N = 100000 };
  for (uint64_t i = 0; i < N; i++) {
    uint32_t w[4];
    lm_random_words(42, LM_STREAM_INIT, 7, i, w);
    double x = lm_normal(w[0], w[1]);
    sum += x;
    squares += x * x;
  }
  tap_ok(fabs(sum / N) < 5 / sqrt(N), "the normal has mean 0");
  tap_ok(fabs(squares / N - 1) < 5 * sqrt(2.0 / N), "and variance 1");
  uint32_t a[4], b[4];
  lm_random_words(42, LM_STREAM_INIT, 7, 0, a);
  lm_random_words(42, LM_STREAM_SHUFFLE, 7, 0, b);
  tap_ok(memcmp(a, b, sizeof a) != 0, "two streams of one seed differ");
  return tap_end();
}
