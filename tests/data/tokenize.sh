#!/usr/bin/env bash
# tests/data/tokenize.sh - mpilm tokenize: the same bytes on any number of ranks, whatever happened before.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"

tokenize() { # RANKS ARGUMENTS...
  ranks "$1" "$MPILM" tokenize --vocab bytes "${@:2}"
}
datum() { # FILE NAME: a value of mpilm data info
  "$MPILM" data info "$1" | sed -n "s/^$2  *//p"
}
is_same() { # A B WORDS...: ids and document ends of two datasets are the same bytes
  "$MPILM" data verify "$1" >/dev/null && "$MPILM" data verify "$2" >/dev/null
  tap_ok $? "${*:3}: both are whole"
  tap_is "$(datum "$1" tokens) $(datum "$1" documents) $(datum "$1" checksum)" \
    "$(datum "$2" tokens) $(datum "$2" documents) $(datum "$2" checksum)" "${*:3}"
}

# 1000 documents of awkward pieces, some larger than a block, about 20 MB of text; no line feed at the end. raw.txt: the same texts,
# each followed by the text of the end-of-text token, as `data cat` prints it.
awk -v json=big.jsonl -v raw=raw.txt '
  BEGIN {
    ORS = ""
    n = split("a|B|the|ing| |  |\\n|\\r\\n|\\t|é|\xe2\x80\x99t|1|7890|日本|\xf0\x9f\x98\x80|\\\"|\\\\|<|>|endoftext|--|{|}|x", piece, "|")
    for (i = 1; i <= 1000; i++) {
      text = ""
      for (k = 0; k <= i % 50; k++) { seed = (seed * 1103 + 12345) % 65536; text = text piece[1 + seed % n] }
      for (k = i % 90 == 7 ? 14 : i % 4 == 0 ? 11 : i % 5; k > 0; k--) text = text text
      print (i > 1 ? "\n" : "") "{\"id\": " i ", \"text\": \"" text "\"}" > json
      gsub(/\\n/, "\n", text); gsub(/\\r/, "\r", text); gsub(/\\t/, "\t", text); gsub(/\\"/, "\"", text)
      gsub(/\\\\/, "\\", text)
      print text "<|endoftext|>" > raw
    }
  }'
head -n 300 big.jsonl >1.jsonl
sed -n '301,301p' big.jsonl >2.jsonl
tail -n +302 big.jsonl | gzip -1 >3.jsonl.gz

tap_exit 0 "on one rank" -- tokenize 1 --out 1.h5 big.jsonl
tap_like "$tap_out" '^1\.h5: 1000 documents, [0-9]+ tokens of 16 bits' "and says what came out"
"$MPILM" data cat 1.h5 --vocab bytes >cat.txt
cmp cat.txt raw.txt
tap_ok $? "the dataset reads as the texts do, in their order"
for n in 2 3 7 16; do
  tap_exit 0 "on $n ranks" -- tokenize "$n" --out "$n.h5" --part 1 big.jsonl
  cmp 1.h5 "$n.h5"
  tap_ok $? "the file is the same on $n ranks"
done
tap_exit 0 "with 3 threads" -- env OMP_NUM_THREADS=3 "$MPILM" tokenize --vocab bytes --out t.h5 big.jsonl
cmp 1.h5 t.h5
tap_ok $? "the file is the same with 3 threads"
tap_exit 0 "from three files, one of them packed" -- tokenize 2 --out files.h5 1.jsonl 2.jsonl 3.jsonl.gz
is_same 1.h5 files.h5 "three files of the same lines"
tap_exit 0 "from stdin" -- tokenize 1 --out stdin.h5 --format jsonl - <big.jsonl
is_same 1.h5 stdin.h5 "stdin"

# Line i is a text of 1 to 50 picks of the seed i, with what tears where a text is cut by bytes; no line feed at the end.
picks=(" " "  " '\n' '\r\n' '\t' a B the ing '\u00e9' 'e\u0301' "'s" "'S" "'LL" '\u2019t' 1 23 456 7890 '\u00b2' '\u0663'
  '\u00a0' '\u0085' '\u3000' '\u200b' '\ufeff' '\u180e' '\u0000' '\u001c' '!' '?!' -- '####' _ '\"' '<|' '|>' endoftext
  '\u65e5\u672c' '\u0939' '\u093f' '\u0e17\u0e35\u0e48' '\u0645' '\ud83d\ude00' '\ud83d\udc4d\ud83c\udffd' '\u200d'
  '\ud83c\uddeb\ud83c\uddf7' '\u2028' '\u000b' '\u000c' '\u00ad' x Y Z9 . ',' ';' : / '\\' '{' '}' '=' '\u00df')
tap_is "${#picks[@]}" 64 "64 picks"
for ((i = 1; i <= 1000; i++)); do
  text='' s=$i
  for ((k = 0; k <= i % 50; k++)); do
    s=$(((s * 1103515245 + 12345) & 0x7fffffff))
    text+=${picks[(s >> 8) % 64]}
  done
  printf '%s{"text":"%s"}' "${line_feed-}" "$text"
  line_feed=$'\n'
done >picks.jsonl
tap_exit 0 "1000 lines of picks" -- tokenize 1 --out picks1.h5 picks.jsonl
tap_is "$("$MPILM" encode --vocab bytes --jsonl <picks.jsonl | wc -w) $(datum picks1.h5 documents)" \
  "$(($(datum picks1.h5 tokens) - 1000)) 1000" "each is a document"
head -n 333 picks.jsonl >p1.jsonl && sed -n 334,667p picks.jsonl >p2.jsonl && tail -n +668 picks.jsonl >p3.jsonl
for n in 2 3 7 16; do
  tap_exit 0 "on $n ranks" -- tokenize $n --out "picks$n.h5" picks.jsonl
  cmp picks1.h5 "picks$n.h5"
  tap_ok $? "the same file"
  tap_exit 0 "three files on $n ranks" -- tokenize $n --out split.h5 p1.jsonl p2.jsonl p3.jsonl
  is_same picks1.h5 split.h5 "the same ids and documents"
done

# Separators and ends of text.
printf 'first\n\nsecond\n\nthird' >three.txt
tap_exit 0 "a text with a separator" -- tokenize 1 --out three.h5 --document-separator '\n\n' three.txt --json
tap_like "$tap_out" '"tokens": 19' "five, six and five letters, and three ends of text"
tap_is "$("$MPILM" data cat three.h5 --vocab bytes)" 'first<|endoftext|>second<|endoftext|>third<|endoftext|>' "in order"
tap_is "$("$MPILM" data cat three.h5 --vocab bytes --document 1)" second "document 1"
tap_is "$("$MPILM" data cat three.h5 --vocab bytes --window 1 --length 4)" 't<|endoftext|>se' "window 1 of 4 tokens"
printf 'x <|endoftext|> y' >spelled.txt
tap_exit 0 "a text that spells the end of text" -- tokenize 1 --out spelled.h5 spelled.txt
tap_is "$(datum spelled.h5 tokens) $(datum spelled.h5 documents)" "18 1" "adds no end of text"

# Fewer documents than ranks, and none.
tap_exit 0 "one document on three ranks" -- tokenize 3 --out one3.h5 spelled.txt
cmp spelled.h5 one3.h5
tap_ok $? "is the same file as on one"
: >empty.txt
tap_exit 2 "no document on two ranks" -- tokenize 2 --out none.h5 empty.txt
tap_like "$tap_err" 'empty.txt.*no document' "is an error with words"
tap_is "$(grep -c '^mpilm:' <<<"$tap_err")" 1 "said once"

# What is held out does not change when files are added.
tap_exit 0 "a tenth is held out" -- tokenize 2 --out train.h5 --val-out val.h5 --val-fraction 0.1 1.jsonl 2.jsonl
tap_exit 0 "and again with another file behind" -- tokenize 3 --out train2.h5 --val-out val2.h5 --val-fraction 0.1 \
  1.jsonl 2.jsonl 3.jsonl.gz
"$MPILM" data cat val.h5 --vocab bytes >val.txt
"$MPILM" data cat val2.h5 --vocab bytes | head -c "$(wc -c <val.txt)" | cmp - val.txt
tap_ok $? "the documents that were held out before still are"
train=$(datum train2.h5 documents) val=$(datum val2.h5 documents)
tap_is $((train + val)) 1000 "every document is on one side"
tap_ok $((val < 60 || val > 140)) "about a tenth is held out: $val of 1000"

# Broken input.
printf '{"text":"alpha"}\n{"text":"beta\n{"text":"third"}\n' >broken.jsonl
tap_exit 2 "a broken line on four ranks" -- tokenize 4 --out broken.h5 broken.jsonl
tap_is "$(grep -c 'broken.jsonl:2' <<<"$tap_err")" 1 "is reported once, with its number"
[ ! -e broken.h5 ] && [ ! -e broken.h5.part ]
tap_ok $? "and nothing is left"
tap_exit 0 "or skipped" -- tokenize 2 --out skipped.h5 --on-bad skip broken.jsonl
tap_like "$tap_err" '1 skipped' "and counted"
tap_is "$("$MPILM" data cat skipped.h5 --vocab bytes)" 'alpha<|endoftext|>third<|endoftext|>' "the others stay"

# A packed file that ends too early is no success, whatever may be skipped.
head -c -20 3.jsonl.gz >cut.jsonl.gz
for n in 1 2; do
  tap_exit 2 "cut off, on $n ranks" -- tokenize $n --out cut.h5 --on-bad skip --max-bad 1000 1.jsonl cut.jsonl.gz
  tap_is "$(grep -c '^mpilm: .*cut.jsonl.gz: unexpected end of compressed data at byte [0-9]' <<<"$tap_err")" 1 "is said once"
done
[ ! -e cut.h5 ] && [ ! -e cut.h5.part ]
tap_ok $? "there is no dataset"

# Usage.
tap_exit 2 "stdin on two ranks" -- tokenize 2 --out x.h5 -
tap_exit 2 "the output is an input" -- tokenize 1 --out three.txt three.txt
mkdir texts && cp three.txt texts
tap_exit 2 "the output is in a folder of inputs" -- tokenize 2 --out x.h5 --val-out texts/three.txt texts
tap_like "$tap_err" 'texts/three.txt: is an input' "as it says"
tap_exit 2 "the output is a folder" -- tokenize 1 --out . three.txt
tap_exit 2 "both outputs are one" -- tokenize 1 --out x.h5 --val-out ./x.h5 three.txt
tap_exit 2 "a fraction without a place" -- tokenize 1 --out x.h5 --val-fraction 0.1 three.txt
tap_exit 2 "an unknown escape" -- tokenize 1 --out x.h5 --document-separator '\q' three.txt
tap_exit 2 "no vocabulary" -- "$MPILM" tokenize --out x.h5 three.txt
tap_is "$(cat three.txt)" $'first\n\nsecond\n\nthird' "no input was touched"

# The begin of text: once a document, whatever the text spells.
tap_exit 0 "each document begins with a token" -- tokenize 2 --out bos.h5 --bos '<|endoftext|>' spelled.txt three.txt
tap_is "$(datum bos.h5 tokens) $(datum bos.h5 'begin of text')" "$((17 + 20 + 2 + 2)) 256" "once each"
tap_is "$("$MPILM" data cat bos.h5 --vocab bytes --window 0 --length 2)" '<|endoftext|>x' "at its start"
"$MPILM" data verify bos.h5 >/dev/null
tap_ok $? "which verifies"
tap_exit 2 "a begin of text that is no special token" -- tokenize 2 --out x.h5 --bos '<s>' three.txt
tap_like "$tap_err" "'<s>' is no special token" "is an error with words"

# Killed again and again, one rank or both: each run goes on from what the others finished.
finished() { # of the folder of unfinished work: parts in its journals
  find .killed.h5.work -name '*.journal' -size +0 -exec cat {} + | wc -c | awk "{ print \$1 / 160 }"
}
found() { # what the last run says that it found
  sed -n 's/.*ended: \([0-9]*\) parts.*/\1/p' killed.log
}
before=0
for fault in die@step2 die@step3 die@step1:rank1; do
  MPILM_FAULT=$fault tokenize 2 --out killed.h5 --part 1 big.jsonl >killed.log 2>&1
  tap_ok $(($? == 0)) "$fault: the run fails"
  tap_is "$(found)" "${before#0}" "$fault: it had gone on from the $before parts of the runs before"
  before=$(finished)
  [ ! -e killed.h5 ]
  tap_ok $? "$fault: nothing has the final name"
done
tap_ok $((before < 7)) "at least 7 parts are finished: $before"
tap_exit 0 "the same command succeeds, on another number of ranks" -- tokenize 3 --out killed.h5 --part 1 big.jsonl
tap_like "$tap_err" "goes on where an earlier run ended: $before parts" "with what was finished"
cmp 1.h5 killed.h5
tap_ok $? "to the same bytes"
[ ! -e killed.h5.part ] && [ ! -e .killed.h5.work ]
tap_ok $? "and leaves nothing else"

# What is torn is done again; what is of another input or vocabulary is thrown away; two runs at once are refused.
MPILM_FAULT=die@step3:rank0 tokenize 1 --out killed.h5 --part 1 big.jsonl >killed.log 2>&1
ids=$(ls .killed.h5.work/*.ids)
printf 'xx' | dd of="$ids" bs=1 seek=$(($(stat -c %s "$ids") / 2)) conv=notrunc 2>dd.err
printf 'half a record' >>"${ids%.ids}.journal"
tap_exit 0 "a torn part" -- tokenize 2 --out killed.h5 --part 1 big.jsonl
tap_like "$tap_err" "ended: 2 parts" "does not count"
cmp 1.h5 killed.h5
tap_ok $? "and is done again"
MPILM_FAULT=die@step3:rank0 tokenize 1 --out killed.h5 --part 1 big.jsonl >killed.log 2>&1
tap_exit 0 "other options" -- tokenize 2 --out killed.h5 --part 2 big.jsonl
tap_like "$tap_err" "holds 3 parts of another input.*thrown away" "do not use the parts, as is said"
cmp 1.h5 killed.h5
tap_ok $? "with the same bytes all the same"
MPILM_FAULT=die@step3:rank0 tokenize 1 --out killed.h5 --part 1 big.jsonl >killed.log 2>&1
flock .killed.h5.work/lock sleep 20 &
sleep 0.3
tap_exit 2 "another run at work" -- tokenize 2 --out killed.h5 --part 1 big.jsonl
tap_like "$tap_err" "another run that writes the same output" "is refused with words"
kill $!
wait 2>/dev/null
rm -rf .killed.h5.work

# Killed while the dataset is written: the rank that has made the only part, whichever it is, dies.
MPILM_FAULT=die@step2 tokenize 2 --out killed.h5 --part 64 big.jsonl >killed.log 2>&1
tap_ok $(($? == 0)) "killed while writing"
[ -e killed.h5.part ]
tap_ok $? "the unfinished file is there"
tap_exit 2 "what it left is refused" -- "$MPILM" data info killed.h5.part
tap_like "$tap_err" 'not complete' "because it is not complete"
tap_exit 0 "the same command succeeds then" -- tokenize 2 --out killed.h5 --part 64 big.jsonl
cmp 1.h5 killed.h5
tap_ok $? "with the same bytes"
[ ! -e killed.h5.part ]
tap_ok $? "and leaves nothing else"
tap_exit 1 "a write that fails on one rank" -- env MPILM_FAULT=fail_write@ckpt1:rank2 timeout 60 \
  "${MPIRUN:-mpirun}" -n 3 "$MPILM" tokenize --vocab bytes --out failed.h5 --val-out failed-val.h5 big.jsonl
tap_is "$(ls failed* 2>/dev/null)" "" "leaves no file"
tap_is "$(grep -c '^mpilm: \[rank 2 ' <<<"$tap_err")" 1 "and is reported once, by its rank"
tap_like "$tap_err" "keeps what is finished" "what was encoded stays"
tap_exit 0 "the same command succeeds then" -- tokenize 3 --out failed.h5 --val-out failed-val.h5 big.jsonl

# A limit that the parts of two ranks keep, and the dataset does not.
tap_exit 1 "no room for the dataset" -- timeout 60 "${MPIRUN:-mpirun}" -n 2 \
  bash -c 'ulimit -f 30000 && exec "$@"' _ "$MPILM" tokenize --vocab bytes --out large.h5 big.jsonl
tap_is "$(grep -c '^mpilm: .*large.h5.part: File too large: up to [0-9]* bytes are needed' <<<"$tap_err")" 1 "is said once"
tap_is "$(ls large* 2>/dev/null)" "" "and found before anything is written"
tap_exit 0 "where there is room, the same command goes on" -- tokenize 2 --out large.h5 big.jsonl
tap_like "$tap_err" "goes on where an earlier run ended" "from what was encoded"
cmp 1.h5 large.h5
tap_ok $? "to the same bytes"

# Published ids (shared/cases), where the vocabularies are at hand.
vocabs=${MPILM_SHARED:-$srcdir/../shared}/tokenizers
if [ -e "$vocabs/gpt2.tiktoken" ] && [ -e "$vocabs/cl100k_base.tiktoken" ]; then
  stored() { # FILE BITS TOKENS: the ids as they lie in the file
    local at
    at=$(datum "$1" 'stored as' | sed 's/.* at byte //')
    od -An -v -t u$(($2 / 8)) -j "$at" -N $(($3 * $2 / 8)) "$1" | tr -s ' \n' ' ' | sed 's/^ //; s/ $//'
  }
  printf '{"text":"first"}\n{"text":"second"}\n{"text":"third"}\n' >three.jsonl
  "$MPILM" tokenize --vocab "$vocabs/gpt2.tiktoken" --out gpt2.h5 three.jsonl >/dev/null 2>&1
  tap_is "$(stored gpt2.h5 16 6)" "11085 50256 12227 50256 17089 50256" "GPT-2: documents closed by 50256"
  printf "'RE" >re.txt
  "$MPILM" tokenize --vocab "$vocabs/cl100k_base.tiktoken" --out cl100k.h5 re.txt >/dev/null 2>&1
  tap_is "$(stored cl100k.h5 32 2)" "95253 100257" "cl100k: ids above 65535 are stored as they are"
else
  tap_skip "no shared/tokenizers" "GPT-2: documents closed by 50256"
  tap_skip "no shared/tokenizers" "cl100k: ids above 65535 are stored as they are"
fi
tap_end
