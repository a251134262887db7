#!/bin/bash
# tests/train/test_bad_id.sh - an id out of range that one rank alone meets: all ranks stop, one says where it is.
. "$srcdir/tests/tap.sh"
. "$srcdir/tests/train/common.sh"

make_config config.yaml
make_data
tap_ok $? "a dataset is made"

patch() { # FILE TOKEN: its id becomes 60000, which is EA60
  local at
  at=$("$MPILM" data info "$1" | sed -n 's/^stored as .* at byte \([0-9]*\)$/\1/p')
  printf '\x60\xea' | dd of="$1" bs=1 seek=$((at + 2 * $2)) conv=notrunc 2>/dev/null
}

cp train.h5 bad.h5
cp val.h5 badval.h5
patch bad.h5 5000
patch badval.h5 1000
tap_alone lm_trainer_step 1 60000 "an id out of range" -- train 3 bad --data.train=bad.h5 --run.steps=1000 \
  --checkpoint.every=0 --log.every=1000 --schedule.warmup=0
tap_like "$tap_err" "sample [0-9]+, window 31[12]:" "and where it is: token 5000 of windows of 16"
tap_alone lm_evaluate 1 60000 "an id out of range, in training" -- train 3 badeval --data.val=badval.h5 --eval.every=5
tap_exit 0 "a good run" -- train 2 good --run.steps=5
tap_alone lm_evaluate 1 60000 "an id out of range, in mpilm eval" -- ranks 3 "$MPILM" eval config.yaml --run.folder=good --data.val=badval.h5
tap_end
