#!/bin/bash
# tests/train/test_parameters.sh - the option table, its page, and the config that a run writes say the same.
. "$srcdir/tests/tap.sh"

"$MPILM" info --parameters >parameters.md
cmp -s parameters.md "$srcdir/doc/parameters.md"
tap_ok $? "doc/parameters.md is what mpilm info --parameters prints"
tap_is "$(grep "^## " parameters.md | sort | uniq -d)" "" "each section stands once: YAML has each only once, too"
for preset in "$srcdir"/presets/*.yaml; do
  tap_exit 2 "$(basename "$preset") is a good config" -- "$MPILM" train "$preset" --data.train=nothere.h5
  tap_like "$tap_err" "nothere.h5" "only its data is missing"
done
tap_end
