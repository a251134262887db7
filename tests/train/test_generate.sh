#!/bin/bash
# tests/train/test_generate.sh - several prompts at once; characters of several tokens; contexts that fill up.
. "$srcdir/tests/tap.sh"
. "$srcdir/tests/train/common.sh"

make_config config.yaml
make_data
tap_exit 0 "a run" -- train 1 run --run.steps=30 --optim.lr=3e-3 --checkpoint.every=0
generate() {
  "$MPILM" generate --checkpoint run --tokens 40 "$@"
}

printf 'the cat\na dog sees the king, and\n\nevery\nthe cat' >prompts.txt
tap_exit 0 "five prompts, one of them empty, the last line without an end" -- generate --prompts prompts.txt --seed 5
all=$tap_out
i=0
alone=$(while IFS= read -r prompt || [ -n "$prompt" ]; do
  i=$((i + 1))
  echo "== $i"
  generate --prompt "$prompt" --seed 5 2>/dev/null
done <prompts.txt | tr -d '\0')
tap_is "$all" "$alone" "each has the text that it has alone"
tap_is "$(grep -c '^== ' <<<"$all")" 5 "five texts"
for batch in 1 2 3; do
  tap_exit 0 "$batch at a time" -- generate --prompts prompts.txt --seed 5 --batch $batch
  tap_is "$tap_out" "$all" "gives the same"
done
generate --prompts - --seed 5 <prompts.txt 2>/dev/null | tr -d '\0' >stdin.out
tap_is "$(cat stdin.out)" "$all" "prompts from standard input"
tap_exit 0 "beyond the context" -- generate --prompt "the cat" --tokens 60 --ignore-end
tap_like "$tap_err" "[0-9]+ times a context was full" "a full context is told of"
tap_like "$tap_err" "tokens/s; memory, read at [0-9.]+ GB/s, allows" "with the limit that memory sets"
tap_exit 0 "a long prompt" -- generate --prompt "$(head -c 300 train.txt)" --tokens 3
tap_exit 0 "no tokens" -- generate --prompt "the cat" --tokens 0
tap_is "$tap_out" "the cat" "the prompt alone"
tap_exit 2 "both prompts" -- generate --prompts prompts.txt --prompt x
: >empty.txt
tap_exit 2 "an empty file" -- generate --prompts empty.txt
tap_like "$tap_err" "holds no prompts" "says so"
tap_exit 2 "no file" -- generate --prompts nothere.txt

# A model of more outputs than there are tokens, untrained, so that any is as likely: only tokens are said.
tap_exit 0 "a model of 50257 outputs for 257 tokens" -- train 1 wide --model.vocab_size=50257 --run.steps=1 \
  --schedule.warmup=0 --checkpoint.every=0
tap_exit 0 "generates what the vocabulary has" -- "$MPILM" generate --checkpoint wide --tokens 20 --temperature 1 --ignore-end

# A model that has seen only one emoji says its bytes in their order; each token is a part of a character.
smile=$'\xf0\x9f\x98\x80'
one_emoji() { # VOCABULARY TOKENS BYTES: how many tokens the emoji is, and the bytes of the first half of them
  for _ in $(seq 100); do echo "{\"text\": \"$smile$smile$smile$smile$smile\"}"; done >emoji.jsonl
  "$MPILM" tokenize --vocab "$1" --out emoji.h5 emoji.jsonl >/dev/null 2>&1
  tap_exit 0 "a run on one emoji, $1" -- train 1 emoji --data.train=emoji.h5 --data.val= --data.vocab="$1" \
    --run.steps=80 --optim.lr=1e-2 --schedule.warmup=0 --checkpoint.every=0
  "$MPILM" generate --checkpoint emoji --prompt "$smile" --temperature 0 --tokens $((2 * $2)) 2>/dev/null >whole.out
  tap_is "$(cat whole.out)" "$smile$smile$smile" "$1: tokens of a character, one after the other, give the character"
  tap_exit 0 "$1: the end comes within a character" -- \
    "$MPILM" generate --checkpoint emoji --prompt "$smile" --temperature 0 --tokens $(($2 / 2))
  tap_is "$(od -An -tx1 tap.out | tr -d ' \n')" "f09f9880$3""0a" "$1: the bytes of its first tokens stand as they are"
  rm -rf emoji
}
one_emoji bytes 4 f09f

# A vocabulary with a begin of text, which its file would have put before every text: it stands there once, if asked for.
bos='<|begin_of_text|>'
added='"single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}'
template='{"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "'$bos'", "type_id": 0}},
  {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {"'$bos'": {"id": "'$bos'", "ids": [257], "tokens": ["'$bos'"]}}}'
"$MPILM" vocab export bytes --out bytes.json
sed -e '/"id": 256/s/$/,\n {"id": 257, "content": "'"$bos"'", '"$added/" -e 's/"endoftext|>": 256/&, "'"$bos"'": 257/' \
  -e "s/\"post_processor\": null/\"post_processor\": ${template//$'\n'/ }/" bytes.json >begin.json
printf '{"text": "the cat"}\n{"text": "%sa dog"}\n' "$bos" >begin.jsonl
tap_exit 0 "two documents, one of which spells the begin of text" -- \
  "$MPILM" tokenize --vocab begin.json --bos "$bos" --out begin.h5 begin.jsonl
tap_is "$("$MPILM" data info begin.h5 | sed -n 's/^tokens  *//p')" $((7 + 17 + 5 + 2 * 2)) "begin once each, and what is spelled is text"
tap_exit 0 "a run on them" -- train 1 begun --data.train=begin.h5 --data.val= --data.vocab=begin.json \
  --model.vocab_size=258 --run.steps=2 --schedule.warmup=0 --checkpoint.every=0
told() { # TOKENS PROMPT OPTIONS...: how many tokens the model reads
  tap_exit 0 "a prompt, ${*:3}" -- "$MPILM" generate --checkpoint begun --prompt "$2" --tokens 3 "${@:3}"
  tap_like "$tap_err" "1 prompts of $1 tokens" "is $1 tokens"
}
told 8 "the cat"
told 9 "the cat" --bos "$bos"
once=${tap_out#"the cat"}
told 9 "${bos}the cat" --bos "$bos"
tap_is "${tap_out#"${bos}the cat"}" "$once" "spelled or not, the model reads the same"
tap_exit 2 "a begin of text that is no special token" -- "$MPILM" generate --checkpoint begun --bos cat
tap_like "$tap_err" "'cat' is no special token" "is an error with words"
tap_end
