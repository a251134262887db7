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
tap_like "$tap_err" "'dog' is not info, verify, cat, which or import" "is an error with words"

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

# ---- import: files made byte by byte ----
le() { # WIDTH NUMBER...: little-endian
  local width=$1 n i
  shift
  for n in "$@"; do for ((i = 0; i < width; i++)); do printf "\\$(printf %03o $(((n >> (8 * i)) & 255)))"; done; done
}
text() { # FILE: a dataset as text, its documents between bars
  "$MPILM" data verify "$1" >/dev/null && "$MPILM" data cat "$1" --vocab bytes | sed 's/<|endoftext|>/|/g'
}
ids=(256 104 105 256 121 111 117 256 111 107) # an end of text before each document, as llm.c has it
{ le 4 20240520 1 10 && head -c 1012 /dev/zero && le 2 "${ids[@]}"; } >v1.bin
{ le 4 20240801 7 10 && head -c 1012 /dev/zero && le 4 "${ids[@]}"; } >v7.bin
le 2 "${ids[@]:1}" 256 >raw.bin
for f in v1.bin v7.bin; do
  tap_exit 0 "llm.c's $f" -- "$MPILM" data import $f --vocab bytes --out in.h5
  tap_like "$tap_out" '3 documents, 10 tokens of 16 bits; 1 ends of text added' "$f: says what it did"
  tap_is "$(text in.h5)" 'hi|you|ok|' "$f: documents end in their end of text"
done
tap_exit 0 "raw ids" -- "$MPILM" data import raw.bin --format raw16 --vocab bytes --out in.h5
tap_is "$(text in.h5)" 'hi|you|ok|' "the same"
tap_like "$tap_out" '; 0 ends' "nothing was added"
# 3 sequences in 2 documents and an empty one between; the second document has an end of its own.
le 4 104 105 121 111 117 256 >m.bin
{ printf 'MMIDIDX\0\0' && le 8 1 && le 1 4 && le 8 3 4 && le 4 2 1 3 && le 8 0 8 12 && le 8 0 1 1 3; } >m.idx
for f in m.bin m.idx; do
  tap_exit 0 "Megatron's $f" -- "$MPILM" data import $f --vocab bytes --out in.h5
  tap_is "$(text in.h5)" 'hi|you|' "$f: documents as the index says"
done
le 2 104 105 300 >large.bin
tap_exit 2 "an id too large" -- "$MPILM" data import large.bin --format raw16 --vocab bytes --out none.h5
tap_like "$tap_err" 'large.bin: token 2 is id 300, not below the vocabulary size 257' "is named with its place"
head -c 1030 v1.bin >cut.bin
tap_exit 2 "a file cut off" -- "$MPILM" data import cut.bin --vocab bytes --out none.h5
tap_like "$tap_err" '6 bytes of ids, its header says 20' "is named"
cp m.bin mm.bin && head -c 70 m.idx >mm.idx
tap_exit 2 "an index cut off" -- "$MPILM" data import mm.bin --vocab bytes --out none.h5
tap_like "$tap_err" 'mm.idx: is cut off' "is named"
tap_exit 2 "no header" -- "$MPILM" data import raw.bin --vocab bytes --out none.h5
tap_like "$tap_err" 'raw16 or raw32' "what to do is said"
[ ! -e none.h5 ] && [ ! -e none.h5.part ]
tap_ok $? "nothing is left"

# ---- which: windows and documents of a step; fish.h5 has documents that end at 9, 18, 27 ----
cat >which.yaml <<'END'
model: {n_layer: 1, n_head: 1, n_embd: 8, n_ctx: 4}
data: {train: fish.h5}
batch: {global: 3, micro: 1}
run: {seed: 5}
END
for step in 1 2; do "$MPILM" data which which.yaml --step $step | tail -n +2; done >which.txt
tap_is "$(cut -d' ' -f2 which.txt | sort -n | tr '\n' ' ')" "0 1 2 3 4 5 " "two steps of three use the six windows once"
tap_is "$(awk '{ w = $2; print (int(w * 4 / 9) == $3 && int((w * 4 + 3) / 9) == $4) }' which.txt | sort -u)" 1 \
  "and name the documents that those windows touch"
tap_end
