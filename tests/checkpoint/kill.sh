#!/usr/bin/env bash
# tests/checkpoint/kill.sh - a save that is killed, or finds the disk full, costs no older checkpoint.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
run_state=$(dirname "$MPILM")/tests/checkpoint/run_state

resumed() { # RUN: by one rank, without mpirun
  "$run_state" resume "$1" 2>resume.err
}
pids_of() { # the processes of this test's run_state on RUN
  local p
  for p in /proc/[0-9]*; do
    [ "$({ tr '\0' ' ' <"$p/cmdline"; } 2>/dev/null)" = "$run_state save $1 " ] && echo "${p#/proc/}"
  done
}

# ---- one rank, or all, killed in the middle of a save ----
for victims in 1 3; do
  run=kill$victims
  ranks 3 "$run_state" save $run 0 10 >/dev/null 2>&1
  MPILM_FAULT=slow_save=30s ranks 3 "$run_state" save $run 0 20 >kill.out 2>kill.err &
  job=$!
  for _ in $(seq 200); do [ -e $run/checkpoints/.step-00000020.h5.part ] && break; sleep 0.1; done
  sleep 0.3
  tap_is "$(ls -A $run/checkpoints)" "$(printf '.step-00000020.h5.part\nstep-00000010.h5')" "a save is under way"
  pids=$(pids_of "$run 0 20" | head -n $victims)
  tap_is "$(wc -w <<<"$pids")" "$victims" "$victims of 3 ranks are found"
  # shellcheck disable=SC2086
  kill -9 $pids
  wait $job
  tap_ok $(($? == 0)) "$victims of 3 ranks killed: the job ends"
  tap_is "$(ls $run/checkpoints)" "step-00000010.h5" "the torn file has no checkpoint's name"
  tap_is "$(resumed $run)" "resumed 10" "the earlier one is resumed"
  tap_is "$(ls -A $run/checkpoints | head -1)" ".step-00000020.h5.part" "who only reads removes nothing"
  ranks 2 "$run_state" save $run 0 20 >/dev/null 2>again.err
  tap_is "$(ls -A $run/checkpoints)" "$(printf 'step-00000010.h5\nstep-00000020.h5')" "the next start cleans up and saves"
  tap_like "$(cat again.err)" "removed .*/.step-00000020.h5.part" "and says what it removed"
  tap_is "$(resumed $run)" "resumed 20" "which is resumed"
done

# ---- killed at any moment: what was announced is what is found, or something newer ----
announced=0 worse=0 bad=0
for i in $(seq 12); do
  steps=$(seq $((i * 1000)) $((i * 1000 + 400)))
  # shellcheck disable=SC2086
  { timeout -s KILL 0.$(((i * 37) % 50 + 30)) "$run_state" save any 3 $steps >any.out; } 2>/dev/null
  last=$(tail -n 1 any.out | awk '/^saved/ { print $2 }')
  announced=${last:-$announced}
  got=$(resumed any | awk '/^resumed/ { print $2 }')
  [ "${got:-0}" -ge "$announced" ] || worse=$((worse + 1))
  [ -z "$(ls any/checkpoints)" ] || "$MPILM" ckpt verify any >/dev/null 2>&1 || bad=$((bad + 1)) # a slow start leaves nothing
done
tap_ok $((announced == 0)) "12 runs were killed while they saved; the last announced step is $announced"
tap_is "$worse" 0 "the newest that verifies is never older than the last announced"
tap_is "$bad" 0 "and nothing with a final name is damaged"

# ---- no space ----
full() { # RUN WORDS PATTERN: a second save that fails for want of space; the first is there
  tap_like "$(cat full.err)" "$3" "$2: reported with path and reason"
  tap_is "$(ls -A "$1/checkpoints")" "step-00000001.h5" "$2: the partial file is gone, the older checkpoint stays"
  tap_is "$(resumed "$1")" "resumed 1" "$2: and is good"
}
"$run_state" save limit 0 1 >/dev/null 2>&1
for bytes in 1000 5000 12000; do # the file has more
  RUN_STATE_FILE_LIMIT=$bytes "$run_state" save limit 0 2 >full.out 2>full.err
  full limit "ulimit -f: $bytes bytes" "mpilm: limit/checkpoints/.step-00000002.h5.part: .*File too large"
done
mkdir small
if mount -t tmpfs -o size=64k mpilm-test small 2>/dev/null; then
  trap 'umount small' EXIT
  ranks 2 "$run_state" save small/run 0 1 >/dev/null 2>&1
  for kib in 24 34 38 42 46; do # the less is free, the earlier it fails
    rm -f small/filler
    dd if=/dev/zero of=small/filler bs=1K count=$kib status=none
    ranks 2 "$run_state" save small/run 0 2 >full.out 2>full.err
    if grep -q "saved 2" full.out; then rm -f small/run/checkpoints/step-00000002.h5; continue; fi
    full small/run "$kib KiB of 64 taken" "mpilm: .*small/run/(.lock|checkpoints/.step-[0-9a-z.]*part): .*No space left on device"
  done
else
  tap_skip "no right to mount" "a full disk"
fi
tap_end
