# tests/cpu/levels.sh - MPILM_ISA chooses a level of the instruction set, or is refused with a sentence.
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
. "$srcdir/tests/tap.sh"

for level in portable x86-64 x86-64-v3 x86-64-v4; do
  if MPILM_ISA=$level "$MPILM" info >level.out 2>level.err; then
    tap_is "$(sed -n 's/^isa *//p' level.out)" "$level" "$level: chosen by MPILM_ISA"
  else
    tap_is "$(wc -l <level.err)" 1 "$level: not of this CPU or build: $(cat level.err)"
  fi
done
tap_end
