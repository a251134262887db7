/* src/gradsync/tree.h - the binary tree over the sequences of a step: which sums a rank brings, how they are joined. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_GRADSYNC_TREE_H
#define LM_GRADSYNC_TREE_H

#include "kernels/kernels.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** A node: the sum over sequences [first, first + 2^level). It is the sum of its two halves, the left one first. Where
 *  the batch ends inside a node, the node is the sum of its left half and what there is of the right one. So the tree
 *  follows from the numbers of the sequences alone, and any way of sharing them out makes the same sums. */
typedef struct lm_partial {
  uint64_t first;
  int level;
} lm_partial;

/** The largest whole nodes that sequences [begin, end) are made of, from left to right. Local.
 *  @param[out] out  NULL: only count @return how many; at most 2 log2(end - begin) + 1 */
int lm_partials(uint64_t begin, uint64_t end, lm_partial *out);

/** Are these neighbours the halves of a node? Local. */
bool lm_partials_join(lm_partial left, lm_partial right);

/** Sum nodes that cover [0, batch), from left to right, as the tree says; in place. Local.
 *  @param nodes, sums  [n] in the order of sequences, in k's memory; what they point to is changed @return the sum: one
 * of sums */
float *lm_partials_sum(const lm_kernels *k, lm_partial *nodes, float **sums, int n, size_t count);

#endif
