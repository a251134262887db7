#!/bin/bash
# tests/train/test_refuse.sh - bad input gets one sentence and exit code 2, on one rank and on several.
. "$srcdir/tests/tap.sh"
. "$srcdir/tests/train/common.sh"

make_config config.yaml
make_data
tap_ok $? "a dataset is made"

refuse() { # REGEX WORDS... -- OVERRIDES...
  local regex=$1 words=()
  shift
  while [ "$1" != -- ]; do
    words+=("$1")
    shift
  done
  shift
  tap_exit 2 "${words[*]}" -- "$MPILM" train config.yaml --run.folder=refused "$@"
  tap_like "$tap_err" "$regex" "${words[*]}: $regex"
  tap_is "$(grep -c '^mpilm:' <<<"$tap_err")" 1 "${words[*]}: one sentence"
}

refuse "unknown option 'learning_rat'; there are: backend, .*, model\\.\\*, .*optim\\.\\*, " "a misspelt option" -- --learning_rat 1e-3
refuse "unknown option 'optim.weigth_decay'; did you mean 'optim.weight_decay'" "a misspelt key" -- --optim.weigth_decay=0.1
refuse "n_embd.*1600.*48|1600.*n_head.*48|48.*1600" "heads that do not divide the width" -- --model.n_embd=1600 --model.n_head=48
for bad in optim.lr=-1 optim.lr=nan optim.lr=inf optim.lr=1e-3x batch.micro=0 batch.global=0 model.n_ctx=0 \
  optim.beta2=1.0 schedule.warmup=-5 run.steps=10.5 model.tied=maybe precision=f33; do
  refuse "${bad%%=*} is '${bad#*=}'; want" "$bad" -- "--$bad"
done
refuse "schedule.warmup is 30 steps" "warm-up beyond the end" -- --schedule.warmup=30
refuse "nothere.h5" "a dataset that is not there" -- --data.train=nothere.h5
refuse "train.txt" "a text where a dataset belongs" -- --data.train=train.txt
refuse "model.vocab_size is 100" "a vocabulary too small for the data" -- --model.vocab_size=100
refuse "needs at least.*100001" "a dataset shorter than a sequence" -- --model.n_ctx=100000
refuse "eval.every is 5 but data.val" "evaluation on nothing" -- --data.val= --eval.every=5
refuse "checkpoints cannot keep this config: its name and texts must be UTF-8: .*invalid" "a name that is not UTF-8" -- \
  "--data.vocab=$(printf 'caf\351')"
for edge in optim.beta1=0.99999999 optim.beta2=0.99999999 optim.eps=1e-46 model.dropout=0.99999999 model.norm_eps=1e-46; do
  refuse "${edge%%=*} is .*, which is [01] in f32" "$edge" -- "--$edge"
done
folders=$(printf '/%0200d' $(seq 15))
refuse "^mpilm: /0+.* \.\.\. .*00014/0+15: cannot open for reading: No such file or directory$" "a long path" -- --data.train="$folders"
tap_is "$(ls -d refused 2>/dev/null)" "" "nothing was made"
tap_exit 2 "a run folder without a name" -- "$MPILM" train config.yaml --run.folder=
tap_like "$tap_err" "run.folder is empty" "is not the root of the file system"

printf 'optim:\n  lr: 1e-3\n  weigth_decay: 0.1\n' >bad.yaml
tap_exit 2 "a misspelt key in a file, on 4 ranks" -- ranks 4 "$MPILM" train bad.yaml
tap_like "$tap_err" "bad.yaml:3: unknown option 'optim.weigth_decay'; did you mean 'optim.weight_decay'" "file, line, nearest"
tap_is "$(grep -c 'weigth_decay' <<<"$tap_err")" 1 "said once"
tap_exit 2 "no config at all" -- "$MPILM" train
tap_exit 2 "a config that is not there" -- "$MPILM" train nothere.yaml
tap_exit 2 "an unknown fault" -- env MPILM_FAULT=burn@step1 "$MPILM" train config.yaml

printf 'other words\n' >other.txt
tap_exit 0 "another vocabulary" -- "$MPILM" vocab train --size 260 --out other.json other.txt
tap_exit 0 "a dataset of it" -- "$MPILM" tokenize --vocab other.json --out other.h5 other.txt
refuse "other.h5 was made with another vocabulary" "validation data of another vocabulary" -- --data.val=other.h5

tap_exit 0 "a run" -- train 2 run --run.steps=5
tap_exit 2 "another seed on resume" -- train 1 run --run.seed=2
tap_like "$tap_err" "begun with run.seed 1, the config says 2" "both are named"
tap_exit 2 "another width on resume" -- train 1 run --model.n_embd=64 --run.steps=9
tap_like "$tap_err" "32" "the width of the file"
tap_like "$tap_err" "64" "and that of the config are named"
tap_end
