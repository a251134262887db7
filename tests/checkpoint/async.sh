#!/usr/bin/env bash
# tests/checkpoint/async.sh - saves in the background hold one point in time, and their failures are heard.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
# shellcheck source=tests/train/common.sh
. "$srcdir/tests/train/common.sh"
make_config config.yaml
make_data
tap_ok $? "a dataset is made"

files() { # FOLDER: the steps it has
  find "$1/checkpoints" -name '*.h5*' -printf '%f\n' | sort | sed 's/step-0*//; s/\.h5//' | tr '\n' ' '
}
seconds_of_save() { # STEP FOLDER
  sed -n "$1"'s/.*"checkpoint": *\([0-9.e-]*\).*/\1/p' "$2/metrics.jsonl"
}

# ---- one point in time: steps go on while a save sleeps half way through ----
tap_exit 0 "saves between steps" -- train 2 sync --checkpoint.async=false --run.steps=12
MPILM_FAULT=slow_save=700ms tap_exit 0 "saves in the background" -- train 2 async --run.steps=12
tap_is "$(files async)" "$(files sync)" "the same checkpoints, the last one included"
same sync async "the same steps"
awk -v t="$(seconds_of_save 5 async)" 'BEGIN { exit !(t != "" && t < 0.6) }'
tap_ok $? "the step that begins a slow save does not wait for it: $(seconds_of_save 5 async) s"
if command -v h5diff >/dev/null; then
  for step in 05 10 12; do
    name=step-000000$step.h5
    h5diff -q --exclude-path /integrity --exclude-path /config --exclude-path /provenance/program \
      sync/checkpoints/$name async/checkpoints/$name
    tap_ok $? "h5diff: step $step has the same content in both"
  done
else
  tap_skip "no h5diff" "the same content"
fi
MPILM_FAULT=slow_save=1s tap_exit 75 "stopped while a save is under way" -- train 2 stop --run.stop_after=7 --run.steps=12
tap_is "$(files stop)" "5 7 " "both it and the last one are completed"
tap_exit 0 "it goes on" -- train 3 stop --run.steps=12
close_to loss sync stop 1e-5 "as if it had not stopped"

# ---- failures, of one rank alone ----
MPILM_FAULT=fail_write@ckpt2:rank1 tap_alone lm_train 1 "rank 1.*step-00000010.h5.part: cannot write: Input/output error" \
  "the second save fails" -- train 2 fails
tap_is "$(files fails)" "5 " "the first one stands, nothing is left of the second"
tap_is "$(($(column step fails | tail -n 1) < 20))" 1 "it stops before the end"
MPILM_FAULT=fail_write@ckpt4:rank1 tap_exit 1 "the last save fails" -- train 2 last --checkpoint.on_failure=continue
tap_like "$tap_err" "step 20 could not be saved; the last checkpoint is that of step 15" "it says what there is"
MPILM_FAULT=fail_write@ckpt2:rank1 tap_exit 0 "training goes on" -- train 2 on --checkpoint.on_failure=continue
tap_like "$tap_err" "warning: a save failed.* of step 5: .*step-00000010.h5.part: cannot write" "with a warning"
tap_is "$(files on)" "5 15 20 " "and later saves are good"
tap_exit 0 "all of them" -- "$MPILM" ckpt verify on

# ---- what is read back ----
tap_exit 0 "read back what was written" -- train 2 full --checkpoint.verify=full --run.steps=5
tap_exit 0 "it is good" -- "$MPILM" ckpt verify full
tap_end
