#!/usr/bin/env bash
# tests/checkpoint/room.sh - training where its folder is full, read-only, or has been copied with other times.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
# shellcheck source=tests/train/common.sh
. "$srcdir/tests/train/common.sh"
make_config config.yaml
make_data
tap_ok $? "a dataset is made"
steps() { # FOLDER: of its checkpoints
  "$MPILM" ckpt ls "$1" | awk 'NR > 1 { printf "%s%s", sep, $1; sep = " " }'
}

# ---- times mean nothing ----
tap_exit 75 "10 steps" -- train 2 copied --run.stop_after=10
find copied -exec touch -d 2035-01-01 {} +
touch -d 1990-01-01 copied/checkpoints/step-00000010.h5 copied/metrics.jsonl copied/.lock
tap_exit 0 "all times wrong" -- train 2 copied --run.steps=15 --checkpoint.keep=2
tap_like "$tap_err" "resumed from step 10" "the newest by number is resumed"
tap_is "$(steps copied)" "10 15" "and the oldest by number goes"

# ---- a disk of 1 MiB: room for two checkpoints of 470 kB ----
mkdir small locked
if mount -t tmpfs -o size=1m mpilm-test small 2>/dev/null; then
  trap 'umount small; umount -q locked' EXIT
  for async in true false; do
    rm -rf small/run
    tap_exit 1 "no room for the third, async=$async" -- train 2 small/run --checkpoint.async=$async
    tap_like "$tap_err" "small/run/checkpoints/.step-00000015.h5.part: .*No space left on device" "says where and why"
    tap_is "$(steps small/run)" "5 10" "the older ones are there"
    tap_exit 0 "and good" -- "$MPILM" ckpt verify small/run
    tap_is "$(find small/run/checkpoints -name '.*')" "" "nothing is left of it"
  done
  rm -rf small/run
  tap_exit 1 "training goes on, if that is wanted" -- train 2 small/run --checkpoint.on_failure=continue
  tap_like "$tap_err" "warning: a save failed, training goes on" "with a warning"
  tap_is "$(column step small/run | tail -n 1)" 19 "to the step whose save is the last"
  rm -rf small/run
  tap_exit 0 "one that goes makes room" -- train 2 small/run --checkpoint.keep=1
  rm -rf small/run
  dd if=/dev/zero of=small/filler bs=1k count=700 status=none
  tap_exit 1 "no room for one: known before the first step" -- train 2 small/run
  tap_like "$tap_err" "No space left on device: [0-9]+ bytes are needed, [0-9]+ are free" "how much is needed, and free"
  tap_ok $(($(column step small/run 2>/dev/null | wc -l) > 0)) "no step was made"
  mkdir -p small/run
  if mount --bind small locked && mount -o remount,ro,bind locked; then
    tap_exit 2 "a file system that is read-only is refused" -- train 2 locked/run
    tap_like "$tap_err" "locked/run.*: Read-only file system" "by name"
  else
    tap_skip "no read-only mounts here" "a file system that is read-only is refused"
  fi
else
  tap_skip "no right to mount" "a full disk"
fi
tap_end
