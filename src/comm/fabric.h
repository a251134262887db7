/* src/comm/fabric.h - collectives on a backend's own memory, where ranks do not exchange host buffers. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_COMM_FABRIC_H
#define LM_COMM_FABRIC_H

#include "base/status.h"

/* What ranks whose memory is on devices need to sum and gather it. The operations of a backend and the collectives are
 * two queues: the host only fills them, and what must wait for what is said with fork and await. Every rank gives its
 * queue of collectives the same calls in the same order. Sums are in f32. A failure after a call cannot be agreed on:
 * poll() tells of it, from any thread. */
enum { LM_FABRIC_ID = 128 /* bytes of an id */ };

typedef struct lm_fabric {
  const char *name; /* "NCCL 2.28.3" */

  /** The id of a new group of ranks, made by one of them. Local. @param id  [LM_FABRIC_ID] */
  lm_status (*make_id)(void *id, lm_error *err);
  /** Join the group: all its ranks call this, with the id that one of them made.
   *  @param marks   marks that will be used: [0, marks)
   *  @param seconds that the others may take; LM_EIO after that, and where a rank cannot be reached */
  lm_status (*join)(void **out, const void *id, int rank, int size, int marks, double seconds, lm_error *err);
  /** All that was begun has ended when this returns, and the group is no more. NULL is fine. */
  void (*leave)(void *group);
  /** End what is under way, whatever its state: the job is over, or the group is left next. From any thread. */
  void (*abort)(void *group);
  /** LM_EIO where a collective has failed. From any thread. */
  lm_status (*poll)(void *group, lm_error *err);

  /** What is begun from here on comes after all that the operations' queue has been given until now. */
  void (*fork)(void *group);
  /** Mark i is after all that has been begun until now; the operations' queue goes on behind mark i. */
  void (*mark)(void *group, int i);
  void (*await)(void *group, int i);

  /** x [n] = the sum over ranks. */
  void (*all_reduce)(void *group, float *x, size_t n);
  /** to [each] = elements [rank each, rank each + each) of the sum over ranks; from [size each]. `to` may be there. */
  void (*reduce_scatter)(void *group, float *to, const float *from, size_t each);
  /** to [size each] = the `each` bytes of every rank; `from` may be at its place in `to`. */
  void (*all_gather)(void *group, void *to, const void *from, size_t each);
  /** x [n] += y, and a copy, in the queue of collectives. */
  void (*add)(void *group, float *x, const float *y, size_t n);
  void (*copy)(void *group, void *to, const void *from, size_t bytes);
} lm_fabric;

#endif
