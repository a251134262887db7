/* tests/base/test_fault.c - MPILM_FAULT: which rank is hit, and when; what is refused. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/clock.h"
#include "base/fault.h"
#include "tests/tap.h"

#include <string.h>

static lm_error err;

static bool refused(const char *list)
{
  return lm_fault_init(list, 0, &err) == LM_EINVAL && strstr(err.text, "MPILM_FAULT") != NULL;
}

int main(int argc, char **argv)
{
  static const char *const bad[] = {"die",
                                    "die@5",
                                    "die@step",
                                    "die@step5:2",
                                    "die@step-5",
                                    "di@step5",
                                    "die@ckpt5",
                                    "slow_save",
                                    "slow_save=2",
                                    "slow_save@step2",
                                    "slow_save=2h",
                                    "die@sample5",
                                    "loss_spike@samples5",
                                    "loss_spike",
                                    "slow_save@sample2",
                                    "die@step5:rank",
                                    "die@step5 x",
                                    "die@step5:rank1x",
                                    "die@step99999999999999999999"};
  lm_comm comm;
  tap_begin(&comm, argc, argv);
  tap_ok(!lm_fault(LM_FAULT_DIE, 0) && lm_fault_seconds(LM_FAULT_SLOW_SAVE) == 0, "nothing is asked for by default");
  tap_ok(lm_fault_init(NULL, 0, &err) == LM_OK && lm_fault_init("", 0, &err) == LM_OK, "no list, an empty list");

  const char *list = "die@step5:rank2, grad_inf@step3,slow_save=200ms,fail_write@ckpt2:rank0";
  tap_ok(lm_fault_init(list, 2, &err) == LM_OK && lm_fault(LM_FAULT_DIE, 5) && !lm_fault(LM_FAULT_DIE, 4) &&
             !lm_fault(LM_FAULT_HANG, 5),
         "rank 2 dies at step 5");
  tap_ok(lm_fault(LM_FAULT_GRAD_INF, 3) && !lm_fault(LM_FAULT_FAIL_WRITE, 2), "no rank: every rank; not another's");
  tap_ok(lm_fault_init(list, 0, &err) == LM_OK && !lm_fault(LM_FAULT_DIE, 5) && lm_fault(LM_FAULT_FAIL_WRITE, 2),
         "rank 0 fails a write instead");
  tap_ok(lm_fault_seconds(LM_FAULT_SLOW_SAVE) == 0.2, "milliseconds");
  tap_ok(lm_fault_init("grad_nan@step4:rank1", 1, &err) == LM_OK && lm_fault(LM_FAULT_GRAD_NAN, 4) &&
             !lm_fault(LM_FAULT_GRAD_INF, 4),
         "not a number is not infinite");
  tap_ok(lm_fault_init(list, 0, &err) == LM_OK, "the first list again");
  double before = lm_clock();
  lm_fault_pause(LM_FAULT_SLOW_SAVE);
  tap_ok(lm_clock() - before >= 0.2, "a pause lasts as long as asked for");
  tap_ok(lm_fault_init("slow_save=2s", 0, &err) == LM_OK && lm_fault_seconds(LM_FAULT_SLOW_SAVE) == 2, "seconds");
  tap_ok(lm_fault_init("grad_nan@sample40:rank1,loss_spike@step3", 1, &err) == LM_OK &&
             lm_fault_sample(LM_FAULT_GRAD_NAN, 36, 5) && lm_fault_sample(LM_FAULT_GRAD_NAN, 40, 1) &&
             !lm_fault_sample(LM_FAULT_GRAD_NAN, 36, 4) && !lm_fault_sample(LM_FAULT_GRAD_NAN, 41, 9),
         "the steps that have sample 40");
  tap_ok(!lm_fault(LM_FAULT_GRAD_NAN, 40) && !lm_fault_sample(LM_FAULT_LOSS_SPIKE, 3, 1) &&
             lm_fault(LM_FAULT_LOSS_SPIKE, 3) && !lm_fault_sample(LM_FAULT_GRAD_INF, 40, 1),
         "a step is not a sample");
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) tap_ok(refused(bad[i]), "'%s' is no fault", bad[i]);
  return tap_end();
}
