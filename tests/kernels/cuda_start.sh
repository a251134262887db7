#!/bin/bash
# tests/kernels/cuda_start.sh - the CUDA backend where there is no GPU: one sentence, exit code 2, never another backend.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
export CUDA_VISIBLE_DEVICES= # a machine with a GPU is treated alike
printf 'model:\n  n_layer: 1\n' >config.yaml

tap_exit 0 "mpilm info --devices answers" -- "$MPILM" info --devices
tap_is "$(wc -l <tap.out)" 1 "in one line"
if ! "$MPILM" info --json | grep -q '"cuda": true'; then
  tap_like "$tap_out" 'this build of mpilm has no CUDA' "which says that the build has no CUDA"
  tap_exit 2 "--backend=cuda is refused" -- "$MPILM" check config.yaml --backend=cuda
  tap_like "$tap_err" '^mpilm: --backend=cuda: this build of mpilm has no CUDA$' "with that reason"
  tap_end
fi

tap_like "$tap_out" '^no GPU can be used: .*\(cudaError[A-Za-z]+\)$' "which has the driver's words"
tap_exit 0 "as JSON too" -- "$MPILM" info --devices --json
tap_like "$tap_out" '"why_none": "no GPU can be used: ' "with the reason in it"
tap_exit 2 "--backend=cuda is refused" -- "$MPILM" check config.yaml --backend=cuda
tap_like "$tap_err" '^mpilm: --backend=cuda: no GPU can be used: .*\(cudaError' "with the driver's words"

export MPILM_CUDA_MODULE=/nowhere/mpilm_cuda.so
tap_exit 2 "a module that is not there is refused" -- "$MPILM" check config.yaml --backend=cuda
tap_like "$tap_err" 'the CUDA module cannot be opened: .*/nowhere/mpilm_cuda.so' "with its path"
cp "$(ldd "$MPILM" | awk '/libz.so/ { print $3 }')" other.so
export MPILM_CUDA_MODULE=$PWD/other.so
tap_exit 2 "another library is refused" -- "$MPILM" check config.yaml --backend=cuda
tap_like "$tap_err" 'other.so is not the CUDA module of this build of mpilm$' "by name"
tap_end
