#!/bin/bash
# tests/device/run.sh - every check that wants a GPU, correctness first, then speed, in 8 minutes; one JSON object.
# SPDX-License-Identifier: BSD-3-Clause
#
# usage: tests/device/run.sh [OUT]      writes OUT/result.json and logs; OUT is device-results if not given
#
# Where mpilm is built (build/, or the folder MPILM_BUILD), it runs that. On a machine with a GPU and nothing of ours it
# runs what tests/device/bundle.sh packed elsewhere: build/device.tar.xz, or the file MPILM_BUNDLE, is unpacked first.
# CUDA's libraries are taken from the toolkit, or from Python's packages of NVIDIA. The exit code is 0 where every check
# holds; what is slower than hoped is a number, not a failure. MPILM_DEVICE_SMALL=1 takes tiny models, which the emulator
# of tests/cudaemu can carry too: so this script is tried where there is no GPU.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-device-results}
mkdir -p "$out" && out=$(cd "$out" && pwd)
began=$SECONDS failed=0 stages=

# ---- the programs ----

unpack() { # FILE
  local to=$out/unpacked
  rm -rf "$to" && mkdir "$to"
  tar -C "$to" -xf "$1" || exit 2
  bin=$to/device/bin
  export OMPI_MCA_mca_base_component_path=$to/device/mpi/plugins OPAL_PKGDATADIR=$to/device/mpi/texts
  export LD_LIBRARY_PATH=$to/device/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}

build=${MPILM_BUILD:-$here/../../build}
bundle=${MPILM_BUNDLE:-$here/../../build/device.tar.xz}
if [ -n "${MPILM_BUNDLE-}" ] || ! "$build/mpilm" --version >/dev/null 2>&1; then
  [ -e "$bundle" ] || { echo "run.sh: neither $build/mpilm runs here nor is there $bundle (bundle.sh)" >&2; exit 2; }
  unpack "$bundle"
  mpilm=$bin/mpilm step=$bin/step attention=$bin/attention compare=$bin/test_compare
else
  mpilm=$build/mpilm step=$build/benchmarks/step attention=$build/benchmarks/attention compare=$build/tests/kernels/test_compare
  export MPILM_CUDA_MODULE=$build/.libs/mpilm_cuda.so
fi

cuda_folders() { # of the libraries, the first that has each is taken
  ls -d /usr/local/cuda/lib64 /usr/local/cuda/lib 2>/dev/null
  python3 -c 'import nvidia, glob, os
for root in nvidia.__path__:
  for f in sorted(glob.glob(os.path.join(root, "*", "lib"))): print(f)' 2>/dev/null
}
for folder in $(cuda_folders); do LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder; done
export LD_LIBRARY_PATH
# One rank that nobody started: no daemon is wanted.
export OMPI_MCA_ess_singleton_isolated=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl=self

# ---- the stages ----

stage() { # NAME JSON: what was seen
  stages+="${stages:+, }\"$1\": $2"
  printf '%4d s  %-22s %s\n' $((SECONDS - began)) "$1" "${2:0:150}"
}

check() { # NAME OK(0|1) DETAIL
  [ "$2" -eq 0 ] || failed=$((failed + 1))
  stage "$1" "{\"ok\": $([ "$2" -eq 0 ] && echo true || echo false), $3}"
}

kernels() { # every operation against the reference
  MPILM_TEST_BACKEND=cuda timeout 120 "$compare" >"$out/kernels.log" 2>&1
  local status=$?
  check kernels $status "\"passed\": $(grep -c '^ok' "$out/kernels.log"), \"failed\": $(grep -c '^not ok' "$out/kernels.log")"
}

sanitizer() { # the same under NVIDIA's checker, where there is one: a part of it, for a minute
  command -v compute-sanitizer >/dev/null || { stage sanitizer '{"skipped": "no compute-sanitizer"}'; return; }
  MPILM_TEST_BACKEND=cuda timeout 60 compute-sanitizer --tool memcheck --error-exitcode 9 "$compare" \
    >"$out/sanitizer.log" 2>&1
  local status=$?
  [ $status -ne 124 ] || status=0 # the time is up, and nothing was found
  grep -q 'Device not supported' "$out/sanitizer.log" && { stage sanitizer '{"skipped": "device not supported"}'; return; }
  check sanitizer $status "\"checks\": $(grep -c '^ok' "$out/sanitizer.log")"
}

text() { # words of a small grammar, by a generator that is the same everywhere
  awk 'function pick(k) { s = (s * 1103515245 + 12345) % 2147483648; return int(s / 256) % k }
    BEGIN { s = 1; split("the a one every", d); split("cat dog bird fish king child", w); split("sees likes finds", v)
      for (i = 0; i < 20000; i++) print d[pick(4) + 1], w[pick(6) + 1], v[pick(3) + 1], d[pick(4) + 1], w[pick(6) + 1] "." }'
}

losses() { # FOLDER
  sed -n 's/.*"loss": \([^,}]*\)[,}].*/\1/p' "$1/metrics.jsonl"
}

train() { # NAME BACKEND OVERRIDES...: 50 steps of GPT-2 124M
  local name=$1 backend=$2
  shift 2
  timeout 150 "$mpilm" train "$out/config.yaml" "${trained[@]}" --data.train="$out/train.h5" --batch.global=8 --batch.micro=4 \
    --run.steps=50 --schedule.warmup=5 --checkpoint.every=0 --checkpoint.async=false --run.folder="$out/$name" \
    --backend="$backend" "$@" >"$out/$name.log" 2>&1
}

trainings() { # the losses of the CPU
  text >"$out/text.txt"
  printf 'run:\n  seed: 1\n' >"$out/config.yaml"
  "$mpilm" tokenize --vocab bytes --out "$out/train.h5" "$out/text.txt" >"$out/tokenize.log" 2>&1
  local precision bound status largest
  for precision in f32 bf16; do
    bound=1e-4
    [ $precision = f32 ] || bound=2e-2
    rm -rf "$out/cpu-$precision" "$out/gpu-$precision"
    train "cpu-$precision" cpu --precision=$precision && train "gpu-$precision" cuda --precision=$precision
    status=$?
    largest=$(paste <(losses "$out/cpu-$precision") <(losses "$out/gpu-$precision") | awk 'NF != 2 { m = 9 }
      { d = ($1 - $2) / $1; d = d < 0 ? -d : d; if (d > m) m = d } END { print NR == 50 ? m : 9 }')
    [ $status -eq 0 ] && awk -v d="$largest" -v b=$bound 'BEGIN { exit !(d <= b) }'
    check "train-124m-$precision" $? "\"largest_relative_difference\": $largest, \"bound\": $bound"
    rm -rf "$out/cpu-$precision/checkpoints" "$out/gpu-$precision/checkpoints"
  done
  rm -f "$out/train.h5" "$out/text.txt" "$out/config.yaml"
}

speed() { # PRESET B
  local name=step-$1
  timeout 100 "$step" --json --backend=cuda --precision=bf16 --model.preset="$1" "${timed[@]}" --batch.micro="$2" \
    --run.steps=10 >"$out/$name.json" 2>"$out/$name.log"
  local status=$?
  check "$name" $status "\"batch\": $2, \"result\": $([ $status -eq 0 ] && cat "$out/$name.json" || echo null)"
}

attention() { # NAME MMA_SYNC: attention alone, by the kernels for sm_90a or by those for what is older
  MPILM_CUDA_MMA_SYNC=$2 timeout 60 "$attention" --backend=cuda --json "${shapes[@]}" >"$out/$1.json" 2>"$out/$1.log"
  local status=$?
  check "$1" $status "\"result\": $([ $status -eq 0 ] && cat "$out/$1.json" || echo null)"
}

shapes=() trained=(--model.preset=gpt2-124m --model.n_ctx=64) timed=(--model.n_ctx=1024 --model.vocab_size=50257)
if [ -n "${MPILM_DEVICE_SMALL-}" ]; then
  trained=(--model.preset=tiny) shapes=(--longest=64)
  timed=(--model.n_ctx=32 --model.vocab_size=512 --model.n_embd=64 --model.n_head=1 --model.n_layer=1)
fi
"$mpilm" info --devices | tee "$out/devices.log"
grep -q '^GPU 0' "$out/devices.log" || { echo "run.sh: no GPU here" >&2; exit 2; }
kernels
trainings
attention attention 0
attention attention-mma-sync 1
speed gpt2-124m 64
speed gpt2-350m 32
speed gpt2-1558m 8
sanitizer
printf '{"device": "%s", "seconds": %d, "failed": %d, %s}\n' "$(sed -n 's/^GPU 0: //p' "$out/devices.log")" \
  $((SECONDS - began)) $failed "$stages" >"$out/result.json"
rm -rf "$out/unpacked"
echo "$out/result.json: $failed failed, $((SECONDS - began)) s"
[ $failed -eq 0 ]
