#!/bin/bash
# tests/gradsync/zero.sh - shared optimizers and gradients train as if every rank had all, and save what any layout reads.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
# shellcheck source=tests/train/common.sh
. "$srcdir/tests/train/common.sh"

make_config config.yaml
make_data
tap_ok $? "a dataset is made"
short=(--run.steps=8 --optim.clip=0.1 --checkpoint.every=0)

tap_exit 0 "one rank, nothing shared" -- train 1 one "${short[@]}"
for zero in 1 2; do
  for n in 1 2 3 4; do
    tap_exit 0 "zero $zero on $n ranks" -- train $n "z$zero-$n" --parallel.zero=$zero "${short[@]}"
    close_to loss one "z$zero-$n" 1e-5 "zero $zero on $n ranks: the losses of one"
    close_to grad_norm one "z$zero-$n" 1e-5 "zero $zero on $n ranks: the norms of one, all of them clipped"
  done
  tap_exit 0 "zero $zero again" -- train 3 "again$zero" --parallel.zero=$zero "${short[@]}"
  same "z$zero-3" "again$zero" "zero $zero on 3 ranks twice: the same bits"
done
for zero in 0 1 2; do
  tap_exit 0 "zero $zero, overlapped" -- train 3 "on$zero" --parallel.zero=$zero --parallel.overlap=true "${short[@]}"
  tap_exit 0 "zero $zero, not overlapped" -- train 3 "off$zero" --parallel.zero=$zero --parallel.overlap=false \
    --batch.micro=4 "${short[@]}"
  same "on$zero" "off$zero" "zero $zero: overlap changes no bit"
done

# 3 sequences on 4 ranks: one has none.
tap_exit 0 "3 sequences on one rank" -- train 1 few "${short[@]}" --batch.global=3 --batch.micro=2
for zero in 0 1 2; do
  tap_exit 0 "3 sequences on 4 ranks, zero $zero" -- train 4 "few$zero" "${short[@]}" --batch.global=3 --parallel.zero=$zero
  close_to loss few "few$zero" 1e-5 "the losses of one rank"
done

for zero in 1 2; do
  MPILM_FAULT=grad_inf@step3:rank1 tap_exit 0 "infinite in step 3, zero $zero" -- \
    train 3 "inf$zero" --run.steps=4 --schedule.warmup=0 --parallel.zero=$zero --checkpoint.every=0
  tap_is "$(column skipped "inf$zero" | tr '\n' ' ')" "false false true false " "zero $zero: step 3 is left out"
  tap_like "$tap_err" "not finite in token_embedding/weight" "and the tensor named"
done

# Sharded over 4 ranks until step 10, which 34,208 parameters do not divide by 3: any layout goes on, 10 more steps.
long=(--run.steps=20 --optim.clip=0.1 --checkpoint.every=10)
tap_exit 0 "20 steps, zero 1 on 4 ranks" -- train 4 whole --parallel.zero=1 "${long[@]}"
tap_exit 75 "10 of them" -- train 4 part --parallel.zero=1 "${long[@]}" --run.stop_after=10
for way in "1 0" "2 1" "3 1" "3 2"; do
  read -r n zero <<<"$way"
  cp -r part "on-$n-$zero"
  tap_exit 0 "then zero $zero on $n ranks" -- train "$n" "on-$n-$zero" --parallel.zero="$zero" "${long[@]}"
  tap_like "$tap_err" "resumed from step 10" "it goes on"
  close_to loss whole "on-$n-$zero" 1e-5 "the losses of 4 ranks"
done

# A step that is left out changes nothing, so its checkpoint is the one before it, written by another layout.
if command -v h5diff >/dev/null; then
  for precision in f32 bf16; do
    for way in "2 3 0 1" "0 1 2 3" "1 4 2 2"; do
      read -r zero_a ranks_a zero_b ranks_b <<<"$way"
      f=move-$precision-$zero_a
      tap_exit 0 "$precision: zero $zero_a on $ranks_a ranks saves" -- train "$ranks_a" "$f" --precision=$precision \
        --parallel.zero="$zero_a" --schedule.warmup=0 --run.steps=3
      MPILM_FAULT=grad_inf@step4 tap_exit 0 "zero $zero_b on $ranks_b ranks loads and saves" -- train "$ranks_b" "$f" \
        --precision=$precision --parallel.zero="$zero_b" --schedule.warmup=0 --run.steps=4
      tap_like "$tap_err" "resumed from step 3" "it resumed"
      for group in /model /optimizer; do
        h5diff "$f"/checkpoints/step-0000000[34].h5 $group $group >diff.out 2>&1
        tap_is "$?:$(cat diff.out)" "0:" "$group holds the same bits"
      done
    done
  done
else
  tap_skip "no h5diff (Debian: hdf5-tools)" "checkpoints of all layouts hold the same bits"
fi
tap_end
