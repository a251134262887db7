#!/usr/bin/env bash
# tests/checkpoint/tools.sh - a checkpoint read with HDF5's own programs, and with h5py where it is.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
command -v h5dump >/dev/null && command -v h5ls >/dev/null || tap_skip_all "no h5dump and h5ls (Debian: hdf5-tools)"
run_state=$(dirname "$MPILM")/tests/checkpoint/run_state
ranks 3 "$run_state" save run 0 26 >/dev/null 2>&1
file=run/checkpoints/step-00000026.h5

list=$(h5ls -r $file)
tap_like "$list" '^/model/embedding/weight +Dataset \{61, 7\}' "h5ls: a tensor has its name and its global shape"
tap_like "$list" '^/optimizer/exp_avg/layers/0/attention/qkv/weight +Dataset \{2, 3, 5, 7\}' "four dimensions"
tap_like "$list" '^/progress/step +Dataset \{SCALAR\}' "a counter is a scalar"
tap_like "$list" '^/integrity/slabs +Dataset' "the hashes are there"

weight=$(h5dump -d /model/embedding/weight -s 0,0 -c 1,3 $file)
tap_like "$weight" '16-bit little-endian floating-point' "h5dump: bf16 is a 16-bit float"
values=$(sed -n 's/.*(0,0): //p' <<<"$weight")
# bf16 has 8 significant bits: h5dump's decimals, rounded to them, must be unchanged.
awk -v values="$values" 'BEGIN { n = split(values, v, /, */); if (n < 3) exit 1
  for (i = 1; i <= 3; i++) { x = v[i] < 0 ? -v[i] : v[i]; if (x == 0 || x > 32768) exit 1
    while (x >= 256) x /= 2; while (x < 128) x *= 2; if (x != int(x)) exit 1 } }'
tap_ok $? "its values print: $values"
tap_like "$(h5dump -d /config $file)" '"abcdefghijklmnopqrstuvwxyz"' "a text prints as one string"
tap_like "$(h5dump -A $file)" 'ATTRIBUTE "complete"' "the mark is an attribute"

# The same state from one rank: HDF5's own comparison sees no difference outside /integrity.
ranks 1 "$run_state" save single 0 26 >/dev/null 2>&1
h5diff --exclude-path /integrity $file single/checkpoints/step-00000026.h5 >/dev/null # says that empty datasets do not compare
tap_ok $? "h5diff: one rank and three write the same content"

if python3 -c 'import h5py' 2>/dev/null; then
  python3 -c 'import h5py, sys
f = h5py.File(sys.argv[1])
assert f["/config"][()] == b"abcdefghijklmnopqrstuvwxyz", f["/config"][()]
assert f["/model/embedding/weight"].shape == (61, 7) and f.attrs["complete"] == 1
assert f["/integrity/slabs"]["count"].sum() > 0' $file
  tap_ok $? "h5py reads it"
else
  tap_skip "no h5py" "h5py reads it"
fi
tap_end
