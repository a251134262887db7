#!/bin/bash
# benchmarks/compare_llmc.sh - a GPT-2 124M training step, B=4 T=64, here and in llm.c's CPU trainer, in turns, in one run.
# SPDX-License-Identifier: BSD-3-Clause
#
#   benchmarks/compare_llmc.sh build/benchmarks/step DIR/train_gpt2 [ROUNDS [STEPS]]
#
# DIR/train_gpt2 is the other program, built as its Makefile does; it runs in its folder, where its weights and tokens lie, and
# is stopped after STEPS steps. Of it only the lines "step N: ... (took X ms)" are read. The best step of all rounds counts.
[ $# -ge 2 ] || { echo "usage: $0 STEP OTHER [ROUNDS [STEPS]]" >&2 && exit 2; }
step=$1 other=$2 rounds=${3:-3} steps=${4:-3}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(nproc)}

least() { # the least of the numbers on stdin
  sort -g | head -n 1
}

theirs() { # milliseconds of their steps, the first left out
  coproc run (cd "$(dirname "$other")" && exec "./$(basename "$other")")
  # shellcheck disable=SC2154  # the coprocess sets it
  local pid=$run_PID n=0 line
  while [ $n -le "$steps" ] && read -r line <&"${run[0]}"; do
    [[ $line =~ ^step.*took\ ([0-9.]+)\ ms ]] || continue
    [ $n -eq 0 ] || echo "${BASH_REMATCH[1]}"
    n=$((n + 1))
  done
  kill "$pid" 2>/dev/null
  wait "$pid" 2>/dev/null
}

ours() { # PRECISION
  "$step" --json --model.preset=gpt2-124m --model.n_ctx=64 --model.vocab_size=50257 --batch.micro=4 --precision="$1" \
    --run.steps="$steps" 2>/dev/null | sed 's/.*"step_s": \([0-9.e+-]*\).*/\1/' | awk '{ print 1e3 * $1 }'
}

here_f32=() here_bf16=() there=()
for ((i = 1; i <= rounds; i++)); do
  there+=("$(theirs | least)") here_f32+=("$(ours f32)") here_bf16+=("$(ours bf16)")
  echo "round $i: llm.c ${there[-1]} ms, mpilm f32 ${here_f32[-1]} ms, bf16 ${here_bf16[-1]} ms"
done
awk -v t="$(printf '%s\n' "${there[@]}" | least)" -v f="$(printf '%s\n' "${here_f32[@]}" | least)" \
  -v b="$(printf '%s\n' "${here_bf16[@]}" | least)" -v n="$OMP_NUM_THREADS" \
  'BEGIN { printf "%d threads: llm.c / mpilm = %.2f in f32, %.2f in bf16\n", n, t / f, t / b }'
