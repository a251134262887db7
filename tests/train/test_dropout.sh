#!/bin/bash
# tests/train/test_dropout.sh - masks follow from seed and sample: not from ranks, threads, micro-batches, evaluations.
. "$srcdir/tests/tap.sh"
. "$srcdir/tests/train/common.sh"

make_config config.yaml
make_data
tap_ok $? "a dataset is made"
drop() { # RANKS FOLDER OVERRIDES...
  train "$@" --model.dropout=0.1
}

tap_exit 0 "with dropout" -- drop 1 one
tap_exit 0 "without" -- train 1 without
[ "$(column loss one)" != "$(column loss without)" ]
tap_ok $? "dropout changes the losses"
tap_exit 0 "another seed" -- drop 1 seed --run.seed=2
[ "$(column loss one | head -n 1)" != "$(column loss seed | head -n 1)" ]
tap_ok $? "so does the seed"
for n in 2 3; do
  tap_exit 0 "on $n ranks" -- drop $n ranks$n
  close_to loss one ranks$n 1e-5 "$n ranks drop what 1 drops"
done
tap_exit 0 "micro-batches of 5" -- drop 1 micro --batch.micro=5
close_to loss one micro 1e-5 "micro-batches change no mask"
OMP_NUM_THREADS=4 tap_exit 0 "4 threads" -- drop 1 threads
same one threads "4 threads: the same bits as 1"

# Evaluation leaves training untouched, whenever it comes.
for every in 0 5 7; do
  tap_exit 0 "evaluated every $every steps" -- drop 1 eval$every --run.steps=40 --eval.every=$every --eval.windows=3
done
same eval0 eval5 "evaluation every 5 steps changes no loss"
same eval0 eval7 "nor does every 7"
tap_end
