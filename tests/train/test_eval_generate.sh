#!/bin/bash
# tests/train/test_eval_generate.sh - a checkpoint is evaluated and continues a prompt, the same on any layout.
. "$srcdir/tests/tap.sh"
. "$srcdir/tests/train/common.sh"

make_config config.yaml
make_data
tap_ok $? "a dataset is made"
tap_exit 0 "a run" -- train 2 run --run.steps=60 --optim.lr=3e-3 --eval.every=60 --checkpoint.every=0

loss_of() {
  sed -n 's/.*"loss": \([^,]*\),.*/\1/p' <<<"$1"
}
tap_exit 0 "eval" -- "$MPILM" eval config.yaml --run.folder=run --json
first=$(loss_of "$tap_out")
targets=$(($(wc -c <val.txt)))
tap_like "$tap_out" "\"tokens\": $targets\}" "every target is scored once, the partial last window included"
for layout in "1 1" "1 3" "2 2" "3 4"; do
  read -r n micro <<<"$layout"
  tap_exit 0 "eval on $n ranks, $micro at a time" -- ranks "$n" "$MPILM" eval config.yaml --run.folder=run \
    --batch.micro="$micro" --json
  awk -v a="$(loss_of "$tap_out")" -v b="$first" 'BEGIN { d = a - b; exit !(a > 0 && d < 1e-6 && d > -1e-6) }'
  tap_ok $? "gives the same loss"
done
in_training=$(column val_loss run)
awk -v a="$in_training" -v b="$first" 'BEGIN { d = a - b; exit !(a > 0 && d < 1e-6 && d > -1e-6) }'
tap_ok $? "and training saw it too: $in_training"
tap_exit 2 "eval of a run that is not there" -- "$MPILM" eval config.yaml --run.folder=nothere

# Rank 1 works in another folder, as on a node with other file systems.
eval_apart() {
  timeout 60 "${MPIRUN:-mpirun}" -n 1 "$MPILM" eval config.yaml --run.folder=run : \
    -n 1 -wdir apart "$MPILM" eval config.yaml --run.folder=run
}
mkdir apart
cp ./*.h5 config.yaml apart
tap_alone lm_restore 2 "rank 1 .*run/checkpoints/step-00000060.h5" "there is no such file" -- eval_apart
(cd apart && "$(dirname "$MPILM")/tests/checkpoint/run_state" save run 1 60 >log 2>&1)
tap_alone lm_restore 2 "rank 1 .*step-00000060.h5: is a state file without a model" "there is another file" -- eval_apart

# A report is JSON whatever is in it.
cp val.h5 'va"l.h5'
tap_exit 0 "a name with a quote" -- "$MPILM" eval config.yaml --run.folder=run --json --data.val='va"l.h5'
tap_like "$tap_out" '^."data": "va\\"l.h5", "step": 60, ' "is written as JSON has it"
tap_exit 0 "a model that is broken" -- train 1 broken --run.steps=2 --schedule.warmup=0 --optim.lr=10 --optim.clip=0 --precision=bf16
tap_exit 0 "has no loss" -- "$MPILM" eval config.yaml --run.folder=broken --precision=fp16 --json
tap_like "$tap_out" '"loss": null, "perplexity": null,' "which is null"

generate() {
  "$MPILM" generate --checkpoint run --tokens 40 "$@"
}
tap_exit 0 "generate" -- generate --prompt "the cat" --seed 5
a=$tap_out
tap_like "$a" "^the cat" "begins with the prompt"
tap_exit 0 "again" -- generate --prompt "the cat" --seed 5
tap_is "$tap_out" "$a" "the same seed gives the same text"
tap_exit 0 "another seed" -- generate --prompt "the cat" --seed 6
[ "$tap_out" != "$a" ]
tap_ok $? "another seed gives another text"
tap_exit 0 "temperature 0" -- generate --prompt "the cat" --temperature 0 --seed 1
b=$tap_out
tap_exit 0 "temperature 0, another seed" -- generate --prompt "the cat" --temperature 0 --seed 2
tap_is "$tap_out" "$b" "always the likeliest"
tap_exit 0 "top-k 1" -- generate --prompt "the cat" --top-k 1
tap_is "$tap_out" "$b" "is the likeliest, too"
tap_exit 0 "top-k above the vocabulary" -- generate --prompt "the cat" --seed 5 --top-k 1000000
tap_is "$tap_out" "$a" "is all of it"
tap_exit 1 "what cannot be written" -- bash -c '"$0" generate --checkpoint run --tokens 40 --prompt a >/dev/full' "$MPILM"
tap_like "$tap_err" "cannot write to stdout" "is said"
"$MPILM" tokenize --vocab bytes --pattern cl100k --out other.h5 train.txt >/dev/null 2>&1
tap_exit 0 "a run on data of another pattern" -- train 1 other --run.steps=2 --schedule.warmup=0 --data.train=other.h5 --data.val=
tap_exit 2 "generate does not know it" -- "$MPILM" generate --checkpoint other --tokens 4 --prompt a
tap_exit 0 "until it is told" -- "$MPILM" generate --checkpoint other --tokens 4 --prompt a --pattern cl100k
tap_exit 2 "a negative top-k" -- generate --top-k -3
tap_exit 0 "no prompt" -- generate --tokens 5
file=$(last_checkpoint run)
tap_exit 0 "a file instead of the run" -- "$MPILM" generate --checkpoint "$file" --prompt "the cat" --tokens 40 --seed 5
tap_is "$tap_out" "$a" "gives the same"
printf 'x y z\n' >other.txt
"$MPILM" vocab train --size 258 --out other.json other.txt 2>/dev/null
tap_exit 2 "another vocabulary" -- generate --vocab other.json
tap_like "$tap_err" "is not the vocabulary that the model learned" "is refused"
tap_end
