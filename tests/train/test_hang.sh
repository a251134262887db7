#!/bin/bash
# tests/train/test_hang.sh - one rank fails, dies, stops or hangs: the job ends, and says which rank it was.
. "$srcdir/tests/tap.sh"
. "$srcdir/tests/train/common.sh"

make_config config.yaml
make_data
tap_ok $? "a dataset is made"

ends_within() { # SECONDS WORDS... -- COMMAND...: not with 0, and not by the limit of `ranks`
  local limit=$1 words=() began=$SECONDS status
  shift
  while [ "$1" != -- ]; do
    words+=("$1")
    shift
  done
  shift
  "$@" >log 2>&1
  status=$?
  [ $status -ne 0 ] && [ $status -ne 124 ] && [ $((SECONDS - began)) -le "$limit" ]
  tap_ok $? "${words[*]}: over after $((SECONDS - began)) s with exit code $status"
  tap_err=$(cat log)
}

MPILM_FAULT=hang@step4:rank1 ends_within 30 "rank 1 hangs in step 4" -- train 3 hang --run.hang_timeout=3
tap_like "$tap_err" "step 4.*no end after 3 s.*rank 1 on .* is in 'step' of step 4|step 4, 'step': no end after 3 s" \
  "the rank, the step and the phase are named"
tap_is "$(grep -c 'no end after' <<<"$tap_err")" 1 "once"
for way in die exit; do
  MPILM_FAULT=$way@step5:rank2 ends_within 30 "$way: rank 2 dies in step 5" -- train 4 $way
  tap_like "$tap_err" "^mpilm: .rank 1 [^]]+. step 5, '[a-z]+': rank 2 on [^ ]+, process [0-9]+, has died; ending the job" \
    "$way: step, phase, rank and host are named"
  tap_is "$(grep -c '^mpilm: .*ending the job' <<<"$tap_err")" 1 "$way: once"
done
tap_exit 0 "the next start goes on" -- train 4 die

# SIGSTOP: the process is there and does nothing.
(
  for _ in $(seq 100); do
    [ "$(wc -l 2>/dev/null <frozen/metrics.jsonl)" -ge 3 ] 2>/dev/null && break
    sleep 0.1
  done
  for p in $(pgrep -f "run.folder=frozen"); do
    [ "$(cat "/proc/$p/comm" 2>/dev/null)" = mpilm ] &&
      tr '\0' '\n' <"/proc/$p/environ" | grep -q '^OMPI_COMM_WORLD_RANK=2$' && kill -STOP "$p"
  done
) &
ends_within 40 "rank 2 is stopped" -- train 3 frozen --run.steps=1000000 --checkpoint.every=0 --run.hang_timeout=4
wait
tap_like "$tap_err" "no end after 4 s.*rank 2 gives no sign" "the silent rank is named"
tap_exit 0 "the next start cleans up and goes on" -- train 3 frozen --run.steps=5
tap_is "$(find frozen -name '.watchdog-*')" "" "no note is left"

# The data's file is cut under a run: the loader's error is that of all.
cp train.h5 cut.h5
(
  for _ in $(seq 100); do
    [ "$(wc -l 2>/dev/null <cut/metrics.jsonl)" -ge 3 ] 2>/dev/null && break
    sleep 0.1
  done
  truncate -s 4096 cut.h5
) &
ends_within 30 "the data is cut" -- train 3 cut --data.train=cut.h5 --run.steps=1000000 --checkpoint.every=0 --log.every=1000
wait
tap_like "$tap_err" "^mpilm: .rank [0-2] [^]]+. step [0-9]+, 'data': .*cut.h5" "rank, host, step, phase and file are named"
tap_is "$(grep -c '^mpilm: .*cut.h5' <<<"$tap_err")" 1 "once"

# A bit flips on one rank: nothing else would ever show it.
tap_alone lm_check_replicas 1 "step 6: replicas differ: final_norm/weight is not the same on rank 2 of 3" \
  "a weight changes on rank 2 after step 4" -- env MPILM_FAULT=flip_weight@step4:rank2 timeout 100 \
  "${MPIRUN:-mpirun}" -n 3 "$MPILM" train config.yaml --run.folder=flipped --run.check_replicas=3 --parallel.zero=0
tap_exit 0 "without a flip" -- train 3 unflipped --run.check_replicas=3

# A suspended job does not age: all ranks are stopped for longer than the limit, then go on, to the end asked for.
steps_of() { # FOLDER
  wc -l 2>/dev/null <"$1/metrics.jsonl" || echo 0
}
has_more_than() { # STEPS FOLDER: waits for it
  for _ in $(seq 200); do
    [ "$(steps_of "$2")" -gt "$1" ] && return
    sleep 0.1
  done
  return 1
}
train 2 suspended --run.steps=1000000 --checkpoint.every=0 --run.hang_timeout=2 --log.every=1000 >log 2>&1 &
launcher=$!
has_more_than 2 suspended
pids=$(for p in $(pgrep -f "run.folder=suspended"); do
  [ "$(cat "/proc/$p/comm" 2>/dev/null)" = mpilm ] && echo "$p"
done)
# shellcheck disable=SC2086
kill -STOP $pids && sleep 4 && before=$(steps_of suspended) && kill -CONT $pids
has_more_than "$before" suspended
tap_ok $? "a job that was suspended for longer goes on"
# shellcheck disable=SC2086
kill -TERM $pids
wait $launcher
tap_is $? 75 "and stops when it is asked to"
tap_end
