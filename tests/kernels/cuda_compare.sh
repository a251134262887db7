#!/bin/bash
# tests/kernels/cuda_compare.sh - each operation of the CUDA backend against the reference, where there is no GPU too.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
build=$(dirname "$MPILM")
compare=$build/tests/kernels/test_compare
export MPILM_TEST_BACKEND=cuda
"$MPILM" info --json | grep -q '"cuda": true' || tap_skip_all "this build has no CUDA"

on() { # DEVICE WORDS VARIABLE=VALUE...: all of test_compare
  env "${@:3}" "$compare" >out 2>err
  local status=$?
  tap_ok $status "$2: all agree, $(grep -c '^ok' out) checks"
  [ $status -eq 0 ] || { grep '^not ok' out && cat err; } | sed 's/^/# /' | head -n 40
  [ -z "${passes-}" ] || tap_is "$(grep -c 'linear_gelu_.*: in one pass' out)" "$passes" "$2: so many products have GELU in them"
  tap_like "$(grep -c "^ok .* - cuda $1 " out)" "${count-^[4-9][0-9][0-9]\$}" "$2: of the device that was asked for"
}

# The emulator runs the PTX in the module: tests/cudaemu, or where MPILM_CUDAEMU says.
for folder in "${MPILM_CUDAEMU-}" "$build/tests/cudaemu/lib" "$build/tests/cudaemu/.libs"; do
  [ ! -e "$folder/libcudart.so.13" ] || break
done
if [ -e "$folder/libcudart.so.13" ]; then
  # Attention has kernels for sm_90a, of 384 threads, and others for what is older; the newer device runs both.
  # GELU is in the products of 16-bit types: of two shapes both ways, and the forward of a third.
  passes=10 on sm_90 "sm_90, races and uninitialised memory are looked for" \
    LD_LIBRARY_PATH="$folder" CUDAEMU_CC=90 CUDAEMU_RACE=1 CUDAEMU_INIT=1 CUDAEMU_TRACE=1
  tap_like "$(grep -c 'forward_kernel.*384>>>' err) $(grep -c 'dkv_kernel.*384>>>' err)" '^[1-9].* [1-9]' \
    "attention by wgmma, forward and backward"
  count='^[1-9][0-9]+$' on sm_90 "sm_90, attention as on sm_80" LD_LIBRARY_PATH="$folder" CUDAEMU_CC=90 CUDAEMU_RACE=1 \
    CUDAEMU_INIT=1 CUDAEMU_TRACE=1 MPILM_CUDA_MMA_SYNC=1 MPILM_TEST_ONLY=attention_
  tap_is "$(grep -c '384>>>' err)" 0 "MPILM_CUDA_MMA_SYNC=1: attention by mma.sync"
  count='^[1-9][0-9]+$' on sm_90 "sm_90, attention put off and preempted at random" LD_LIBRARY_PATH="$folder" CUDAEMU_CC=90 \
    CUDAEMU_LAZY=1 CUDAEMU_SLICE=100 CUDAEMU_SEED=7 MPILM_TEST_ONLY=attention_
  passes=0 on sm_80 "sm_80, work is put off until it is waited for" LD_LIBRARY_PATH="$folder" CUDAEMU_CC=80 CUDAEMU_LAZY=1
  passes=0 count='^[1-9][0-9]+$' on sm_90 "sm_90, cuBLASLt has no algorithm" LD_LIBRARY_PATH="$folder" CUDAEMU_CUBLAS=0 CUDAEMU_RACE=1 CUDAEMU_INIT=1 \
    MPILM_TEST_ONLY=linear
  for how in "CUDAEMU_CUBLAS=2 has no product with GELU" "CUDAEMU_CUBLAS=3 refuses those it promised" \
    "MPILM_CUDA_PLAIN=1 is not asked for them"; do
    passes=0 count='^[1-9][0-9]+$' on sm_90 "sm_90, cuBLASLt ${how#* }" LD_LIBRARY_PATH="$folder" "${how%% *}" CUDAEMU_RACE=1 \
      CUDAEMU_INIT=1 MPILM_TEST_ONLY=linear_gelu
  done
fi
if "$MPILM" info --devices | grep -q '^GPU 0: '; then on 'sm_[0-9]*' "the GPU here"; fi
[ $tap_n -gt 0 ] || tap_skip_all "neither a GPU nor the emulator of one"
tap_end
