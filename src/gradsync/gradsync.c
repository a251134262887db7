/* src/gradsync/gradsync.c - grads -> summed grads. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "gradsync/gradsync.h"

void lm_gradsync_sum(const lm_comm *comm, float *g, size_t n, size_t bucket_bytes)
{
  size_t bucket = bucket_bytes / sizeof *g > 0 ? bucket_bytes / sizeof *g : 1;
  /* From the end: backward finishes the last layers first. */
  for (size_t end = n; end > 0;) {
    size_t now = end < bucket ? end : bucket;
    end -= now;
    lm_allreduce_sum_f32(comm, g + end, now);
  }
}
