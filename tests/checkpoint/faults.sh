#!/usr/bin/env bash
# tests/checkpoint/faults.sh - every call that touches a checkpoint fails once: what was announced is still there.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
run_state=$(dirname "$MPILM")/tests/checkpoint/run_state
shim=$PWD/fault_shim.so
nm "$run_state" 2>/dev/null | grep -q __asan_init && tap_skip_all "a sanitizer wants to be the first library"
${CC:-cc} -shared -fPIC -D_GNU_SOURCE -o "$shim" "$srcdir/tests/checkpoint/fault_shim.c" -ldl 2>cc.err ||
  tap_skip_all "no compiler for the library that makes calls fail"
export RUN_STATE_POLICY=${RUN_STATE_POLICY-async,full,best} RUN_STATE_LOSS_1=3 RUN_STATE_LOSS_2=2 RUN_STATE_LOSS_3=1

save() { # RUN STEP...: by one rank; the shim is in it alone
  LD_PRELOAD=$shim "$run_state" save "$1" 2 "${@:2}" >save.out 2>save.err
}
newest() { # RUN: the newest that verifies
  "$run_state" resume "$1" 2>/dev/null | awk '/^resumed/ { print $2 }'
}

tried=0 unheard=0 worse=0 left=0 crashed=0 lost=0
for call in write fsync rename unlink close link fallocate; do
  rm -rf count all
  FAULT_COUNT=$PWD/count FAULT_CALL=$call save all 1 2 3
  calls=$(wc -c <count 2>/dev/null)
  step=$((${calls:-0} / ${FAULTS_PER_CALL:-3} + 1)) # a few of each kind; FAULTS_PER_CALL=1000 tries all
  for n in $(seq 1 $step "${calls:-0}"); do
    for errno in 5 28; do # EIO, ENOSPC
      [ $errno = 28 ] && [ $call != write ] && [ $call != fallocate ] && continue
      rm -rf run
      FAULT_CALL=$call FAULT_N=$n FAULT_ERRNO=$errno save run 1 2 3
      status=$?
      tried=$((tried + 1))
      [ $status -le 2 ] || crashed=$((crashed + 1))
      announced=$(awk '/^saved/ { s = $2 } END { print s + 0 }' save.out)
      got=$(newest run)
      [ "${got:-0}" -ge "$announced" ] || worse=$((worse + 1))
      [ "$(grep -c ^saved save.out)" -eq 3 ] || grep -q "Input/output error\|No space left" save.err || unheard=$((unheard + 1))
      [ "$(grep -c ^saved save.out)" -ge 2 ] || [ "$status" -ne 0 ] || lost=$((lost + 1)) # one fault costs one save
      rm -f save.err
      save run 4
      [ "$(newest run)" = 4 ] || left=$((left + 1))
      find run/checkpoints -name '.*part' | grep -q . && left=$((left + 1))
      [ "$(find run/checkpoints -name 'step-*' | wc -l)" -le 2 ] || left=$((left + 1))
    done
  done
done
tap_ok $((tried < 20)) "$tried calls failed, each in a run of its own"
tap_is $crashed 0 "no run crashed"
tap_is $worse 0 "the newest that verifies is never older than the last announced"
tap_is $unheard 0 "no failed save without the system's words"
tap_is $lost 0 "one fault costs one save, not those after it"
tap_is $left 0 "the next start saves, keeps two and leaves nothing behind"

FAULT_SHORT=1 save short 1
tap_is "$(newest short)" 1 "writes that do half of what they should are gone on with"
tap_exit 0 "to the last byte" -- "$MPILM" ckpt verify short
for errno in 122 27; do # EDQUOT, EFBIG
  FAULT_CALL=fallocate FAULT_N=1 FAULT_ERRNO=$errno save quota 1
  tap_like "$(cat save.err)" "quota/checkpoints/.step-00000001.h5.part: cannot reserve its space: (Disk quota exceeded|File too large)" \
    "errno $errno is found before anything is written"
done
# ---- a disk that gives back something else than it was given ----
save corrupt 1
FAULT_CORRUPT=1 save corrupt 2
tap_like "$(cat save.err)" "corrupt/checkpoints/.step-00000002.h5.part: /[^ ]*: what is read back is not what was written" \
  "where all is read back, it is noticed before the file gets its name"
tap_is "$(newest corrupt) $(find corrupt/checkpoints -name '*.h5*' | wc -l)" "1 2" "the older one stands (as best.h5 too), nothing is left"

# ---- quotas, which this process would have ----
if command -v setpriv >/dev/null && [ "$(id -u)" = 0 ]; then
  as_user() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
  chmod 777 .
else
  as_user() { "$@"; }
fi
save_as_user() { # RUN: two steps
  as_user env LD_PRELOAD="$shim" "$run_state" save "$1" 2 1 2 >save.out 2>save.err
}
if [ "$(id -u)" != 0 ] || command -v setpriv >/dev/null; then
  FAULT_QUOTA=10 save_as_user of_user
  tap_like "$(cat save.err)" "of_user/checkpoints/.*part: Disk quota exceeded: [0-9]+ bytes are needed, the quota of user $(as_user id -u) leaves 9216" \
    "a quota too small is told before anything is written, whose it is and what it leaves"
  FAULT_GROUP=1 FAULT_QUOTA=10 save_as_user of_group
  tap_like "$(cat save.err)" "the quota of group $(as_user id -g) leaves 9216" "that of a group too"
  FAULT_QUOTA=100000 save_as_user enough
  tap_is "$(cat save.out)" "$(printf 'saved 1\nsaved 2')" "one that is large enough is no matter"
else
  tap_skip "no setpriv" "quotas"
fi
tap_end
