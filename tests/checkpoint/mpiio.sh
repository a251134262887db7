#!/usr/bin/env bash
# tests/checkpoint/mpiio.sh - checkpoints written together by MPI-IO, and folders striped on Lustre.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
# shellcheck source=tests/train/common.sh
. "$srcdir/tests/train/common.sh"
run_state=$(dirname "$MPILM")/tests/checkpoint/run_state
make_config config.yaml
make_data
tap_ok $? "a dataset is made"

# ---- the same content ----
tap_exit 0 "each rank by itself" -- train 2 alone --run.steps=10
tap_exit 0 "all together" -- train 2 mpiio --run.steps=10 --checkpoint.writer=mpiio --checkpoint.mpiio_hints=cb_nodes=1
same alone mpiio "the same steps"
if command -v h5diff >/dev/null; then
  for step in 05 10; do
    name=step-000000$step.h5
    h5diff -q --exclude-path /integrity --exclude-path /config --exclude-path /provenance/program alone/checkpoints/$name mpiio/checkpoints/$name
    tap_ok $? "h5diff: step $step has the same content"
  done
else
  tap_skip "no h5diff" "the same content"
fi
tap_exit 0 "another number of ranks, and each by itself again" -- train 3 mpiio
tap_like "$tap_err" "resumed from step 10" "goes on"
tap_exit 0 "all is good" -- "$MPILM" ckpt verify mpiio

# Which library is under MPI-IO makes no difference either.
for io in ompio romio321; do
  ompi_info 2>/dev/null | grep -q "MCA io: $io" || { tap_skip "no $io here" "$io"; continue; }
  ranks 3 "$run_state" save pwrite 0 26 >/dev/null 2>&1
  OMPI_MCA_io=$io RUN_STATE_POLICY=mpiio ranks 3 "$run_state" save $io 0 26 >/dev/null 2>&1
  cmp pwrite/checkpoints/step-00000026.h5 $io/checkpoints/step-00000026.h5
  tap_ok $? "$io: the same bytes"
done

# ---- what goes wrong ----
tap_exit 2 "a hint that is none" -- train 1 hints --checkpoint.writer=mpiio --checkpoint.mpiio_hints=cb_nodes
tap_like "$tap_err" "checkpoint.mpiio_hints: 'cb_nodes' is no hint for MPI-IO; want key=value" "is refused"
tap_exit 2 "hints for nobody" -- train 1 hints --checkpoint.mpiio_hints=cb_nodes=1
tap_like "$tap_err" "'cb_nodes=1', which only checkpoint.writer=mpiio reads" "are refused"
MPILM_FAULT=fail_write@ckpt2:rank1 tap_exit 1 "a save of one rank fails" -- train 2 fails --checkpoint.writer=mpiio
tap_like "$tap_err" "rank 1.*step-00000010.h5.part: cannot write: Input/output error" "it says where and why"
tap_is "$(ls -A fails/checkpoints)" "step-00000005.h5" "the first one stands, nothing is left of the second"

# Some MPI-IO libraries print that a write failed, and return success: what is announced is there all the same.
shim=$PWD/fault_shim.so
if ! nm "$run_state" 2>/dev/null | grep -q __asan_init &&
  ${CC:-cc} -shared -fPIC -D_GNU_SOURCE -o "$shim" "$srcdir/tests/checkpoint/fault_shim.c" -ldl 2>cc.err; then
  printf '#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = 0 ] && export LD_PRELOAD=%s\nexec %s save "$@"\n' "$shim" "$run_state" >first
  chmod +x first
  for io in ompio romio321; do
    ompi_info 2>/dev/null | grep -q "MCA io: $io" || continue
    unheard=0 worse=0
    for n in 3 4 5; do # the first two are before the data
      rm -rf run
      OMPI_MCA_io=$io RUN_STATE_POLICY=mpiio FAULT_CALL=write FAULT_N=$n ranks 2 ./first run 0 1 2 >save.out 2>save.err
      announced=$(awk '/^saved/ { s = $2 } END { print s + 0 }' save.out)
      [ "$("$run_state" resume run 2>/dev/null)" = "resumed $announced" ] || worse=$((worse + 1))
      "$MPILM" ckpt verify run >/dev/null 2>&1 || worse=$((worse + 1))
      [ "$(grep -c ^saved save.out)" = 2 ] || grep -q "^mpilm: .*checkpoints/.step-0000000[12].h5.part: " save.err || unheard=$((unheard + 1))
    done
    tap_is "$worse $unheard" "0 0" "$io: a write that fails costs that save, which says so"
  done
else
  tap_skip "no library that makes calls fail" "a write that fails costs that save"
fi

# ---- striping ----
mkdir bin
printf '#!/bin/sh\necho "$@" >>%s/lfs.log\nexit ${LFS_EXIT-0}\n' "$PWD" >bin/lfs
chmod +x bin/lfs
PATH=$PWD/bin:$PATH train 2 striped --run.steps=5 >/dev/null 2>striped.err
tap_is "$(cat lfs.log)" "setstripe -c 8 striped/checkpoints" "where there is an lfs, a new folder is striped, once"
tap_like "$(cat striped.err)" "striped/checkpoints: files get 8 stripes" "and that is said"
PATH=$PWD/bin:$PATH train 2 striped >/dev/null 2>&1
tap_is "$(wc -l <lfs.log)" 1 "a folder that was there is left as it is"
PATH=$PWD/bin:$PATH LFS_EXIT=1 tap_exit 0 "an lfs that fails is no failure" -- train 1 other --run.steps=5 --checkpoint.stripe_count=-1
tap_is "$(tail -n 1 lfs.log)" "setstripe -c -1 other/checkpoints" "the number is what was asked for"
tap_like "$tap_err" "lfs setstripe -c -1 fails: files get what is inherited" "and that it failed is said"
PATH=$PWD/bin:$PATH train 1 none --run.steps=5 --checkpoint.stripe_count=0 >/dev/null 2>&1
tap_is "$(wc -l <lfs.log)" 2 "0 asks for nothing"
tap_end
