#!/bin/bash
# tests/train/test_ramp.sh - a batch that grows, and rates that follow tokens: in runs, resumed runs, and on paper.
. "$srcdir/tests/tap.sh"
. "$srcdir/tests/train/common.sh"

make_config config.yaml
make_data
tap_ok $? "a dataset is made"

# 2 to 6 sequences of 16 tokens over 640 tokens: 10 sequences for each of 2, 3, 4, 5.
ramp="--batch.global=6 --batch.ramp_start=2 --batch.ramp_tokens=640 --log.samples=true"
batches="2 2 2 2 2 3 3 3 3 4 4 4 5 5 6 6 6 6 6 6 "
# shellcheck disable=SC2086
tap_exit 0 "1 rank, a growing batch" -- train 1 one $ramp
tap_is "$(column batch one | tr '\n' ' ')" "$batches" "the batches"
tap_is "$(column tokens one | tr '\n' ' ')" "$(awk '{ for (i = 1; i <= NF; i++) { n += 16 * $i; printf "%d ", n } }' \
  <<<"$batches")" "the tokens are their sum"
windows=$(sed -n 's/.*"samples": \[\([^]]*\)\].*/\1/p' one/metrics.jsonl | tr -d ' ' | tr ',' '\n')
tap_is "$(wc -l <<<"$windows")" 80 "every step names its windows"
tap_is "$(sort -n <<<"$windows" | uniq -d)" "" "and none comes twice in an epoch"
for n in 3 4; do # more ranks than sequences at first
  # shellcheck disable=SC2086
  tap_exit 0 "$n ranks" -- train $n "ranks$n" $ramp
  close_to loss one "ranks$n" 1e-5 "$n ranks: the losses of 1"
  close_to grad_norm one "ranks$n" 1e-5 "$n ranks: the norms of 1"
done
for zero in 1 2; do
  # shellcheck disable=SC2086
  tap_exit 0 "3 ranks, sharded ($zero)" -- train 3 zero$zero $ramp --parallel.zero=$zero --batch.micro=1
  close_to loss one zero$zero 1e-5 "sharded ($zero): the losses of 1"
  close_to grad_norm one zero$zero 1e-5 "sharded ($zero): the norms of 1"
done
# shellcheck disable=SC2086
tap_exit 75 "stopped in the ramp" -- train 1 parts $ramp --run.stop_after=7
# shellcheck disable=SC2086
tap_exit 0 "resumed" -- train 1 parts $ramp
same one parts "20 = 7 + 13: the same bits"
tap_is "$(grep -o '"samples": .*' parts/metrics.jsonl)" "$(grep -o '"samples": .*' one/metrics.jsonl)" "the same windows"

# A warm-up of 300 tokens is 10 steps here: 32 32 32 32 32 48 48 ... = 160, then 48 a step.
# shellcheck disable=SC2086
tap_exit 0 "a warm-up in tokens" -- train 1 warm $ramp --schedule.warmup=0 --schedule.warmup_tokens=300
tap_is "$(column lr warm | head -n 8 | tail -n 1)" 0.001 "160 + 3 x 48 tokens reach 300: the peak in step 8"
tap_exit 0 "a warm-up as a fraction" -- train 1 part --schedule.warmup=0 --schedule.warmup_fraction=0.2
tap_is "$(column lr part | head -n 4 | tr '\n' ' ')" "0.00025 0.0005 0.00075 0.001 " "a fifth of 20 steps"
tap_exit 0 "a rate for 3 sequences, by the root" -- train 1 root --optim.lr_scaling=sqrt --optim.base_batch=3
tap_is "$(column lr root | sed -n 5p)" 0.002 "sqrt(12 / 3) doubles it"
tap_exit 0 "and by the ratio" -- train 1 ratio --optim.lr_scaling=linear --optim.base_batch=3
tap_is "$(column lr ratio | sed -n 5p)" 0.004 "12 / 3 times it"

for kind in linear constant wsd inverse_sqrt; do
  tap_exit 0 "$kind" -- train 1 $kind --schedule.kind=$kind --optim.kind=sgd --optim.nesterov=true
  # shellcheck disable=SC2086
  shown=$("$MPILM" train config.yaml --show-schedule --svg $kind.svg --schedule.kind=$kind)
  tap_is "$(awk 'NR > 1 { printf "%.6e ", $2 }' <<<"$shown")" "$(column lr $kind | awk '{ printf "%.6e ", $1 }')" \
    "$kind: --show-schedule prints the rates of the run"
done
tap_exit 75 "SGD, stopped" -- train 1 sgd-parts --schedule.kind=linear --optim.kind=sgd --optim.nesterov=true \
  --run.stop_after=11
tap_exit 0 "SGD, resumed" -- train 1 sgd-parts --schedule.kind=linear --optim.kind=sgd --optim.nesterov=true
same linear sgd-parts "SGD, 20 = 11 + 9: the same bits"
tap_like "$(head -c 100 wsd.svg)" '^<svg xmlns="http://www.w3.org/2000/svg"' "and draws them"
tap_is "$(tail -n 1 wsd.svg)" "</svg>" "to the end"
tap_exit 0 "nothing is trained" -- "$MPILM" train config.yaml --show-schedule --run.folder=nowhere --data.train=nothere.h5
tap_ok "$([ -e nowhere ] && echo 1 || echo 0)" "no run folder is made"
tap_exit 2 "a picture that cannot be written" -- ranks 2 "$MPILM" train config.yaml --show-schedule --svg=no/such/x.svg
tap_like "$tap_err" "no/such" "is named"

refused() { # REGEX OVERRIDES...
  tap_exit 2 "${*:2}" -- train 1 wrong "${@:2}"
  tap_like "$tap_err" "$1" "is refused with words"
}
refused "want one of them" --schedule.warmup_fraction=0.5
refused "ramp_start is 50, above batch.global 12" --batch.ramp_start=50 --batch.ramp_tokens=100
refused "want both or none" --batch.ramp_start=5
refused "run.reproducible" --batch.ramp_start=5 --batch.ramp_tokens=100 --run.reproducible
refused "wants optim.base_batch" --optim.lr_scaling=sqrt
refused "want at least 1" --schedule.restarts
tap_end
