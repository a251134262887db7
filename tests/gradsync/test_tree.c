/* tests/gradsync/test_tree.c - sums over sequences follow one tree, however the sequences are shared out. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "gradsync/tree.h"
#include "tests/kernels/random.h"
#include "tests/tap.h"

enum { MOST = 40 };

static float leaf(uint64_t i)
{
  return (float)random_in(7, i, -1, 1);
}

/* The definition: a node is the sum of its halves, or its left half alone. */
static float node(uint64_t first, int level, uint64_t batch)
{
  if (level == 0) return leaf(first);
  uint64_t middle = first + (UINT64_C(1) << (level - 1));
  float left = node(first, level - 1, batch);
  return middle < batch ? left + node(middle, level - 1, batch) : left;
}

static float root(uint64_t batch)
{
  int level = 0;
  while (UINT64_C(1) << level < batch) level++;
  return node(0, level, batch);
}

/* The sum of three neighbouring slices' nodes. */
static bool same(uint64_t a, uint64_t b, uint64_t batch)
{
  const uint64_t cut[] = {0, a, b, batch};
  lm_partial nodes[3 * 16];
  float value[3 * 16], *sums[3 * 16];
  int n = 0;
  for (int s = 0; s < 3; s++) n += lm_partials(cut[s], cut[s + 1], nodes + n);
  for (int i = 0; i < n; i++) {
    value[i] = node(nodes[i].first, nodes[i].level, batch);
    sums[i] = &value[i];
  }
  return *lm_partials_sum(&lm_kernels_ref, nodes, sums, n, 1) == root(batch);
}

static bool all_slices(uint64_t batch)
{
  for (uint64_t a = 0; a <= batch; a++)
    for (uint64_t b = a; b <= batch; b++)
      if (!same(a, b, batch)) return false;
  return true;
}

int main(int argc, char **argv)
{
  lm_comm comm;
  tap_begin(&comm, argc, argv);
  bool equal = true;
  int differ = 0;
  for (uint64_t batch = 1; batch <= MOST; batch++) {
    equal = equal && all_slices(batch);
    float in_order = 0;
    for (uint64_t i = 0; i < batch; i++) in_order += leaf(i);
    differ += in_order != root(batch);
  }
  tap_ok(equal, "batches of 1 to %d, cut anywhere into three: the sum that the tree defines", MOST);
  tap_ok(differ > MOST / 4, "which is not what adding in order gives (%d of %d differ)", differ, MOST);
  lm_partial out[8];
  int n = lm_partials(3, 12, out);
  tap_ok(n == 3 && out[0].first == 3 && out[0].level == 0 && out[1].first == 4 && out[1].level == 2 &&
             out[2].first == 8 && out[2].level == 2,
         "[3, 12) is 3, [4, 8) and [8, 12)");
  tap_ok(lm_partials(5, 5, out) == 0, "nothing is no node");
  tap_ok(lm_partials_join((lm_partial){4, 1}, (lm_partial){6, 1}), "[4, 6) and [6, 8) join");
  tap_ok(!lm_partials_join((lm_partial){2, 1}, (lm_partial){4, 1}), "[2, 4) and [4, 6) do not");
  return tap_end();
}
