#!/usr/bin/env bash
# tests/cudaemu/instructions.sh - the emulator executes each group of instructions as the manuals say.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
programs=$(dirname "$MPILM")/tests/cudaemu
[ -e "$programs/lib/libcudart.so.13" ] || tap_skip_all "configure found no CUDA toolkit"

try() { # HOW PROGRAM [KNOB=VALUE...]: its checks are ours
  local how=$1 program=$2 line checks=0
  shift 2
  while IFS= read -r line; do
    case $line in
    "ok "*) tap_ok 0 "$program, $how: ${line#ok * - }" ;;
    "not ok "*) tap_ok 1 "$program, $how: ${line#not ok * - }" ;;
    1..*) checks=${line#1..} ;;
    *) echo "# $line" ;;
    esac
  done < <(env "$@" timeout 60 "$srcdir/tests/cudaemu/run" "$programs/$program" 2>&1)
  [ "$checks" -gt 0 ] || tap_ok 1 "$program, $how, comes to its end"
}

for program in arithmetic conversions warps matrices; do
  try sm_80 $program CUDAEMU_CC=80
done
try sm_90 matrices CUDAEMU_CC=90
try sm_90 hopper CUDAEMU_CC=90
try "unchecked" hopper CUDAEMU_RACE=0 CUDAEMU_INIT=0
try "preempted at random" hopper CUDAEMU_SLICE=3 CUDAEMU_SEED=7
try "preempted at random" warps CUDAEMU_SLICE=2 CUDAEMU_SEED=5
try "at once" runtime CUDAEMU_LAZY=0
try lazily runtime CUDAEMU_LAZY=1
try "at once" libraries CUDAEMU_LAZY=0
try lazily libraries CUDAEMU_LAZY=1
tap_end
