/* src/base/fault.h - faults that a test asks for by MPILM_FAULT; in every build, off by default. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LM_BASE_FAULT_H
#define LM_BASE_FAULT_H

#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

/** What can be asked for. MPILM_FAULT is a list of these, separated by commas; without `:rank` every rank is meant. */
typedef enum lm_fault_kind {
  LM_FAULT_DIE,         /* die@step5:rank2: the process ends at once, as by SIGKILL */
  LM_FAULT_EXIT,        /* exit@step5:rank2: the process leaves with exit code 0, without a word */
  LM_FAULT_HANG,        /* hang@step4:rank1: the process stops answering */
  LM_FAULT_GRAD_INF,    /* grad_inf@step3:rank1: a gradient is infinite; grad_inf@sample40: in the step that has it */
  LM_FAULT_GRAD_NAN,    /* grad_nan@step3, grad_nan@sample40: it is not a number */
  LM_FAULT_LOSS_SPIKE,  /* loss_spike@step3, loss_spike@sample40: the losses of a step are ten times what they are */
  LM_FAULT_FLIP_WEIGHT, /* flip_weight@step4:rank1: a bit of a weight changes after the step */
  LM_FAULT_FAIL_WRITE,  /* fail_write@ckpt2:rank0: a write of the process's 2nd save fails */
  LM_FAULT_SLOW_SAVE,   /* slow_save=2s, slow_save=200ms: half way through, a save pauses */
  LM_FAULT_LATE_SAVE,   /* late_save=2s: a save looks at what it writes so much later than it could */
  LM_FAULT_KINDS
} lm_fault_kind;

/** Read a list of faults for this rank; the list before it is forgotten. Local, the same result on all ranks.
 *  @param list  getenv("MPILM_FAULT"); NULL or "": none
 *  @return LM_EINVAL names an entry that is not one, and shows how they look */
lm_status lm_fault_init(const char *list, int rank, lm_error *err) LM_NODISCARD;

/** Is this fault asked for here, on this rank? Local. n counts steps, or saves, from 1. */
bool lm_fault(lm_fault_kind kind, uint64_t n);

/** Is it asked for at a sample in [first, first + count), positions in the data? Such a fault follows the data, not the
 *  step, as a bad document would. Local. */
bool lm_fault_sample(lm_fault_kind kind, uint64_t first, uint64_t count);

/** Seconds asked for; 0: none. Local. */
double lm_fault_seconds(lm_fault_kind kind);

/** End as a node that loses power would: no handler, no buffer, no message to the other ranks. Local. */
_Noreturn void lm_fault_die(void);

/** Leave as a library that calls exit() would, but with nothing cleaned up. Local. */
_Noreturn void lm_fault_exit(void);

/** Never come back, without using the processor. Local. */
_Noreturn void lm_fault_hang(void);

/** Sleep what lm_fault_seconds() says. Local. */
void lm_fault_pause(lm_fault_kind kind);

#endif
