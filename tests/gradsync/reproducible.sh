#!/bin/bash
# tests/gradsync/reproducible.sh - run.reproducible: the same bits on any number of ranks.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
# shellcheck source=tests/train/common.sh
. "$srcdir/tests/train/common.sh"

make_config config.yaml
make_data
tap_ok $? "a dataset is made"
common=(--run.reproducible=true --run.steps=6 --checkpoint.every=0)

for precision in f32 bf16; do
  tap_exit 0 "$precision on 1 rank" -- train 1 $precision --precision=$precision "${common[@]}"
  for n in 2 3 4 8; do
    tap_exit 0 "$precision on $n ranks" -- train $n $precision$n --precision=$precision --batch.micro=$n "${common[@]}"
    same $precision $precision$n "$precision on $n ranks: the bits of one"
  done
  tap_exit 0 "$precision, nothing shared by 3" -- train 3 whole$precision --precision=$precision --parallel.zero=0 \
    "${common[@]}"
  same $precision whole$precision "$precision, nothing shared by 3: the bits of one"
  tap_exit 75 "$precision: 2 ranks to step 2" -- train 2 parts$precision --precision=$precision "${common[@]}" \
    --run.stop_after=2
  tap_exit 75 "3 ranks to step 4" -- train 3 parts$precision --precision=$precision "${common[@]}" --run.stop_after=4
  tap_exit 0 "1 rank to the end" -- train 1 parts$precision --precision=$precision "${common[@]}"
  same $precision parts$precision "$precision, resumed twice: the bits of one that never stopped"
done
tap_exit 0 "without it" -- train 1 plain --precision=f32 --run.steps=6 --checkpoint.every=0
close_to loss f32 plain 1e-5 "the losses are those without it"

tap_exit 0 "5 sequences, 1 rank" -- train 1 five "${common[@]}" --batch.global=5
for n in 2 4; do
  tap_exit 0 "5 sequences, $n ranks" -- train $n five$n "${common[@]}" --batch.global=5
  same five five$n "5 sequences on $n ranks: the bits of one"
done
tap_exit 2 "with shared gradients" -- train 2 refused "${common[@]}" --parallel.zero=2
tap_like "$tap_err" "run.reproducible is true with parallel.zero 2.*want parallel.zero 0 or 1" "is refused with words"
tap_end
