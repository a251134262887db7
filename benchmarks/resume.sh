#!/bin/bash
# benchmarks/resume.sh - from the start of the program to the first resumed step, against reading the checkpoint once.
# SPDX-License-Identifier: BSD-3-Clause
#
#   benchmarks/resume.sh build/mpilm [RANKS [ROUNDS [--section.key=value]...]]
#
# Trains GPT-2 124M in f32 for a step (B=1, T=64) in a folder of its own, then, in turns: reads the checkpoint with dd, lets
# go of its pages, resumes it for another step. What the step and its save took is taken off.
[ $# -ge 1 ] || { echo "usage: $0 MPILM [RANKS [ROUNDS]]" >&2 && exit 2; }
mpilm=$(realpath "$1") ranks=${2:-1} rounds=${3:-3}
shift $(($# < 3 ? $# : 3))
work=$(mktemp -d "${TMPDIR:-.}/resume.XXXXXX") && cd "$work" || exit 1
trap 'rm -rf "$work"' EXIT
work=$PWD

yes 'one fish two fish red fish blue fish' | head -n 400 >text.txt
"$mpilm" tokenize --vocab bytes --out train.h5 text.txt 2>/dev/null || exit 1
printf '%s\n' 'model: { preset: gpt2-124m, vocab_size: 50257, n_ctx: 64 }' 'data: { train: train.h5, vocab: bytes }' \
  'precision: f32' "batch: { global: $ranks, micro: 1 }" 'checkpoint: { every: 0, keep: 1 }' >config.yaml

seconds() { # COMMAND...
  local begin
  begin=$(date +%s.%N)
  "$@" >log 2>&1 || cat log >&2
  echo "$begin $(date +%s.%N)" | awk '{ print $2 - $1 }'
}
forget() {
  sync run/checkpoints/*.h5
  dd if="$(echo run/checkpoints/*.h5)" iflag=nocache count=0 status=none
}
train() { # STEPS
  mpirun -n "$ranks" --bind-to none "$mpilm" train config.yaml --run.folder=run --run.steps="$1" --verbose "${@:2}" >log 2>&1 ||
    { cat log >&2 && exit 1; }
}
last() { # KEY: of the last row
  sed -n '$s/.*"'"$1"'": *\([0-9.e+-]*\).*/\1/p' run/metrics.jsonl
}
first_step() { # STEPS WORDS...: seconds until the last step begins: its row comes after it and its save
  local begin
  begin=$(date +%s.%N)
  train "$@"
  stat -c %.9Y run/metrics.jsonl | awk -v begin="$begin" -v tokens=$((64 * ranks)) -v rate="$(last tokens_per_s)" \
    -v save="$(last checkpoint)" '{ print $1 - begin - tokens / rate - save }'
}

train 1 "$@"
for ((i = 1; i <= rounds; i++)); do
  forget
  read[i]=$(seconds dd if="$(echo run/checkpoints/*.h5)" of=/dev/null bs=8M)
  forget
  start[i]=$(first_step $((i + 1)) "$@")
  echo "read once ${read[i]} s, first step after ${start[i]} s; $(grep -o 'read and verified in.*' log)"
done
least() {
  printf '%s\n' "$@" | sort -g | head -n 1
}
awk -v r="$(least "${read[@]}")" -v s="$(least "${start[@]}")" -v n="$ranks" \
  'BEGIN { printf "%d ranks: the first resumed step begins after %.2f s, reading once takes %.2f s: %.2f times\n", n, s, r, s / r }'
