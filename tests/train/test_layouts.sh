#!/bin/bash
# tests/train/test_layouts.sh - ranks, micro-batches and threads change nothing but rounding, or nothing at all.
. "$srcdir/tests/tap.sh"
. "$srcdir/tests/train/common.sh"

weights_apart() { # FOLDER-A FOLDER-B: the largest difference of any weight at the end
  "$MPILM" ckpt diff "$(last_checkpoint "$1")" "$(last_checkpoint "$2")" 2>/dev/null |
    awk '$2 ~ "^/model/" { n++; if ($1 == "differs") { x = $4 + 0; if (x > most) most = x } } END { if (n > 20) print most + 0 }'
}

make_config config.yaml
make_data
tap_ok $? "a dataset is made"

tap_exit 0 "1 rank trains" -- train 1 one
tap_is "$(column step one | tr '\n' ' ')" "$(seq -s ' ' 20) " "a row a step"
for n in 2 3 4; do
  tap_exit 0 "$n ranks train" -- train $n "ranks$n"
  close_to loss one "ranks$n" 1e-5 "$n ranks: the losses of 1"
  close_to grad_norm one "ranks$n" 1e-5 "$n ranks: the norms of 1"
done
tap_exit 0 "12 sequences on 5 ranks: 2 or 3 each" -- train 5 ranks5
close_to loss one ranks5 1e-5 "5 ranks: the losses of 1"
for micro in 1 5 12; do
  tap_exit 0 "micro-batches of $micro" -- train 1 "micro$micro" --batch.micro=$micro
  close_to loss one "micro$micro" 1e-5 "micro-batches of $micro: the losses of 4"
done
for n in 2 3; do
  OMP_NUM_THREADS=$n tap_exit 0 "$n threads" -- train 1 threads$n
  same one threads$n "$n threads: the same bits as 1"
  tap_is "$(weights_apart one threads$n)" 0 "$n threads: the same weights"
done
for folder in micro1 ranks2 ranks3; do
  apart=$(weights_apart one $folder)
  awk -v x="$apart" 'BEGIN { exit !(x != "" && x <= 1e-5) }'
  tap_ok $? "$folder: weights after 20 steps within 1e-5 ($apart)"
done
tap_exit 0 "the same again" -- train 3 again3
same ranks3 again3 "3 ranks twice: the same bits"
tap_exit 0 "evaluation between" -- train 1 evaluated --eval.every=3
same one evaluated "evaluation leaves training as it is"
tap_exit 0 "bf16 on 2 ranks" -- train 2 bf16 --precision=bf16
close_to loss one bf16 2e-2 "bf16: the losses of f32"
tap_exit 0 "the reference backend" -- train 1 ref --backend=ref
close_to loss one ref 1e-5 "the reference backend: the losses of the CPU's"

first=$(column loss one | head -n 1)
awk -v x="$first" 'BEGIN { exit !(x > 5.549 - 0.3 && x < 5.549 + 0.3) }'
tap_ok $? "an untrained model knows nothing: $first is near ln 257 = 5.549"
last=$(column loss one | tail -n 1)
awk -v a="$first" -v b="$last" 'BEGIN { exit !(b < a - 0.2) }'
tap_ok $? "and learns: $last"
# The same at GPT-2's vocabulary: ln 50257 = 10.825, whatever the model's size.
tap_exit 0 "a vocabulary of 50257" -- train 1 wide --model.vocab_size=50257 --run.steps=1 --schedule.warmup=0
untrained=$(column loss wide)
awk -v x="$untrained" 'BEGIN { exit !(x > 10.825 - 0.3 && x < 10.825 + 0.3) }'
tap_ok $? "an untrained model: $untrained is near 10.825"
tap_end
