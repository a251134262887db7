#!/usr/bin/env bash
# tests/data/data.sh - mpilm data: what is in a dataset, is it whole, what does it say; and what is no dataset.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"

printf 'one fish\n--\ntwo fish\n--\nred fish' >fish.txt
tap_exit 0 "a dataset" -- "$MPILM" tokenize --vocab bytes --out fish.h5 --document-separator '\n--\n' fish.txt
tap_exit 0 "info" -- "$MPILM" data info fish.h5
tap_like "$tap_out" '^tokens +27$' "27 tokens: three times eight letters and an end of text"
tap_like "$tap_out" '^stored as +16 bits at byte [0-9]+$' "the stored type"
tap_like "$tap_out" '^sources +fish.txt$' "where it is from"
tap_exit 0 "info --json" -- "$MPILM" data info fish.h5 --json
tap_like "$tap_out" '"documents": 3' "the same as an object"
tap_exit 0 "verify" -- "$MPILM" data verify fish.h5
tap_like "$tap_out" '^fish.h5: 27 tokens in 3 documents are whole$' "says what it looked at"

tap_is "$("$MPILM" data cat fish.h5 --vocab bytes)" 'one fish<|endoftext|>two fish<|endoftext|>red fish<|endoftext|>' "all"
for i in 0 1 2; do
  words=(one two red)
  tap_is "$("$MPILM" data cat fish.h5 --vocab bytes --document $i)" "${words[i]} fish" "document $i"
done
tap_is "$("$MPILM" data cat fish.h5 --vocab bytes --window 2 --length 8)" 'h<|endoftext|>red fi' "window 2 of 8"
tap_exit 2 "there is no document 3" -- "$MPILM" data cat fish.h5 --vocab bytes --document 3
tap_like "$tap_err" 'fish.h5.*document 3: there are 3' "as it says"
tap_exit 2 "there is no full window 3 with its targets" -- "$MPILM" data cat fish.h5 --vocab bytes --window 3 --length 8
tap_exit 2 "no vocabulary" -- "$MPILM" data cat fish.h5
tap_exit 2 "both a document and a window" -- "$MPILM" data cat fish.h5 --vocab bytes --document 0 --window 0
tap_exit 2 "an unknown verb" -- "$MPILM" data dog fish.h5
tap_like "$tap_err" "'dog' is not info, verify or cat" "is an error with words"

# Merges of the end-of-text vocabulary's ids: another vocabulary has other ids, and its text would be nonsense.
printf '#version: 0.2\no n\n' >other.bpe
tap_exit 2 "another vocabulary" -- "$MPILM" data cat fish.h5 --vocab other.bpe
tap_like "$tap_err" 'another vocabulary: fingerprint [0-9a-f]{16}' "is refused"

# One bit of one id: found by verify, and by nothing that does not look.
at=$("$MPILM" data info fish.h5 | sed -n 's/.*bits at byte //p')
cp fish.h5 bit.h5
printf '\157' | dd of=bit.h5 bs=1 seek=$((at + 2)) conv=notrunc status=none # n -> o
tap_exit 0 "a changed id: info does not see it" -- "$MPILM" data info bit.h5
tap_exit 1 "verify does" -- "$MPILM" data verify bit.h5
tap_like "$tap_err" 'bit.h5: checksum is' "by the checksum"
cp fish.h5 id.h5
printf '\140\352' | dd of=id.h5 bs=1 seek=$((at + 2)) conv=notrunc status=none # 60000
tap_exit 1 "an id beyond the vocabulary" -- "$MPILM" data verify id.h5
tap_like "$tap_err" 'token 1 is id 60000' "is named with its place"
tap_exit 1 "and does not become text" -- "$MPILM" data cat id.h5 --vocab bytes

# What is no dataset: one line says what it is, and what was wanted.
refused() { # CODE WORDS FILE
  tap_exit "$1" "$3" -- "$MPILM" data info "$3"
  tap_like "$tap_err" "$2" "$3: $2"
  tap_is "$(wc -l <<<"$tap_err")" 1 "$3: in one line"
}
head -c -8 fish.h5 >short.h5
head -c 96 fish.h5 >96.h5
: >empty.h5
mkdir folder.h5
refused 1 'truncated' short.h5
refused 1 'truncated' 96.h5
refused 1 'truncated' empty.h5
refused 2 'is a folder' folder.h5
refused 2 'not an HDF5 file' fish.txt
refused 2 'No such file' nothing.h5
tap_end
