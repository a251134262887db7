#!/usr/bin/env bash
# tests/text/commands.sh - mpilm encode, decode, vocab info, vocab export: what goes in, comes out, and is refused.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99

# ---- encode ----
tap_is "$(printf 'Hi\0!' | "$MPILM" encode --vocab bytes)" "72 105 0 33" "all of the input is one document"
tap_is "$(printf '' | "$MPILM" encode --vocab bytes)" "" "no text, no ids"
tap_is "$(printf '{"text":"a\\u00e9"}\n\n{"x":1,"text":""}\n{"text":"b"}' | "$MPILM" encode --vocab bytes --jsonl)" \
  $'97 195 169\n\n98' "one line a document, an empty one too"
tap_is "$(echo '{"body":"a"}' | "$MPILM" encode --vocab bytes --jsonl --text-key body)" 97 "another key"
tap_is "$(printf 'a<|endoftext|>b' | "$MPILM" encode --vocab bytes --specials)" "97 256 98" "special tokens on request"
tap_is "$(printf '<|end' | "$MPILM" encode --vocab bytes --specials)" "60 124 101 110 100" "half of one is text"
printf '{"text":"a"}\n{"txt":"b"}\n' >bad.jsonl
tap_exit 2 "a line without the key" -- sh -c '"$MPILM" encode --vocab bytes --jsonl <bad.jsonl'
tap_like "$tap_err" "line 2.*text" "is named"
tap_is "$(printf 'caf\xe9' | "$MPILM" encode --vocab bytes 2>keep.err)" "99 97 102 233" "bytes that are not UTF-8 stay"
tap_like "$(cat keep.err)" "1 byte sequences are not UTF-8" "and are counted"
tap_is "$(printf 'a\xf0\x9f\x98b' | "$MPILM" encode --vocab bytes --invalid-utf8 replace 2>keep.err)" \
  "97 239 191 189 98" "or become one U+FFFD"
tap_exit 2 "or are an error" -- sh -c 'printf "caf\351" | "$MPILM" encode --vocab bytes --invalid-utf8 reject'
tap_like "$tap_err" "byte 4 .*0xe9" "that says where"
tap_exit 2 "a vocabulary is needed" -- "$MPILM" encode
tap_exit 2 "and must be there" -- "$MPILM" encode --vocab nowhere.json
tap_like "$tap_err" "nowhere.json" "else it is named"

# ---- decode ----
tap_is "$(echo 72 105 | "$MPILM" decode --vocab bytes)" Hi "ids become bytes"
tap_is "$(printf ' 72\n\n\t105\r\n256' | "$MPILM" decode --vocab bytes)" 'Hi<|endoftext|>' "any white space between ids"
head -c 10000 /dev/urandom >noise
"$MPILM" encode --vocab bytes <noise | "$MPILM" decode --vocab bytes | cmp -s - noise
tap_ok $? "random bytes come back"
tap_exit 2 "an id too large" -- sh -c 'printf "1 2\n3 257\n" | "$MPILM" decode --vocab bytes'
tap_like "$tap_err" "line 2: id 257 .*\[0, 257\)" "is named with its line"
tap_exit 2 "no id at all" -- sh -c 'printf "1 2\n3 x7\n" | "$MPILM" decode --vocab bytes'
tap_like "$tap_err" "line 2: 'x7'" "is named with its line"
tap_exit 2 "an id far too large" -- sh -c 'echo 18446744073709551617 | "$MPILM" decode --vocab bytes'
tap_exit 2 "a negative id" -- sh -c 'echo -1 | "$MPILM" decode --vocab bytes'

# ---- ids that others computed, where their vocabulary is at hand ----
gpt2=${MPILM_SHARED:-$srcdir/../shared}/tokenizers/gpt2.tiktoken
if [ -e "$gpt2" ]; then
  replaced() { # BYTES IDS WORDS: each maximal part of a character becomes one U+FFFD
    # shellcheck disable=SC2059
    tap_is "$(printf "$1" | "$MPILM" encode --vocab "$gpt2" --invalid-utf8 replace 2>replace.err)" "$2" "$3, replaced"
    # shellcheck disable=SC2059
    printf "$1" >broken.txt
    "$MPILM" encode --vocab "$gpt2" <broken.txt 2>keep.err | "$MPILM" decode --vocab "$gpt2" | cmp -s - broken.txt
    tap_ok $? "$3, kept"
  }
  replaced 'caf\xe9' "66 1878 4210" "a byte of Latin 1"
  replaced 'a\xf0\x9f\x98b' "64 4210 65" "a character without its end"
  replaced '\xed\xa0\xbd' 48585 "half a surrogate pair"
  replaced '\xc0\x80' 6353 "a zero in two bytes"
  tap_is "$(printf '{"text":"caf\\u00e9 \\ud83d\\ude00"}\n{"text":"a\\ud83db"}\n' | "$MPILM" encode --vocab "$gpt2" --jsonl)" \
    $'66 1878 2634 30325 222\n64 4210 65' "escapes of JSON, and half a pair of them"
  { head -c 5000 /dev/zero | tr '\0' a && printf '\0' && head -c 4999 /dev/zero | tr '\0' b; } >zero.txt
  tap_is "$("$MPILM" encode --vocab "$gpt2" <zero.txt | tr ' ' '\n' | grep -c '^188$')" 1 "a NUL in the middle of 10000 bytes"
  "$MPILM" encode --vocab "$gpt2" <zero.txt | "$MPILM" decode --vocab "$gpt2" | cmp -s - zero.txt
  tap_ok $? "ends nothing"
  for unit in 4001:a:1001 4000:_:63 4000:0:250; do
    IFS=: read -r n letter ids <<<"$unit"
    tap_is "$(head -c "$n" /dev/zero | tr '\0' "$letter" | (ulimit -s 256 && "$MPILM" encode --vocab "$gpt2") | wc -w)" \
      "$ids" "$n times $letter, on a stack of 256 KiB"
  done
else
  tap_skip "no shared/tokenizers" "ids that others computed"
fi

# ---- vocab ----
tap_exit 0 "info" -- "$MPILM" vocab info bytes
tap_like "$tap_out" "size +257" "the size"
tap_like "$tap_out" "256 <.endoftext.>" "and special tokens"
tap_exit 0 "info as JSON" -- "$MPILM" vocab info bytes --json
tap_like "$tap_out" '"fingerprint": "[0-9a-f]{16}"' "with a fingerprint"
printf '#version: 0.2\n\304\240 t\nh e\n\304\240t he\n' >vocab.bpe
tap_exit 0 "export" -- "$MPILM" vocab export vocab.bpe --out saved.json
tap_is "$("$MPILM" vocab info saved.json)" "$("$MPILM" vocab info vocab.bpe)" "what is exported is the same vocabulary"
tap_is "$(printf 'oh the hen' | "$MPILM" encode --vocab saved.json)" \
  "$(printf 'oh the hen' | "$MPILM" encode --vocab vocab.bpe)" "with the same ids"
tap_is "$(printf 'oh the hen' | "$MPILM" encode --vocab vocab.bpe | "$MPILM" decode --vocab saved.json)" 'oh the hen' \
  "and bytes"
printf '{"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"model":{"vocab":{"a":0},"merges":[]}}' >endless.json
printf 'aaa' >aaa.txt
tap_exit 2 "documents need an end" -- "$MPILM" tokenize --vocab endless.json --out endless.h5 aaa.txt
tap_like "$tap_err" "no end-of-text token" "which this vocabulary lacks"
tap_exit 2 "export needs a file to write" -- "$MPILM" vocab export vocab.bpe
tap_exit 2 "an unknown action" -- "$MPILM" vocab inof bytes
tap_like "$tap_err" "inof.*did you mean 'info'" "and the nearest one"
tap_exit 2 "one vocabulary at a time" -- "$MPILM" vocab info bytes bytes
ranks 2 "$MPILM" vocab info bytes --json >two.json 2>two.err
tap_ok $? "on two ranks"
tap_is "$(grep -c fingerprint two.json)" 1 "one report"
ranks 2 "$MPILM" vocab info nowhere.json >two.out 2>two.err
tap_is $? 2 "on two ranks a failure ends both"
tap_is "$(grep -c nowhere.json two.err)" 1 "and is said once"
tap_end
