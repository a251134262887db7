#!/bin/bash
# tests/train/test_fp16.sh - fp16: the scale of the loss follows overflows, and nothing else changes.
. "$srcdir/tests/tap.sh"
. "$srcdir/tests/train/common.sh"

make_config config.yaml
make_data
tap_ok $? "a dataset is made"

tap_exit 0 "f32" -- train 2 f32 --run.steps=50
tap_exit 0 "fp16" -- train 2 fp16 --run.steps=50 --precision=fp16
tap_is "$(column loss_scale fp16 | sort -u)" 65536 "the scale is 2^16"
tap_is "$(column loss_scale f32 | sort -u)" 1 "and 1 in f32"
close_to loss f32 fp16 2e-2 "fp16: the losses of f32"
close_to grad_norm f32 fp16 2e-2 "fp16: the norms of f32, without the scale"
tap_exit 0 "fp16 on 3 ranks" -- train 3 ranks3 --run.steps=20 --precision=fp16
tap_exit 0 "fp16 on 1 rank" -- train 1 ranks1 --run.steps=20 --precision=fp16
close_to loss ranks1 ranks3 2e-3 "3 ranks: the losses of 1"
tap_exit 0 "fp16 on the reference backend" -- train 1 ref --run.steps=5 --precision=fp16 --backend=ref
tap_exit 0 "and on the CPU" -- train 1 cpu --run.steps=5 --precision=fp16
close_to loss ref cpu 2e-3 "the CPU: the losses of the reference"
first=$(column loss fp16 | head -n 1)
awk -v x="$first" 'BEGIN { exit !(x > 5.549 - 0.3 && x < 5.549 + 0.3) }'
tap_ok $? "an untrained model knows nothing: $first is near ln 257 = 5.549"

# 2^30 overflows until it has been halved often enough.
tap_exit 0 "a scale of 2^30" -- train 2 high --precision=fp16 --scaler.init=1073741824 --scaler.max=1073741824 \
  --run.max_skipped=30
skipped=$(column skipped high | grep -c true)
tap_ok $((skipped == 0)) "the first $skipped steps overflow"
tap_is "$(column skipped high | head -n "$skipped" | sort -u)" true "one after another"
tap_is "$(column loss_scale high | tr '\n' ' ')" "$(awk -v k="$skipped" 'BEGIN { x = 1073741824
  for (i = 1; i <= 20; i++) { printf "%.9g ", x; if (i <= k) x /= 2 } }')" "each halves the scale once"
tap_is "$(column applied_step high | tail -n 1)" $((20 - skipped)) "and none counts as an update"
# lr = 1e-3 (applied + 1) / 5 while it warms up
tap_is "$(column lr high | sed -n "$((skipped + 1)),$((skipped + 3))p" | tr '\n' ' ')" "0.0002 0.0004 0.0006 " \
  "the schedule waited"
tap_like "$tap_err" "step +1  left out: not finite in [a-z_0-9/]+; the loss scale was 1.07374e.09 and is now 5.36871e.08" \
  "a line names step, tensor and scales"

# One rank alone overflows, between steps that are fine.
MPILM_FAULT=grad_inf@step3:rank1 tap_exit 0 "infinite on one rank" -- train 2 one --precision=fp16 --run.steps=5
tap_is "$(column loss_scale one | tr '\n' ' ')" "65536 65536 65536 32768 32768 " "halves the scale of all, once"
tap_is "$(column applied_step one | tr '\n' ' ')" "1 2 2 3 4 " "and is left out"
MPILM_FAULT=grad_inf@step3:rank1 tap_exit 0 "infinite with patience" -- train 2 patient --precision=fp16 --run.steps=5 \
  --scaler.hysteresis=2 --scaler.growth_steps=2
tap_is "$(column loss_scale patient | tr '\n' ' ')" "65536 65536 131072 131072 131072 " "is forgiven once"

faults=$(seq -f 'grad_inf@step%g' -s , 3 9)
MPILM_FAULT=$faults tap_exit 1 "infinite for ever" -- train 2 floor --precision=fp16 --run.max_skipped=6 \
  --scaler.min=16384 --checkpoint.every=2
tap_like "$tap_err" "step 9: 7 updates in a row were left out, the last one: not finite in .*last checkpoint is that of step 2" "ends with words"
tap_is "$(column loss_scale floor | tail -n 1)" 16384 "at the least scale"
tap_is "$(basename "$(last_checkpoint floor)")" step-00000002.h5 "and keeps the last good checkpoint"

# The scaler's state is part of the run.
more="--precision=fp16 --scaler.growth_steps=6"
# shellcheck disable=SC2086
tap_exit 0 "20 steps" -- train 2 whole $more
# shellcheck disable=SC2086
tap_exit 75 "9 steps" -- train 2 parts $more --run.stop_after=9
# shellcheck disable=SC2086
tap_exit 0 "and 11" -- train 2 parts $more
same whole parts "20 = 9 + 11: the same bits"
tap_is "$(column loss_scale parts | tr '\n' ' ')" "$(column loss_scale whole | tr '\n' ' ')" "and the same scales"
tap_like "$(column loss_scale whole | sort -un | tr '\n' ' ')" "^65536 131072 262144 " "which grew"
tap_exit 0 "the model evaluates" -- "$MPILM" eval config.yaml --checkpoint "$(last_checkpoint whole)"
tap_exit 0 "and generates in fp16" -- "$MPILM" generate --checkpoint "$(last_checkpoint whole)" --prompt "the" \
  --tokens 3 --precision=fp16
# At a rate of 1e-5 a bf16 or f16 weight of 1 never moves by itself: half its last bit is 2^-9 or 2^-12. Its master does.
gains() { # CHECKPOINT GROUP: the values of a tensor
  h5dump -y -w 1 -d "$2/final_norm/weight" "$1" | sed -n '/DATA {/,/}/p' | grep -oE '[0-9.]+' | sort -u | tr '\n' ' '
}
if command -v h5dump >/dev/null; then
  for precision in bf16 fp16; do
    slow="--precision=$precision --optim.lr=1e-5 --run.steps=10 --schedule.warmup=0 --optim.weight_decay=0"
    # shellcheck disable=SC2086
    tap_exit 0 "$precision, a small rate" -- train 2 slow-$precision $slow
    tap_is "$(gains "$(last_checkpoint slow-$precision)" /model)" "1 " "$precision: the gains as used are still 1"
    [ "$(gains "$(last_checkpoint slow-$precision)" /optimizer/master)" != "1 " ]
    tap_ok $? \
      "$precision: their f32 masters are not"
    tap_like "$(h5dump -H -d /optimizer/master/final_norm/weight "$(last_checkpoint slow-$precision)")" F32LE \
      "$precision: and are in the checkpoint as f32"
  done
else
  tap_skip "no h5dump (Debian: hdf5-tools)" "f32 masters in the checkpoint"
fi
tap_exit 2 "a scale below its least" -- train 1 wrong --scaler.min=100 --scaler.init=50
tap_like "$tap_err" "scaler.min, init, max are 100, 50, 1.67772e.07" "is refused"
tap_end
