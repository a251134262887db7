#!/bin/bash
# tests/train/test_llama.sh - all that makes a model other than a GPT-2, through training, resuming, evaluation, text.
. "$srcdir/tests/tap.sh"
. "$srcdir/tests/train/common.sh"

make_config config.yaml
cat >>config.yaml <<'YAML'
eval:
  every: 20
YAML
sed -i 's/  preset: tiny/&\n  norm: rmsnorm\n  mlp: swiglu\n  position: rope\n  bias: false\n  n_head: 4\n  n_kv_head: 2/' \
  config.yaml
make_data
tap_ok $? "a dataset is made"

tap_exit 0 "a Llama trains" -- train 1 one
tap_like "$tap_err" "model: 39104 parameters" "of 257 32 + 2 (64 32 + 32 32 + 3 128 32 + 2 32) + 32 parameters"
for n in 2 3; do
  tap_exit 0 "on $n ranks" -- train $n ranks$n
  close_to loss one ranks$n 1e-5 "$n ranks: the losses of 1"
  close_to grad_norm one ranks$n 1e-5 "$n ranks: the norms of 1"
done
tap_exit 0 "the reference backend" -- train 1 ref --backend=ref
close_to loss one ref 1e-5 "the reference backend: the losses of the CPU's"
tap_exit 0 "bf16" -- train 1 bf16 --precision=bf16
close_to loss one bf16 2e-2 "bf16: the losses of f32"
for what in attention block; do
  tap_exit 0 "recomputing: $what" -- train 1 again-$what --model.recompute=$what
  same one again-$what "recomputing $what: the same bits"
done

# Documents of a sentence each, several in a window.
for part in train val; do
  sed 's/.*/{"text": "&"}/' $part.txt >$part.jsonl
  "$MPILM" tokenize --vocab bytes --out $part.docs.h5 $part.jsonl >/dev/null 2>&1
done
docs=(--data.train=train.docs.h5 --data.val=val.docs.h5)
tap_exit 0 "documents that see each other" -- train 1 seen "${docs[@]}"
tap_exit 0 "documents that do not" -- train 2 unseen "${docs[@]}" --data.document_mask=true
[ "$(column loss seen | head -n 1)" != "$(column loss unseen | head -n 1)" ]
tap_ok $? "have other losses"
val_loss() { # FOLDER: of mpilm eval, against that which training saw
  tap_exit 0 "eval of $1" -- "$MPILM" eval config.yaml "${docs[@]}" --run.folder="$1" --json
  loss=$(sed -n 's/.*"loss": \([^,]*\),.*/\1/p' <<<"$tap_out")
  awk -v a="$loss" -v b="$(column val_loss "$1")" 'BEGIN { d = a - b; exit !(a > 0 && d < 1e-6 && d > -1e-6) }'
  tap_ok $? "gives the loss that training saw: $loss"
}
val_loss seen
val_loss unseen

# Everything at once, interrupted: still the same bits.
all=("${docs[@]}" --model.qk_norm=true --model.rope_scaling=llama3 --model.rope_ctx=4 --model.dropout=0.1 --model.tied=false
  --data.document_mask=true --train.z_loss=1e-4 --train.label_smoothing=0.1)
tap_exit 0 "all options" -- train 2 all "${all[@]}"
tap_exit 75 "stopped on the way" -- train 2 cut "${all[@]}" --run.stop_after=7
tap_exit 0 "and resumed" -- train 2 cut "${all[@]}"
same all cut "a resumed run has the bits of one that never stopped"
val_loss all
tap_exit 0 "generate" -- "$MPILM" generate --checkpoint all --tokens 20 --prompt "the cat"
tap_like "$tap_out" "^the cat" "goes on with the prompt"

tap_exit 2 "heads that do not divide" -- train 1 bad --model.n_kv_head=3
tap_like "$tap_err" "n_head is 4 and model.n_kv_head is 3.*want e.g. 2 or 4" "are refused, with what would do"
tap_end
