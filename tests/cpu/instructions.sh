# tests/cpu/instructions.sh - each level of the loops uses its instructions and none above: others would stop old machines.
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
. "$srcdir/tests/tap.sh"

build=$(dirname "$MPILM")
command -v objdump >/dev/null || tap_skip_all "no objdump (Debian: binutils)"
command -v nm >/dev/null || tap_skip_all "no nm (Debian: binutils)"
[ -f "$build/libloops-v4.a" ] || tap_skip_all "no levels of x86-64 in this build"
if grep -Eq '^(CFLAGS|CC) = .*-m(arch|avx|cpu)' "$build/Makefile"; then
  tap_skip_all "the compiler was told for which processor to build"
fi

code() { # LEVEL: instructions and their operands, one a line
  objdump -d --no-show-raw-insn "$build/libloops-$1.a" | sed -n 's/^ *[0-9a-f]*:\t//p'
}
# AVX and later is whatever begins with v, but for two old instructions on segments; EVEX is what only AVX-512 encodes: its
# registers, its masks, its broadcasts.
avx='^v[^e]|^ve[^r]'
evex='%zmm|%[xy]mm(1[6-9]|2[0-9]|3[01])|%k[0-7]|\{1to|\{z\}|\{r[nduz]-sae\}'

for level in v1 v3 v4; do code $level >$level.s; done
for level in v1 v3 v4; do
  [ "$(wc -l <$level.s)" -gt 1000 ]
  tap_ok $? "$level: $(wc -l <$level.s) instructions"
done
tap_is "$(grep -E "$avx|%[yz]mm" v1.s | head -n 5)" "" "x86-64: SSE alone"
tap_is "$(grep -E "$evex" v3.s | head -n 5)" "" "x86-64-v3: nothing of AVX-512"
[ "$(grep -c '^vfmadd.*%ymm' v3.s)" -gt 100 ]
tap_ok $? "x86-64-v3: $(grep -c '^vfmadd.*%ymm' v3.s) fused products in ymm registers"
[ "$(grep -c '^vfmadd.*%zmm' v4.s)" -gt 100 ]
tap_ok $? "x86-64-v4: $(grep -c '^vfmadd.*%zmm' v4.s) fused products in zmm registers"

# A function that two levels shared would be that of one of them, in both.
for level in v1 v3 v4; do
  tap_is "$(nm --defined-only --extern-only "$build/libloops-$level.a" 2>/dev/null | awk 'NF == 3 { print $3 }' |
    grep -v "_$level\$" | head -n 5)" "" "$level: every name that others see ends in _$level"
done
# What runs before a level is chosen, and beside it, runs everywhere.
objdump -d --no-show-raw-insn "$build/libmpilm.a" | sed -n 's/^ *[0-9a-f]*:\t//p' >rest.s
tap_is "$(grep -E "$avx|%[yz]mm" rest.s | head -n 5)" "" "the rest of the program: SSE alone"
tap_end
