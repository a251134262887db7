#!/usr/bin/env bash
# tests/data/memory.sh - a rank of mpilm tokenize needs at most 256 MiB and four times the longest line.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
peak=$(dirname "$MPILM")/tests/data/peak_memory
nm "$MPILM" 2>/dev/null | grep -q __asan_init && tap_skip_all "a sanitizer has a memory of its own"

# A line of 64 MiB between short ones.
{
  printf '{"text": "short"}\n{"text": "'
  yes 'the quick brown fox and the lazy dog ' | tr -d '\n' | head -c $((64 << 20))
  printf '"}\n{"text": "end"}\n'
} >long.jsonl
gzip -1 <long.jsonl >packed.jsonl.gz

at_most() { # WORDS... : of what tap_exit ran last
  local most
  most=$(sed -n 's/^peak \([0-9]*\) MiB$/\1/p' <<<"$tap_err" | sort -n | tail -n 1)
  tap_ok $((${most:-9999} > 256 + 4 * 64)) "$*: ${most:-no} MiB of $((256 + 4 * 64))"
}

for k in 1 2 3 4; do sed -n 2p long.jsonl; done >four.jsonl
tap_exit 0 "four such lines" -- env OMP_NUM_THREADS=2 "$peak" "$MPILM" tokenize --vocab bytes --out four.h5 four.jsonl
at_most "four such lines"
rm four.*
for file in long.jsonl packed.jsonl.gz; do
  tap_exit 0 "$file" -- env OMP_NUM_THREADS=2 "$peak" "$MPILM" tokenize --vocab bytes --out one.h5 $file
  at_most "$file, one rank"
  tap_is "$("$MPILM" data info one.h5 | sed -n 's/^documents  *//p')" 3 "three documents"
  tap_exit 0 "$file on two ranks" -- ranks 2 "$peak" "$MPILM" tokenize --vocab bytes --out two.h5 $file
  at_most "$file, each of two ranks"
  cmp one.h5 two.h5
  tap_ok $? "the same bytes"
  rm one.h5 two.h5
done
if command -v zstd >zstd.out; then
  zstd -q -1 --long=27 long.jsonl -o packed.jsonl.zst
  tap_exit 0 "zstd with its longest window" -- "$peak" "$MPILM" tokenize --vocab bytes --out one.h5 packed.jsonl.zst
  at_most "packed.jsonl.zst, one rank"
else
  tap_skip "no zstd" "zstd with its longest window"
fi

# 200 MB in a line, with tokens of words: less than four times as much.
{
  printf '{"text": "short"}\n{"text": "'
  yes 'the quick brown fox and the lazy dog ' | tr -d '\n' | head -c 200000000
  printf '"}\n{"text": "end"}\n'
} >huge.jsonl
head -c 100000 huge.jsonl | tail -c 90000 >words.txt
"$MPILM" vocab train --size 290 --out words.json words.txt >words.out 2>&1
tap_exit 0 "a line of 200 MB" -- "$peak" "$MPILM" tokenize --vocab words.json --out huge.h5 huge.jsonl
most=$(sed -n 's/^peak \([0-9]*\) MiB$/\1/p' <<<"$tap_err")
tap_ok $((${most:-9999} > 4 * 190)) "a line of 200 MB: ${most:-no} MiB of $((4 * 190))"
tap_is "$("$MPILM" data info huge.h5 | sed -n 's/^documents  *//p')" 3 "three documents"
tap_is "$("$MPILM" data cat huge.h5 --vocab words.json --document 1 | wc -c)" 200000000 "none of it is lost"
rm huge.*

awk 'BEGIN { for (i = 0; i < 700000; i++) print "{\"text\": \"line " i " of many short ones, none of them long\"}" }' >short.jsonl
tap_exit 0 "40 MB of short lines" -- "$peak" "$MPILM" tokenize --vocab bytes --out short.h5 short.jsonl
most=$(sed -n 's/^peak \([0-9]*\) MiB$/\1/p' <<<"$tap_err")
tap_ok $((${most:-9999} > 256)) "short lines: ${most:-no} MiB of 256"
tap_end
