#!/usr/bin/env bash
# tests/checkpoint/resume.sh - what may change between two starts of a run, and what a run may begin with.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
# shellcheck source=tests/train/common.sh
. "$srcdir/tests/train/common.sh"
make_config config.yaml
make_data
make_text 400 3 >other.txt
"$MPILM" tokenize --vocab bytes --out other.h5 other.txt >/dev/null 2>&1
tap_ok $? "two datasets are made"

tap_exit 0 "20 steps" -- train 2 whole
tap_exit 75 "10 steps" -- train 2 half --run.stop_after=10
copy() { # FOLDER: as it was after 10 steps
  cp -r half "$1"
}

# ---- the model stays ----
tap_exit 2 "another width" -- train 1 half --model.n_embd=64
tap_like "$tap_err" "\[[0-9]+, 32\].*\[[0-9]+, 64\]" "is refused with both shapes"
tap_exit 2 "other heads, which fit" -- train 2 half --model.n_head=4
tap_like "$tap_err" "model.n_head was 2 in half/checkpoints/step-00000010.h5, the config says 4" "are refused with both values"
tap_exit 2 "another seed" -- train 1 half --run.seed=5

# ---- the schedule and the batch change from here on ----
copy schedule
tap_exit 0 "another rate, end and warm-up" -- train 2 schedule --optim.lr=2e-3 --run.steps=25 --schedule.warmup=8
tap_like "$tap_err" "changed since schedule/checkpoints/step-00000010.h5: optim.lr was 0.001, is 0.002 from the next step on" "is logged"
tap_like "$tap_err" "run.steps was 20, is 25" "the end too"
train 2 new --optim.lr=2e-3 --run.steps=25 --schedule.warmup=8 >/dev/null 2>&1
tap_is "$(column lr schedule | tail -n 15)" "$(column lr new | tail -n 15)" "and is the new closed form, to the last digit"
tap_is "$(column lr schedule | head -n 10)" "$(column lr whole | head -n 10)" "after what it was"
copy batch
tap_exit 0 "another batch" -- train 2 batch --batch.global=6 --checkpoint.keep=9
tap_like "$tap_err" "batch.global was 12, is 6" "is logged"
tap_ok "$(grep -c "changed since.*checkpoint.keep" <<<"$tap_err")" "what changes no result is not"

# ---- the data stay, unless that is wanted ----
copy data
tap_exit 2 "other data" -- train 2 data --data.train=other.h5
tap_like "$tap_err" "data's checksum was [0-9a-f]{16} in .*step-00000010.h5, that of data.train is [0-9a-f]{16}" "are refused with both"
cp train.h5 moved.h5
tap_exit 0 "the same data at another place" -- train 2 data --data.train=moved.h5 --run.steps=11
tap_exit 0 "other data, on demand" -- train 2 data --data.train=other.h5 --run.allow_change=data
tap_like "$tap_err" "changed since .*the data's checksum" "are logged"

# ---- which checkpoint ----
tap_exit 2 "never, in a folder that has some" -- train 2 half --run.resume=never --model.n_embd=64
tap_like "$tap_err" "half: holds checkpoints, run.resume is never" "says so, whatever is in them"
tap_exit 0 "never, in one that has none" -- train 2 never --run.resume=never --run.steps=2 --schedule.warmup=0
tap_exit 2 "a step that is not there" -- train 2 half --run.resume=7
tap_like "$tap_err" "half: has no checkpoint of step 7" "is named"
tap_exit 2 "no step at all" -- train 2 half --run.resume=soon
copy chosen
tap_exit 0 "an earlier step" -- train 2 chosen --run.resume=5
tap_like "$tap_err" "resumed from step 5" "is resumed"
tap_is "$(ls chosen/checkpoints)" "$(printf '%s\n' abandoned-step-00000010.h5 step-000000{05,10,15,20}.h5)" "later ones are put aside"
same whole chosen "and the end is the same"
# A job script starts the same command again.
copy twice
tap_exit 75 "an earlier step, and a stop" -- train 2 twice --run.resume=5 --run.stop_after=10
tap_exit 0 "the same command" -- train 2 twice --run.resume=5
tap_like "$tap_err" "run.resume=5 was done by an earlier start: this one goes on from step 10" "goes on"
tap_like "$tap_err" "resumed from step 10" "where it was"
same whole twice "and the end is the same"
tap_exit 0 "another step after that" -- train 2 twice --run.resume=10 --run.steps=15
tap_exit 0 "and the first again" -- train 2 twice --run.resume=5 --run.steps=15
tap_is "$(ls twice/checkpoints)" "$(printf '%s\n' abandoned-2-step-000000{10,15}.h5 abandoned-step-000000{10,15,20}.h5 step-000000{05,10,15}.h5)" \
  "each future keeps its files"

# ---- precision ----
tap_exit 75 "10 steps in bf16" -- train 2 bf16 --precision=bf16 --run.stop_after=10
tap_exit 0 "then one in f32 that moves nothing" -- \
  train 3 bf16 --precision=f32 --run.steps=11 --optim.lr=1e-30 --optim.weight_decay=0 --schedule.min_lr=0
tap_like "$tap_err" "precision was bf16, is f32" "is logged"
if command -v h5diff >/dev/null; then
  for w in token_embedding/weight layers/1/mlp/up/weight; do
    name=$(h5ls -r bf16/checkpoints/step-00000010.h5 | awk '{ print $1 }' | grep "^/optimizer/master/.*$w" || echo "/optimizer/master/token_embedding/weight")
    h5diff -q bf16/checkpoints/step-00000010.h5 bf16/checkpoints/step-00000011.h5 "$name" "/model/${name#/optimizer/master/}"
    tap_ok $? "h5diff: f32 goes on from the masters: $name"
  done
else
  tap_skip "no h5diff" "f32 goes on from the masters"
fi
copy to16
tap_exit 0 "10 steps in f32, then in bf16" -- train 2 to16 --precision=bf16
copy tof16
tap_exit 0 "10 steps in f32, then in f16" -- train 2 tof16 --precision=fp16

# ---- a new run with the weights of another ----
tap_exit 0 "weights of another run" -- train 2 begun --run.init_from=whole/checkpoints/step-00000020.h5 --run.steps=3 --schedule.warmup=0
tap_like "$tap_err" "a new run begins with the weights of whole/checkpoints/step-00000020.h5" "it says so"
awk -v a="$(column loss begun | head -1)" -v b="$(column loss whole | head -1)" 'BEGIN { exit !(a < b - 0.3) }'
tap_ok $? "they are in use: the first loss is $(column loss begun | head -1), not $(column loss whole | head -1)"
tap_is "$(column step begun | head -1) $(column tokens begun | head -1)" "1 $(column tokens whole | head -1)" "all else begins anew"
tap_exit 2 "weights that are not there" -- train 2 begun2 --run.init_from=nowhere.h5
tap_end
