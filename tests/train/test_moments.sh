#!/usr/bin/env bash
# tests/train/test_moments.sh - a stop request, or a death, while a run does something else than a step.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
# shellcheck source=tests/train/common.sh
. "$srcdir/tests/train/common.sh"

make_config config.yaml
make_data
make_text 100000 3 >long.txt # to evaluate on takes seconds
"$MPILM" tokenize --vocab bytes --out long.h5 long.txt >/dev/null 2>&1
tap_ok $? "datasets are made"

process() { # RANK FOLDER: the process of a rank that trains in it
  local p
  for p in $(pgrep -f "run.folder=$2"); do
    [ "$(cat "/proc/$p/comm" 2>/dev/null)" = mpilm ] &&
      tr '\0' '\n' <"/proc/$p/environ" | grep -qx "OMPI_COMM_WORLD_RANK=$1" && echo "$p"
  done
}
wait_for() { # COMMAND...: until it succeeds, 20 s at most
  for _ in $(seq 400); do
    "$@" 2>/dev/null && return
    sleep 0.05
  done
}
has_rows() { # FOLDER N
  [ "$(wc -l <"$1/metrics.jsonl")" -ge "$2" ]
}
now() { # milliseconds
  date +%s%3N
}
ended() { # sets status and milliseconds since `began`
  wait "$job"
  status=$? lasted=$(($(now) - began))
}

# ---- a long evaluation: that of step 2, that before step 1 ----
train 2 asked --run.steps=100000 --data.val=long.h5 --eval.every=2 --log.every=100000 >log 2>&1 &
job=$!
wait_for has_rows asked 1
sleep 0.3
kill -USR1 "$(process 1 asked)"
ended
tap_is "$status" 75 "SIGUSR1 to one rank in an evaluation: all stop with 75"
tap_is "$(column step asked | tail -n 1):$(column val_loss asked)" "3:" "the evaluation gave no loss: it was interrupted on all ranks"
tap_is "$(basename "$(last_checkpoint asked)")" step-00000003.h5 "the step after it is saved"
train 2 dead --data.val=long.h5 --eval.every=2 >log 2>&1 &
job=$! began=$(now)
wait_for grep -q '^batch: ' log
sleep 0.3
kill -KILL "$(process 1 dead)"
ended
tap_ok $((status == 0 || lasted > 30000)) "SIGKILL of one rank in an evaluation: the job is over after $lasted ms"
tap_like "$(cat log)" "step 0, 'evaluation': rank 1 on .* has died" "and says in which step and phase"

# ---- before the first step ----
train 2 early --run.steps=100000 --log.every=100000 >log 2>&1 &
job=$!
wait_for test -s early/.lock
kill -USR1 "$(process 1 early)"
ended
tap_is "$status" 75 "SIGUSR1 to one rank before the first step"
tap_like "$(column step early | tail -n 1)" "^[12]$" "one step is made, or two"
tap_is "$(basename "$(last_checkpoint early)")" "$(printf 'step-%08d.h5' "$(column step early | tail -n 1)")" "and saved"

# ---- a save between steps ----
MPILM_FAULT=slow_save=2s train 2 saving --run.steps=100000 --checkpoint.async=false --log.every=100000 >log 2>&1 &
job=$!
wait_for test -e saving/checkpoints/.step-00000005.h5.part
sleep 0.3
kill -TERM "$(process 1 saving)"
ended
tap_is "$status" 75 "SIGTERM to one rank in a save"
tap_is "$(column step saving | tail -n 1) $(basename "$(last_checkpoint saving)")" "5 step-00000005.h5" \
  "costs no further step, and no second save"

# ---- mpirun is told ----
MPILM_FAULT=slow_save=20s train 2 launcher --run.steps=100000 --log.every=100000 >log 2>&1 &
job=$!
wait_for test -e launcher/checkpoints/.step-00000005.h5.part
launcher() { # of the run in a folder
  pgrep -f "run.folder=$1" | while read -r p; do
    [ "$(cat "/proc/$p/comm" 2>/dev/null)" = "$(basename "$(command -v "${MPIRUN:-mpirun}")")" ] || [ "$(cat "/proc/$p/comm" 2>/dev/null)" = orterun ] && echo "$p"
  done
}
kill -TERM "$(launcher launcher)"
ended
tap_ok $((status == 0)) "SIGTERM to mpirun in a save, which it does not wait for"
tap_is "$(find launcher/checkpoints -name 'step-*.h5')" "" "leaves nothing that looks whole"
tap_exit 0 "the next start" -- train 2 launcher
train 2 forwarded --run.steps=100000 --checkpoint.every=0 --log.every=100000 >log 2>&1 &
job=$!
wait_for has_rows forwarded 1
kill -USR1 "$(launcher forwarded)"
ended
tap_is "$status" 75 "SIGUSR1 to mpirun reaches the ranks"
tap_is "$(basename "$(last_checkpoint forwarded)")" "$(printf 'step-%08d.h5' "$(column step forwarded | tail -n 1)")" "the last step is saved"
tap_end
