#!/bin/bash
# tests/train/test_verbose.sh - --verbose says how a run does its work; without it a run says no such thing.
. "$srcdir/tests/tap.sh"
. "$srcdir/tests/train/common.sh"

make_config config.yaml
make_data
tap_ok $? "a dataset is made"
short=(--run.steps=4 --schedule.warmup=1 --checkpoint.every=1 --checkpoint.keep=1 --log.every=2)
tap_exit 0 "a quiet run" -- train 2 quiet "${short[@]}"
lines='^(product |gradients: |removes |the checkpoint was read)|its save took|seconds of the slowest rank'
tap_is "$(grep -E "$lines" <<<"$tap_err")" "" "says none of it"
tap_exit 75 "a verbose one" -- train 2 run "${short[@]}" --verbose --run.stop_after=3
# TINY, a micro-batch of 4 x 16 tokens, 32 channels: queries, keys and values are 96.
tap_like "$tap_err" '^product \[64, 32\] x \[32, 96\], f32 -> f32: [a-z]' "how oneDNN computes a product"
tap_like "$tap_err" '^gradients: [1-9][0-9]* buckets, [0-9.]+ MiB of each rank.s part at most, exchanged during backward' \
  "the buckets"
tap_like "$tap_err" '^step +2  seconds of the slowest rank: data [0-9.]+, compute [0-9.]+, reduce ' "where a step's time goes"
tap_like "$tap_err" '^step +1  its save took [0-9.]+ s' "what a save took"
tap_like "$tap_err" '^removes run/checkpoints/step-00000001.h5$' "what it removed"
tap_exit 0 "resumed" -- train 2 run "${short[@]}" --verbose
tap_like "$tap_err" '^the checkpoint was read and verified in [0-9.]+ s' "what reading took"
tap_exit 0 "help" -- "$MPILM" train --help
tap_like "$tap_out" '^  --show-schedule$' "the help has the rows of train itself"
tap_like "$tap_out" '^  --svg=' "all of them"
tap_like "$tap_out" '^  --run.folder=' "and those of a config"
tap_end
