#!/usr/bin/env bash
# tests/train/test_mean.sh - losses and gradients are means over tokens, however they are parted: seven losses of 2, one of 3.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
# shellcheck source=tests/train/common.sh
. "$srcdir/tests/train/common.sh"

# Eight windows of a token: their targets are seven times b, then the end of text.
printf bbbbbbbb >text.txt
"$MPILM" tokenize --vocab bytes --out train.h5 text.txt >/dev/null 2>&1 &&
  "$(dirname "$MPILM")/tests/train/known_model" known.h5
tap_ok $? "a dataset and a model"
cat >config.yaml <<'YAML'
model: { n_layer: 1, n_head: 1, n_embd: 32, n_ctx: 1, tied: false, bias: true }
data: { train: train.h5, val: train.h5, vocab: bytes }
optim: { kind: sgd, lr: 1e-30, weight_decay: 0 }
schedule: { kind: constant }
precision: f32
batch: { global: 8 }
run: { steps: 1, init_from: known.h5 }
YAML

near() { # GOT WANT WORDS...
  awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a != "" && d < 1e-5 * b && d > -1e-5 * b) }'
  tap_ok $? "${*:3}: $1, want $2"
}

# The gradient of the logits is p - 1/8 of each target's share. That of the head is the same, times 1; that of the last
# norm's bias is its product with the head's first column; all others are 0.
norm=$(awk 'BEGIN { b = exp(-2) - 7 / 8; e = exp(-3) - 1 / 8; p = (1 - exp(-2) - exp(-3)) / 255
  s = -2 * b - 3 * e + 255 * p * log(p); printf "%.9f", sqrt(b * b + e * e + 255 * p * p + s * s) }')

n=0
for way in "1 8" "1 7" "1 5" "1 1" "2 4" "3 2" "2 2 --parallel.zero=0" "3 3 --parallel.zero=2" "2 1 --run.reproducible"; do
  read -r ranks micro more <<<"$way"
  n=$((n + 1))
  tap_exit 0 "$ranks ranks, micro-batches of $micro $more" -- train "$ranks" way$n --batch.micro="$micro" ${more:+"$more"}
  near "$(column loss way$n)" 2.125 "the loss is 17/8"
  near "$(column grad_norm way$n)" "$norm" "the norm of its gradient"
done
for ranks in 1 2 3; do
  tap_exit 0 "mpilm eval on $ranks ranks" -- ranks $ranks "$MPILM" eval config.yaml --run.folder=way1 --batch.micro=3 --json
  near "$(sed -n 's/.*"loss": \([^,]*\),.*/\1/p' <<<"$tap_out")" 2.125 "the loss is 17/8"
done

# Steps of three over epochs of eight, two at a time: no micro-batch is full that is not, none is left out, and the rate
# goes on once a step. 8 steps are 3 epochs.
for ranks in 1 2; do
  tap_exit 0 "$ranks ranks, 3 epochs in steps of 3" -- train $ranks three$ranks --batch.global=3 --batch.micro=2 --run.steps=8 \
    --schedule.warmup=8 --optim.lr=8e-30
  tap_is "$(column loss three$ranks | awk '{ k = 3 * $1; printf "%.3f ", k - int(k + 0.01) }')" \
    "0.000 0.000 0.000 0.000 0.000 0.000 0.000 0.000 " "each step's loss is a third of a whole number"
  near "$(column loss three$ranks | awk '{ s += $1 } END { print s / NR }')" 2.125 "the mean of the epochs"
  tap_is "$(column lr three$ranks | tr '\n' ' ')" "$(seq -f '%ge-30' -s ' ' 8) " "the rate rises once a step"
done
tap_end
