#!/bin/bash
# tests/train/test_resume.sh - stopped, killed, resumed: the run that never stopped.
. "$srcdir/tests/tap.sh"
. "$srcdir/tests/train/common.sh"

make_config config.yaml
make_data
tap_ok $? "a dataset is made"

for precision in f32 bf16; do
  tap_exit 0 "$precision, uninterrupted" -- train 2 $precision --precision=$precision
  tap_exit 75 "$precision, stopped after step 7" -- train 2 $precision-parts --precision=$precision --run.stop_after=7
  tap_like "$tap_err" "stopped after step 7" "and said so"
  tap_is "$(column step $precision-parts | tail -n 1)" 7 "7 rows so far"
  tap_exit 0 "$precision, resumed" -- train 2 $precision-parts --precision=$precision
  tap_like "$tap_err" "resumed from step 7" "from step 7"
  same $precision $precision-parts "$precision, 20 = 7 + 13: the same bits"
done

tap_exit 75 "2 ranks to step 7" -- train 2 moved --run.stop_after=7
tap_exit 75 "1 rank to step 13" -- train 1 moved --run.stop_after=13
tap_exit 0 "3 ranks to the end" -- train 3 moved
close_to loss f32 moved 1e-5 "2 ranks -> 1 -> 3: the losses of 2"
tap_exit 0 "one more start" -- train 2 f32
tap_like "$tap_err" "already at step 20 of 20" "has nothing to do"
tap_is "$(find f32/checkpoints -name 'step-*.h5' | sort | xargs -n1 basename | tr '\n' ' ')" \
  "step-00000005.h5 step-00000010.h5 step-00000015.h5 step-00000020.h5 " "a checkpoint every 5 steps, the last included"

tap_exit 0 "7 steps, a checkpoint every 3" -- train 2 seven --run.steps=7 --checkpoint.every=3
tap_is "$(find seven/checkpoints -name 'step-*.h5' | sort | xargs -n1 basename | tr '\n' ' ')" \
  "step-00000003.h5 step-00000006.h5 step-00000007.h5 " "3, 6, and 7, the last"
rows=$(cat seven/metrics.jsonl)
tap_exit 0 "started again" -- train 2 seven --run.steps=7 --checkpoint.every=3
tap_like "$tap_err" "already at step 7 of 7" "says that it is there"
tap_is "$(cat seven/metrics.jsonl)" "$rows" "and trains nothing"

# A stop request to one rank only, in the middle of a step.
MPILM_FAULT=slow_save=300ms train 2 signalled --run.steps=100000 --checkpoint.every=0 --log.every=1000 >log 2>&1 &
launcher=$!
for _ in $(seq 100); do
  [ "$(wc -l 2>/dev/null <signalled/metrics.jsonl)" -ge 3 ] 2>/dev/null && break
  sleep 0.1
done
victim=$(pgrep -f "run.folder=signalled" | while read -r p; do
  [ "$(cat /proc/"$p"/comm 2>/dev/null)" = mpilm ] && echo "$p"
done | tail -n 1)
kill -USR1 "$victim"
wait $launcher
tap_is $? 75 "SIGUSR1 to one rank: all stop with 75"
tap_like "$(cat log)" "stopped after step [0-9]+ as asked" "and say after which step"
step=$(column step signalled | tail -n 1)
tap_is "$(basename "$(last_checkpoint signalled)")" "$(printf 'step-%08d.h5' "$step")" "whose checkpoint is there"

# SIGKILL in the middle of a save: the checkpoint before it is used.
MPILM_FAULT=slow_save=5s train 2 killed >log 2>&1 &
launcher=$!
for _ in $(seq 200); do
  [ -n "$(find killed/checkpoints -name '.step-00000005*' 2>/dev/null)" ] && break
  sleep 0.05
done
victims=$(pgrep -f "run.folder=killed" | while read -r p; do
  [ "$(cat /proc/"$p"/comm 2>/dev/null)" = mpilm ] && echo "$p"
done)
sleep 1
# shellcheck disable=SC2086
kill -KILL $victims
wait $launcher
tap_ok $(($? == 0)) "killed in its first save"
tap_is "$(find killed/checkpoints -name 'step-*.h5')" "" "which is not there"
tap_exit 0 "the next start begins anew" -- train 2 killed
same f32 killed "and ends as if nothing had happened"
MPILM_FAULT=die@step8:rank1 train 2 died --checkpoint.async=false >log 2>&1
tap_ok $(($? == 0)) "a rank dies in step 8"
tap_exit 0 "the next start" -- train 2 died
tap_like "$tap_err" "resumed from step 5" "resumes from step 5"
same f32 died "and ends with the same bits"

truncate -s -100 f32/checkpoints/step-00000020.h5
tap_exit 0 "a damaged last checkpoint" -- train 2 f32
tap_like "$tap_err" "step-00000020.h5" "is named"
tap_like "$tap_err" "resumed from step 15" "and the one before it used"
tap_end
