#!/bin/bash
# tests/train/test_nonfinite.sh - an update with a non-finite gradient is never applied, and all ranks decide alike.
. "$srcdir/tests/tap.sh"
. "$srcdir/tests/train/common.sh"

make_config config.yaml
make_data
tap_ok $? "a dataset is made"

MPILM_FAULT=grad_inf@step3:rank1 tap_exit 0 "infinite in step 3 of rank 1" -- train 2 skipped --run.steps=6
tap_is "$(column skipped skipped | tr '\n' ' ')" "false false true false false false " "step 3 is left out"
tap_is "$(column applied_step skipped | tr '\n' ' ')" "1 2 2 3 4 5 " "and does not count as an update"
tap_is "$(column grad_norm skipped | sed -n 3p)" null "its norm is not a number"
# lr = 1e-3 min(1, (applied + 1) / 5), then half a cosine to step 6: the third rate is used for step 4.
tap_is "$(column lr skipped | sed -n '2,4p' | tr '\n' ' ')" "0.0004 0.0006 0.0006 " "the schedule waits"

# Not a number, on one rank: what update 3 left is what stays, to the bit, in whatever type the model computes.
for precision in f32 bf16; do
  tap_exit 0 "$precision, 3 steps" -- train 2 three-$precision --precision=$precision --run.steps=3 --schedule.end=20
  MPILM_FAULT=grad_nan@step4:rank1 tap_exit 0 "$precision, the fourth is not a number" -- \
    train 2 four-$precision --precision=$precision --run.steps=4 --schedule.end=20
  tap_like "$tap_err" "step 4: the update is left out: not finite in token_embedding/weight" "the step and a tensor are named"
  tap_is "$(column skipped four-$precision | tr '\n' ' ')" "false false false true " "and it is left out"
  "$MPILM" ckpt diff "$(last_checkpoint three-$precision)" "$(last_checkpoint four-$precision)" >diff.out 2>diff.err
  tap_is "$(grep -c '^equal *\(/model/\|/optimizer/\|/progress/applied_step\)' diff.out)" \
    "$(grep -c '/model/\|/optimizer/\|/progress/applied_step' diff.out)" "weights, moments and the count of updates are kept"
  tap_like "$(cat diff.out)" "differs  /progress/step" "of a later step"
done

faults=$(seq -f 'grad_inf@step%g:rank0' -s , 4 10)
MPILM_FAULT=$faults tap_exit 1 "infinite again and again" -- train 2 budget --run.max_skipped=3 --checkpoint.every=3
tap_like "$tap_err" "step 7: 4 updates in a row were left out, the last one: not finite in .*last checkpoint is that of step 3" "ends with words"
tap_is "$(basename "$(last_checkpoint budget)")" step-00000003.h5 "no later checkpoint replaces the good one"
tap_end
