/* src/gradsync/tree.c - the binary tree over the sequences of a step: which sums a rank brings, how they are joined. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "gradsync/tree.h"

int lm_partials(uint64_t begin, uint64_t end, lm_partial *out)
{
  int n = 0;
  for (uint64_t first = begin; first < end; n++) {
    int level = 0;
    while (level < 62 && first % (UINT64_C(2) << level) == 0 && first + (UINT64_C(2) << level) <= end) level++;
    if (out != NULL) out[n] = (lm_partial){first, level};
    first += UINT64_C(1) << level;
  }
  return n;
}

bool lm_partials_join(lm_partial left, lm_partial right)
{
  return left.level == right.level && left.first % (UINT64_C(2) << left.level) == 0;
}

float *lm_partials_sum(const lm_kernels *k, lm_partial *nodes, float **sums, int n, size_t count)
{
  int top = 0; /* nodes[0 .. top] and sums[0 .. top] are a stack; what is below i has been read */
  for (int i = 1; i < n; i++) {
    nodes[++top] = nodes[i];
    sums[top] = sums[i];
    for (; top > 0 && lm_partials_join(nodes[top - 1], nodes[top]); top--) {
      k->add(sums[top - 1], sums[top], count);
      nodes[top - 1].level++;
    }
  }
  for (; top > 0; top--) k->add(sums[top - 1], sums[top], count); /* the batch ends inside their node */
  return sums[0];
}
