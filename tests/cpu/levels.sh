# tests/cpu/levels.sh - the comparisons with the reference hold at every level of the instruction set of this CPU.
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
. "$srcdir/tests/tap.sh"

build=$(dirname "$MPILM")
"$MPILM" info >info.out
best=$(sed -n 's/^isa *//p' info.out)

for level in portable x86-64 x86-64-v3 x86-64-v4; do
  if [ "$level" = "$best" ]; then
    continue # the other tests run at this one
  elif ! MPILM_ISA=$level "$MPILM" info >level.out 2>level.err; then
    tap_is "$(wc -l <level.err)" 1 "$level: not of this CPU or build: $(cat level.err)"
    continue
  fi
  tap_is "$(sed -n 's/^isa *//p' level.out)" "$level" "$level: chosen by MPILM_ISA"
  tap_exit 0 "$level: operations as in the reference" -- env MPILM_ISA=$level "$build/tests/kernels/test_compare"
  tap_is "$(grep -c '^ok' <<<"$tap_out")" "$(sed -n 's/^1\.\.//p' <<<"$tap_out")" "$level: all comparisons were made"
done
tap_end
