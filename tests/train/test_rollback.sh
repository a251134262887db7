#!/bin/bash
# tests/train/test_rollback.sh - steps that are not to be trusted: left out, the end of the run, or back to a checkpoint.
. "$srcdir/tests/tap.sh"
. "$srcdir/tests/train/common.sh"

make_config config.yaml
make_data
tap_ok $? "a dataset is made"

short() { # RANKS FOLDER OVERRIDES...: 12 steps of 12 samples, a checkpoint every 4
  train "$1" "$2" --run.steps=12 --checkpoint.every=4 --log.samples --train.spike_window=4 --train.spike_z=20 "${@:3}"
}

samples() { # FOLDER STEP: the windows that a step trained on
  sed -n "s/^{\"step\": $2,.*\"samples\": \(\[.*\]\)}/\1/p" "$1/metrics.jsonl"
}

which_samples() { # FOLDER STEP: the same, by mpilm data which, which knows config, checkpoints and journal
  "$MPILM" data which config.yaml --run.folder="$1" --step "$2" | awk 'NR > 1 { printf "%s%s", sep, $2; sep = ", " }'
}

on_paper() { # FOLDER: every step's samples are those that data which prints
  local step wrong=""
  for step in $(column step "$1"); do
    [ "[$(which_samples "$1" "$step")]" = "$(samples "$1" "$step")" ] || wrong="$wrong $step"
  done
  tap_is "$(column step "$1" | wc -l):$wrong" "12:" "$1: data which prints the samples of each step"
}

tap_exit 0 "nothing goes wrong" -- short 2 fine
on_paper fine

# ---- rollback: sample 90 is in step 8, the last checkpoint before it is that of step 4, which has samples 0 to 47 ----
MPILM_FAULT=grad_nan@sample90 tap_exit 0 "a bad sample, 2 ranks" -- short 2 back --train.nonfinite=rollback
tap_like "$tap_err" "step 8: back to step 4, rollback 1 of at most 5; samples 48 to 95 of the data are left out" "is told"
tap_is "$(column step back | tr '\n' ' ')" "1 2 3 4 5 6 7 8 9 10 11 12 " "each step has one row"
tap_is "$(column loss back | head -n 4)" "$(column loss fine | head -n 4)" "the steps before are what they were"
tap_is "$(samples back 4) $(samples back 5) $(samples back 8)" "$(samples fine 4) $(samples fine 9) $(samples fine 12)" \
  "step 5 goes on with the data behind the bad step"
tap_is "$(column skipped back | sort -u) $(column applied_step back | tail -n 1)" "false 12" "and no step is left out"
tap_like "$(cat back/journal.jsonl)" \
  '^."rollback": "[0-9TZ:-]+", "bad_step": 8, "to_step": 4, "samples_left_out": .48, 96., "why": "not finite in [^"]+".$' \
  "the journal has it"
MPILM_FAULT=grad_nan@sample90:rank0 tap_exit 0 "1 rank" -- short 1 back1 --train.nonfinite=rollback
close_to loss back back1 1e-5 "1 rank: the losses of 2"
MPILM_FAULT=grad_nan@sample90 tap_exit 0 "no prefetch" -- short 2 unread --train.nonfinite=rollback --data.prefetch=0
same back unread "read ahead or not: the same bits"
for n in 1 2; do
  MPILM_FAULT=grad_inf@sample90 tap_exit 0 "run.reproducible, $n" -- short $n bits$n --train.nonfinite=rollback \
    --run.reproducible
done
same bits1 bits2 "1 and 2 ranks: the same bits"

# ---- stopped and killed after a rollback ----
MPILM_FAULT=loss_spike@sample50 tap_exit 0 "a spike in step 5" -- short 2 whole --train.spike=rollback
tap_is "$(samples whole 5)" "$(samples fine 6)" "step 5 trains on the data of step 6"
MPILM_FAULT=loss_spike@sample50 tap_exit 75 "stopped after step 5" -- short 2 parts --train.spike=rollback --run.stop_after=5
tap_exit 0 "and resumed" -- short 2 parts --train.spike=rollback
same whole parts "5 + 7 steps: the same bits"
MPILM_FAULT=loss_spike@sample50,die@step6:rank1 short 2 killed --train.spike=rollback >log 2>&1
tap_is "$(basename "$(last_checkpoint killed)")" step-00000004.h5 "killed in step 6"
tap_exit 0 "and resumed where nothing is bad any more" -- short 2 killed --train.spike=rollback
tap_like "$tap_err" "resumed from step 4" "from the checkpoint that it went back to"
same whole killed "what was jumped over stays so: the same bits"
MPILM_FAULT=loss_spike@sample50 tap_exit 0 "no checkpoint yet" -- short 2 early --train.spike=rollback --checkpoint.every=0
tap_like "$tap_err" "step 5: back to step 0" "is back at the start"
tap_is "$(samples early 1) $(column step early | head -n 1)" "$(samples fine 6) 1" "on the data behind"
tap_exit 0 "its checkpoint of the start" -- "$MPILM" ckpt verify early

# Where all samples are the same, a step does not depend on which it has: back at the start all must be as at the start.
head -c 30 train.txt >window.txt
"$MPILM" tokenize --vocab bytes --out window.h5 window.txt >/dev/null 2>&1
for bad in 1 5; do
  MPILM_FAULT=grad_nan@sample$((12 * bad - 12)) tap_exit 0 "one window, step $bad is bad" -- short 2 start$bad \
    --train.nonfinite=rollback --checkpoint.every=0 --data.train=window.h5 --data.val=
done
tap_like "$tap_err" "step 5: back to step 0" "back at the start after four updates"
same start1 start5 "whose moments are forgotten: the same bits as after none"

# ---- the budget of rollbacks is the run's, not a start's ----
MPILM_FAULT=grad_nan@step6:rank1 tap_exit 1 "step 6 is bad whatever the data" -- short 2 again \
  --train.nonfinite=rollback --train.max_rollbacks=2
tap_like "$tap_err" "step 6: not finite in .*; the run went back 2 times, train.max_rollbacks allows no more; the last checkpoint is that of step 4" \
  "the third ends the run"
tap_is "$(grep -c '"rollback"' again/journal.jsonl)" 2 "the journal has two"
MPILM_FAULT=grad_nan@step6:rank1 tap_exit 1 "started again" -- short 2 again --train.nonfinite=rollback --train.max_rollbacks=2
tap_is "$(grep -c '"rollback"' again/journal.jsonl) $(grep -c '"start"' again/journal.jsonl)" "2 2" "has none left"
tap_exit 0 "mended" -- short 2 again --train.nonfinite=rollback --train.max_rollbacks=2
tap_is "$(samples again 5)" "$(samples fine 9)" "twice two steps of data are left out"
for run in back early again killed; do on_paper $run; done
MPILM_FAULT=grad_nan@sample130 tap_exit 0 "sample 130 is in step 11" -- short 2 undone --train.nonfinite=rollback
tap_is "$(samples undone 9)" "$(samples fine 12)" "back to step 8, and on behind it"
on_paper undone
tap_exit 0 "gone on from step 4 instead" -- short 2 undone --run.resume=4
tap_is "$(samples undone 9)" "$(samples fine 9)" "nothing is left out any more"
on_paper undone

# ---- stop, skip ----
MPILM_FAULT=grad_inf@step6:rank1 tap_exit 1 "stop" -- short 2 stop --train.nonfinite=stop
tap_like "$tap_err" "step 6: not finite in [a-z_/0-9]+; the last checkpoint is that of step 4" "ends with words"
MPILM_FAULT=loss_spike@step6:rank1 tap_exit 1 "stop at a spike of one rank" -- short 2 spike-stop --train.spike=stop
tap_like "$tap_err" "step 6: the loss, [0-9.]+, is [0-9.]+ deviations above [0-9.]+, the mean of the last 4 updates" "says how high"
for n in 1 2; do
  MPILM_FAULT=loss_spike@sample90 tap_exit 0 "skip a spike, $n" -- short $n skip$n --train.spike=skip
  tap_is "$(column skipped skip$n | tr '\n' ' ')" \
    "false false false false false false false true false false false false " "step 8 alone is left out"
done
tap_is "$(column applied_step skip2 | tail -n 1)" 11 "and does not count as an update"
close_to loss skip1 skip2 1e-5 "1 rank: the losses of 2"
MPILM_FAULT=loss_spike@sample90 tap_exit 75 "stopped before the spike" -- short 2 skip-parts --train.spike=skip --run.stop_after=7
MPILM_FAULT=loss_spike@sample90 tap_exit 0 "and resumed" -- short 2 skip-parts --train.spike=skip
same skip2 skip-parts "the window comes from the checkpoint: the same bits"
tap_is "$(column loss_z skip-parts)" "$(column loss_z skip2)" "the same scores"
MPILM_FAULT=loss_spike@sample90 tap_exit 0 "a spike that nobody looks for" -- short 2 blind
tap_is "$(column skipped blind | sort -u)" false "is trained on"
faults=$(seq -f 'loss_spike@step%g' -s , 6 12)
MPILM_FAULT=$faults tap_exit 1 "losses that stay high" -- short 2 high --train.spike=skip --run.max_skipped=3
tap_like "$tap_err" "step 9: 4 updates in a row were left out, the last one: the loss.*last checkpoint is that of step 4" \
  "use up the budget of skipped steps"

# ---- fp16: what the scale can mend is no matter for the policy ----
MPILM_FAULT=grad_inf@step3:rank1 tap_exit 0 "fp16, stop, an overflow" -- short 2 fp16 --precision=fp16 --train.nonfinite=stop
tap_is "$(column skipped fp16 | grep -c true)" 1 "is left out"
MPILM_FAULT=grad_inf@step3:rank1 tap_exit 1 "at the least scale" -- short 2 least --precision=fp16 \
  --train.nonfinite=stop --scaler.init=1024 --scaler.min=1024
tap_end
