#!/usr/bin/env bash
# tests/reader/vocab_train.sh - mpilm vocab train, as a user types it.
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck source=tests/tap.sh disable=SC2154
. "$srcdir/tests/tap.sh"

train() { "$MPILM" vocab train "$@"; }

printf aaabdaaabac >known.txt
tap_exit 0 "three merges" -- train --size 260 --out known.json known.txt
tap_like "$tap_out" '^known.json: 260 ids, pattern gpt2' "the result is on stdout"
tap_like "$tap_err" '1 documents, .* 1 distinct pieces .* 3 merges' "the summary is on stderr"
tap_is "$("$MPILM" encode --vocab known.json <known.txt)" "258 100 258 97 99" "(a, a), then (a, b) before (aa, a), then both"
for n in 2 4; do
  tap_exit 0 "on $n ranks" -- ranks $n "$MPILM" vocab train --size 260 --out "known$n.json" known.txt
  cmp known.json "known$n.json"
  tap_ok $? "on $n ranks: the same file"
done

# The same text as one file, as five, as JSON Lines, packed, and on stdin.
mkdir parts
awk 'BEGIN { for (i = 0; i < 3000; i++) {
  x = (x * 1103515245 + 12345) % 2147483648; s = "";
  for (k = 0; k < 8; k++) { x = (x * 1103515245 + 12345) % 2147483648; s = s substr("the of and to in sea seaside ", 1 + x % 27, 1 + x % 7) }
  print s > "all.txt"; print s > ("parts/" int(i / 600) ".txt"); print "{\"text\":\"" s "\"}" > "all.jsonl" } }'
gzip -c all.jsonl >all.jsonl.gz
size=(--size 400 --document-separator '\n')
tap_exit 0 "one file" -- train "${size[@]}" --out all.json all.txt
same() { # NAME COMMAND...: the command wrote the same vocabulary to new.json
  tap_exit 0 "$1" -- "${@:2}"
  cmp all.json new.json
  tap_ok $? "$1: the same vocabulary"
  rm -f new.json
}
same "a folder of five files, 2 ranks" ranks 2 "$MPILM" vocab train "${size[@]}" --out new.json parts
same "JSON Lines" train "${size[@]}" --out new.json all.jsonl
same "gzip, 3 ranks" ranks 3 "$MPILM" vocab train "${size[@]}" --out new.json all.jsonl.gz
same "stdin" train "${size[@]}" --out new.json - <all.txt
same "stdin, JSON Lines in gzip, 2 ranks" ranks 2 "$MPILM" vocab train "${size[@]}" --format jsonl --out new.json - <all.jsonl.gz

# Nothing, or too little.
: >empty.txt
printf a >a.txt
printf ab >ab.txt
tap_exit 2 "no text" -- train --size 300 --out no.json empty.txt
tap_like "$tap_err" 'no training text' "no text: said so"
tap_exit 0 "one byte" -- train --size 300 --out a.json a.txt
tap_like "$tap_err" 'warning: .* 257 ids, 300 were wanted' "one byte: a warning with the size reached"
tap_exit 0 "one pair" -- train --size 1000 --out ab.json ab.txt
tap_like "$tap_err" 'warning: .* 258 ids, 1000 were wanted' "one pair: a warning with the size reached"
tap_is "$("$MPILM" encode --vocab ab.json <ab.txt)" "256" "one pair: the vocabulary is usable"
tap_like "$("$MPILM" vocab info ab.json)" 'size +258' "one pair: its size is the real one"
tap_exit 2 "fewer than the bytes" -- train --size 256 --out no.json ab.txt
tap_like "$tap_err" '256, 257 ' "fewer than the bytes: what was wanted"
tap_exit 2 "no size" -- train --out no.json ab.txt
tap_exit 2 "no --out" -- train --size 300 ab.txt
tap_exit 2 "no such folder" -- train --size 300 --out no/where/v.json ab.txt
tap_exit 2 "no such file" -- train --size 300 --out no.json missing.txt
tap_exit 2 "an unknown escape" -- train --size 300 --document-separator '\q' --out no.json ab.txt
[ ! -e no.json ]
tap_ok $? "after a refusal there is no file"

# A broken line stops all ranks with one message; skipping counts it; a cut-off file is never skipped.
printf '{"text":"alpha"}\n{"text":"beta\n{"text":"third"}\n' >broken.jsonl
tap_exit 2 "a broken line, 4 ranks" -- ranks 4 "$MPILM" vocab train --size 300 --out no.json broken.jsonl
tap_is "$(grep -c 'broken.jsonl:2: ' <<<"$tap_err")" 1 "a broken line: named once"
tap_exit 0 "a broken line, skipped" -- train --size 300 --on-bad skip --out skipped.json broken.jsonl
tap_like "$tap_err" '2 documents, .* 1 records skipped' "a broken line, skipped: counted"
tap_like "$tap_err" 'warning: 1 broken records were skipped; the first: broken.jsonl:2: ' "a broken line, skipped: where"
printf 'caf\xe9 caf\xe9' >latin1.txt
tap_exit 0 "bytes that are not UTF-8" -- train --size 300 --out latin1.json latin1.txt
tap_like "$tap_err" 'warning: 2 byte sequences are not UTF-8' "bytes that are not UTF-8: counted"
tap_exit 2 "bytes that are not UTF-8, rejected" -- train --size 300 --invalid-utf8 reject --out no.json latin1.txt
tap_like "$tap_err" 'latin1.txt:1: byte 4 of the document' "bytes that are not UTF-8, rejected: where"
head -c -20 all.jsonl.gz >cut.jsonl.gz
tap_exit 2 "cut-off gzip" -- train --size 300 --on-bad skip --out no.json cut.jsonl.gz
tap_like "$tap_err" 'cut.jsonl.gz: unexpected end of compressed data at byte [0-9]+' "cut-off gzip: where"
zcat all.jsonl.gz | "$MPILM" vocab train "${size[@]}" --format jsonl --out new.json - 2>/dev/null >&2
cmp all.json new.json
tap_ok $? "what zcat prints is what our reader reads"

dictionary=/usr/share/dictd/gcide.dict.dz
if [ -r $dictionary ]; then
  tap_exit 0 "the dictionary" -- train --size 512 --document-separator '\n\n' --first-bytes 2000000 --json --out d.json $dictionary
  tap_like "$tap_out" '"size": 512' "the dictionary: 512 ids"
else
  tap_skip "no $dictionary" "the dictionary"
fi
tap_end
