#!/usr/bin/env bash
# tests/checkpoint/lock.sh - a run folder belongs to one job at a time; an owner that is gone is recognised.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
# shellcheck source=tests/train/common.sh
. "$srcdir/tests/train/common.sh"
run_state=$(dirname "$MPILM")/tests/checkpoint/run_state

wait_for() { # FILE
  for _ in $(seq 200); do [ -e "$1" ] && return; sleep 0.05; done
}
owner() { # FOLDER HOST PID START JOB RESTARTS BEAT: a lock as its owner writes it
  mkdir -p "$1"
  printf 'host: %s\npid: %s\nstart: %s\njob: %s\nrestarts: %s\nbeat: %s\n' "${@:2}" >"$1/.lock"
}

# ---- the owner is there ----
MPILM_FAULT=slow_save=4s "$run_state" save run 0 10 >first.out 2>first.err &
first=$!
wait_for run/checkpoints/.step-00000010.h5.part
kill -STOP $first # however long the others take: it does not end before them
tap_exit 2 "a second job is refused" -- ranks 2 "$run_state" save run 0 20
tap_like "$tap_err" "run/.lock: the run folder is in use by host $(uname -n), process $first, Slurm job none" "by name"
tap_exit 0 "who only reads is not" -- "$MPILM" ckpt ls run
kill -CONT $first
wait $first
tap_ok $? "the first is not disturbed"
tap_is "$(ls -A run/checkpoints)" step-00000010.h5 "its save neither"
tap_is "$(wc -c <run/.lock)" 0 "afterwards the folder is nobody's"
for i in 1 2 3; do
  for j in 1 2; do
    MPILM_FAULT=slow_save=60s "$run_state" save "both$i" 0 $j >/dev/null 2>"both.err$j" &
    pids[j]=$!
  done
  wait -n -p refused "${pids[@]}"
  tap_is $? 2 "two at the same moment: one is refused"
  owner=$((pids[1] + pids[2] - refused))
  tap_is "$(sed -n 's/^pid: //p' "both$i/.lock")" $owner "the other has it"
  kill -9 $owner
  wait $owner 2>/dev/null
done

# ---- the owner is gone ----
MPILM_FAULT=slow_save=20s "$run_state" save killed 0 10 >/dev/null 2>&1 &
first=$!
wait_for killed/checkpoints/.step-00000010.h5.part
kill -9 $first
wait $first 2>/dev/null
tap_exit 0 "killed" -- "$run_state" save killed 0 20
tap_like "$tap_err" "warning: .*left by host .*, process $first, .* which is gone: taken over" "which is recognised, and said"
owner reused "$(uname -n)" $$ 1 none 0 3
tap_exit 0 "a process that has its number but began at another time" -- "$run_state" save reused 0 1
owner far elsewhere 1 5 none 0 3
started=$SECONDS
RUN_STATE_LOCK=2 tap_exit 0 "on another host, without a sign of life" -- "$run_state" save far 0 1
tap_ok $((SECONDS - started < 2)) "for as long as was to be waited"
owner alive elsewhere 1 5 none 0 3
for beat in 4 5 6; do sleep 0.7; owner alive elsewhere 1 5 none 0 $beat; done &
RUN_STATE_LOCK=4 tap_exit 2 "on another host, with one" -- "$run_state" save alive 0 1
tap_like "$tap_err" "in use by host elsewhere, process 1" "is refused by name"
wait
# An owner that is suspended holds the file system's lock, and gives no other sign of life.
MPILM_FAULT=slow_save=20s "$run_state" save held 0 10 >/dev/null 2>&1 &
first=$!
wait_for held/checkpoints/.step-00000010.h5.part
kill -STOP $first
owner held elsewhere 1 5 1 0 3
SLURM_JOB_ID=2 SLURM_RESTART_COUNT=1 RUN_STATE_LOCK=1 tap_exit 2 "a lock that is held, another job that was requeued" -- \
  "$run_state" save held 0 1
tap_like "$tap_err" "in use by host elsewhere, process 1, Slurm job 1" "is refused by name"
kill -9 $first
wait $first 2>/dev/null
owner again elsewhere 1 5 77 0 3
started=$SECONDS
SLURM_JOB_ID=77 SLURM_RESTART_COUNT=1 RUN_STATE_LOCK=60 tap_exit 0 "the same job, requeued" -- "$run_state" save again 0 1
tap_ok $((SECONDS - started > 30)) "does not wait"
: >garbage.lock
mkdir garbage && echo "what is this" >garbage/.lock
tap_exit 0 "a lock file that says nothing is nobody's" -- "$run_state" save garbage 0 1

# ---- training ----
make_config config.yaml
make_data
# It ends whatever else a failed save means.
train 2 lost --run.steps=1000000 --checkpoint.every=50 --log.every=100000 --checkpoint.on_failure=continue >log 2>&1 &
launcher=$!
for _ in $(seq 200); do [ -s lost/.lock ] && [ -s lost/metrics.jsonl ] && break; sleep 0.05; done
tap_exit 2 "a second training is refused" -- train 1 lost
owner lost elsewhere 1 5 none 0 1
wait $launcher
tap_is $? 1 "a run whose folder was taken over ends"
tap_like "$(cat log)" "lost/.lock: the run folder was taken over by host elsewhere, process 1" "and says by whom"
# What it was writing meanwhile gets no name: the file under the temporary one may be the other job's.
MPILM_FAULT=slow_save=2s train 2 late --run.steps=1000000 --checkpoint.every=50 --log.every=100000 >log 2>&1 &
launcher=$!
wait_for late/checkpoints/.step-00000050.h5.part
owner late elsewhere 1 5 none 0 1
wait $launcher
tap_is "$? $(ls -A late/checkpoints)" "1 .step-00000050.h5.part" "a save under way then is not completed"
tap_like "$(cat log)" "late/.lock: the run folder was taken over by host elsewhere, process 1" "and it is said"
tap_end
