#!/bin/bash
# tests/train/test_samples.sh - which windows a step trains on: a function of seed and step, whatever the layout.
. "$srcdir/tests/tap.sh"
. "$srcdir/tests/train/common.sh"

make_config config.yaml

dataset_of() { # WINDOWS FILE: of 16 tokens each; a document ends with one token more than its bytes
  head -c $(($1 * 16)) /dev/zero | tr '\0' 'a' >text.txt
  rm -f "$2"
  "$MPILM" tokenize --vocab bytes --out "$2" text.txt >/dev/null 2>&1
}

samples() { # FOLDER: a step a line
  sed -n 's/.*"samples": \[\([^]]*\)\].*/\1/p' "$1/metrics.jsonl"
}

sampled() { # RANKS FOLDER OVERRIDES...
  train "$1" "$2" --log.samples --data.train=few.h5 --data.val= --checkpoint.every=0 --schedule.warmup=0 "${@:3}"
}

dataset_of 10 few.h5
tap_ok $? "10 windows"
tap_exit 0 "12 steps of 4 on 2 ranks" -- sampled 2 ten --batch.global=4 --run.steps=12
tap_is "$(samples ten | wc -l)" 12 "all 12 steps are made"
in_order=$(samples ten | tr -d ' ' | tr ',' '\n')
for epoch in 1 2 3 4; do
  of_epoch=$(sed -n "$((epoch * 10 - 9)),$((epoch * 10))p" <<<"$in_order")
  tap_is "$(sort -n <<<"$of_epoch" | tr '\n' ' ')" "0 1 2 3 4 5 6 7 8 9 " "epoch $epoch: every window once"
  [ "$of_epoch" != "${last-}" ]
  tap_ok $? "in an order of its own"
  last=$of_epoch
done
tap_exit 0 "on 3 ranks, one sequence at a time" -- sampled 3 three --batch.global=4 --batch.micro=1 --run.steps=12
tap_is "$(samples three)" "$(samples ten)" "the same windows"
tap_exit 0 "another seed" -- sampled 1 seed --batch.global=4 --run.steps=12 --run.seed=2
[ "$(samples seed)" != "$(samples ten)" ]
tap_ok $? "other windows"

for depth in 0 1 7; do
  tap_exit 0 "read $depth ahead" -- sampled 3 "ahead$depth" --batch.global=4 --batch.micro=1 --run.steps=12 --data.prefetch=$depth
  same three "ahead$depth" "read $depth ahead: the same run"
done

dataset_of 7 few.h5
tap_exit 0 "7 windows, 3 ranks, 20 steps" -- sampled 3 seven --batch.global=3 --batch.micro=1 --run.steps=20
tap_is "$(column step seven | tail -n 1)" 20 "the last step is reached"

dataset_of 40 few.h5
tap_exit 0 "2 epochs of 40" -- sampled 2 whole --batch.global=4 --run.steps=20
for stop in 3 7 11 0; do
  sampled 2 parts --batch.global=4 --run.steps=20 --run.stop_after=$stop >log 2>&1
done
tap_is "$(samples parts)" "$(samples whole)" "stopped after 3, 7 and 11: the same windows"
tap_is "$(sed -n '$=' <<<"$(samples parts)")" 20 "of as many steps"

dataset_of 1 few.h5
tap_exit 0 "17 tokens are one sample" -- sampled 1 one --run.steps=2 --batch.global=1
tap_is "$(samples one | tr '\n' ' ')" "0 0 " "again and again"
head -c 15 /dev/zero | tr '\0' 'a' >text.txt
rm few.h5
"$MPILM" tokenize --vocab bytes --out few.h5 text.txt >/dev/null 2>&1
tap_exit 2 "16 tokens are none" -- sampled 1 none --run.steps=2
tap_like "$tap_err" "few.h5.*16 tokens.*at least.*17" "and said so"
tap_end
