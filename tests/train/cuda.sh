#!/bin/bash
# tests/train/cuda.sh - whole trainings on the CUDA backend, on a GPU or the emulator of one, against the CPU's.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
# shellcheck source=tests/train/common.sh
. "$srcdir/tests/train/common.sh"
"$MPILM" info --json | grep -q '"cuda": true' || tap_skip_all "this build has no CUDA"
emulator=$(dirname "$MPILM")/tests/cudaemu/lib
[ -e "$emulator/libcudart.so.13" ] || tap_skip_all "the emulator of a GPU is not built"
make_data
tap_ok $? "training and validation data"
make_config config.yaml
cat >llama.yaml <<'YAML'
model: { n_layer: 2, n_head: 4, n_kv_head: 2, n_embd: 32, n_ctx: 16, norm: rmsnorm, mlp: swiglu, position: rope,
         bias: false, tied: false, qk_norm: true, dropout: 0.1 }
data: { train: train.h5, val: val.h5, vocab: bytes, document_mask: true }
batch: { global: 12, micro: 4 }
optim: { lr: 1e-3 }
schedule: { warmup: 5 }
run: { steps: 20 }
checkpoint: { every: 0 }
YAML

on_gpu() { # RANKS FOLDER CONFIG OVERRIDES...: with every check of the emulator on, unless the environment says otherwise
  local n=$1 folder=$2 config=$3
  shift 3
  (
    : "${CUDAEMU_RACE=1}" "${CUDAEMU_INIT=1}"
    export CUDAEMU_RACE CUDAEMU_INIT LD_LIBRARY_PATH="$emulator${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    ranks "$n" "$MPILM" train "$config" --run.folder="$folder" --backend=cuda "$@" 2>err
  )
}
on_cpu() {
  local folder=$1 config=$2
  shift 2
  "$MPILM" train "$config" --run.folder="$folder" --backend=cpu "$@" 2>err
}
works() { # WORDS...: the last command did
  local status=$?
  tap_ok $status "$*"
  [ $status -eq 0 ] || sed 's/^/# /' err | head -n 20
}

# ---- the losses of the CPU ----

for model in config llama; do
  for precision in f32 bf16; do
    on_cpu "cpu-$model-$precision" $model.yaml --precision=$precision --checkpoint.every=0
    works "$model, $precision, on the CPU"
    on_gpu 1 "gpu-$model-$precision" $model.yaml --precision=$precision --checkpoint.every=0 --verbose
    works "on a GPU, nothing that the emulator looks for"
    with_gelu=0
    [ $model$precision != configbf16 ] || with_gelu=2
    tap_is "$(grep -cE 'linear_gelu_(fwd|bwd) of bf16.*: in one pass' err)" $with_gelu \
      "$with_gelu products have GELU in them, as --verbose says once each"
    bound=1e-5
    [ $precision = f32 ] || bound=1e-2
    close_to loss "cpu-$model-$precision" "gpu-$model-$precision" $bound "the same losses within $bound"
  done
done
tap_like "$(cat err)" 'backend cuda \(sm_90\)' "the backend and the architecture are said"

# ---- what repeats is a graph: of 60 micro-batches all but the first of each kind, which adds to gradients or does not ----

for precision in f32 bf16; do
  for graph in 0 1; do
    MPILM_CUDA_GRAPH=$graph CUDAEMU_TRACE=1 CUDAEMU_RACE=0 CUDAEMU_INIT=0 on_gpu 1 graph-$precision-$graph config.yaml \
      --precision=$precision --checkpoint.every=0 --verbose
    works "$precision, MPILM_CUDA_GRAPH=$graph"
    tap_is "$(grep -c 'cudaemu: a graph of' err)" $((58 * graph)) "micro-batches that are repeated as a graph"
    same gpu-config-$precision graph-$precision-$graph "the same bits"
  done
done
tap_is "$(grep -c 'a graph of [0-9]* nodes will repeat' err)" 2 "two graphs are made, and it is said"
CUDAEMU_GRAPHS=0 CUDAEMU_RACE=0 CUDAEMU_INIT=0 on_gpu 1 unrecorded config.yaml --checkpoint.every=0 --verbose
works "a device that makes no graph"
tap_like "$(cat err)" 'no graph of what repeats: operation not supported' "its words"
same gpu-config-f32 unrecorded "the same bits: what was only recorded is queued again"
CUDAEMU_RACE=0 CUDAEMU_INIT=0 on_gpu 1 no-graph llama.yaml --verbose --run.steps=2 --schedule.warmup=1
tap_like "$(cat err)" 'queued anew each time: dropout' "with dropout there is none, and it is said"

export MPILM_CUDA_MMA_SYNC=1 # tiles of wgmma are large for so small a model: the emulator would take twice as long

CUDAEMU_TRACE=1 on_gpu 1 again config.yaml --checkpoint.every=0
works "the same run again"
same gpu-config-f32 again "the same bits"
tap_is "$(grep -c adamw_kernel err) $(grep -c 'sum_pieces_kernelILb1' err)" "20 20" \
  "in 20 steps, one launch each for the update of all tensors and for their squares"
CUDAEMU_CC=80 on_gpu 1 sm_80 config.yaml --checkpoint.every=0 --run.steps=5
works "what an A100 would run"
CUDAEMU_LAZY=1 CUDAEMU_RACE=0 on_gpu 1 lazy config.yaml --checkpoint.every=0
works "streams that do nothing before somebody waits"
same gpu-config-f32 lazy "the same bits"
short=(--precision=bf16 --checkpoint.every=0 --run.steps=5)
MPILM_CUDA_PLAIN=1 CUDAEMU_RACE=0 on_gpu 1 plain config.yaml "${short[@]}"
works "GELU as a pass of its own"
CUDAEMU_CUBLAS=3 CUDAEMU_RACE=0 on_gpu 1 refused config.yaml "${short[@]}"
works "products with GELU that are refused when they are run"
same plain refused "the same bits: a pass of its own"
on_gpu 1 recompute llama.yaml --model.recompute=block --precision=f32
works "activations made again"
same gpu-llama-f32 recompute "the same bits"

# ---- fp16: an overflow is left out, and the scale halves ----

MPILM_FAULT=grad_inf@step3 on_cpu cpu-fp16 config.yaml --precision=fp16 --run.steps=6 --checkpoint.every=0
works "fp16 with an overflow, on the CPU"
MPILM_FAULT=grad_inf@step3 on_gpu 1 gpu-fp16 config.yaml --precision=fp16 --run.steps=6 --checkpoint.every=0
works "on a GPU"
close_to loss cpu-fp16 gpu-fp16 1e-2 "the same losses"
tap_is "$(column loss_scale gpu-fp16)" "$(column loss_scale cpu-fp16)" "the same scales"
tap_is "$(column skipped gpu-fp16 | tr '\n' ' ')" "false false true false false false " "one step was left out"

# ---- ranks: NCCL carries the gradients ----

for zero in 0 1 2; do
  CUDAEMU_RACE=0 on_gpu 2 zero-$zero config.yaml --parallel.zero=$zero --parallel.bucket_mb=1 --batch.micro=2
  works "2 ranks, parallel.zero $zero"
  close_to loss cpu-config-f32 zero-$zero 1e-5 "the losses of one CPU"
done
CUDAEMU_RACE=0 on_gpu 3 three config.yaml --parallel.zero=2 --run.steps=5 --checkpoint.every=0 --batch.global=7
works "3 ranks, 7 sequences"
on_cpu three-cpu config.yaml --run.steps=5 --checkpoint.every=0 --batch.global=7
close_to loss three-cpu three 1e-5 "the losses of one CPU"

# ---- the same bits for any number of ranks and any micro-batch ----

tree=(--run.reproducible=true --run.steps=4 --schedule.warmup=2 --checkpoint.every=0 --batch.global=11)
for precision in f32 bf16; do
  on_gpu 1 tree-$precision config.yaml "${tree[@]}" --precision=$precision
  works "run.reproducible, $precision, 1 rank"
  CUDAEMU_RACE=0 on_gpu 3 tree-$precision-3 config.yaml "${tree[@]}" --precision=$precision --batch.micro=2 --parallel.bucket_mb=1
  works "3 ranks"
  same tree-$precision tree-$precision-3 "the same bits"
done
CUDAEMU_RACE=0 on_gpu 4 tree-4 config.yaml "${tree[@]}" --parallel.zero=0
works "4 ranks, parallel.zero 0"
same tree-f32 tree-4 "the same bits"
CUDAEMU_LAZY=1 CUDAEMU_RACE=0 on_gpu 1 tree-lazy config.yaml "${tree[@]}"
works "streams that do nothing before somebody waits"
same tree-f32 tree-lazy "the same bits"
on_cpu tree-cpu config.yaml "${tree[@]}"
close_to loss tree-cpu tree-f32 1e-5 "the losses of the CPU"

# ---- checkpoints: either backend goes on with the other's ----

whole=cpu-config-f32
on_gpu 1 to-cpu config.yaml --run.stop_after=8
tap_is $? 75 "stopped on a GPU after step 8"
"$MPILM" ckpt verify to-cpu >/dev/null
tap_ok $? "what it saved verifies"
on_cpu to-cpu config.yaml
works "the CPU goes on"
close_to loss $whole to-cpu 1e-5 "the losses of the uninterrupted run"
on_cpu to-gpu config.yaml --run.stop_after=8
tap_is $? 75 "stopped on the CPU after step 8"
CUDAEMU_RACE=0 on_gpu 2 to-gpu config.yaml
works "2 GPUs go on"
close_to loss $whole to-gpu 1e-5 "the losses of the uninterrupted run"
MPILM_CUDA_MMA_SYNC='' on_gpu 1 stopped config.yaml --precision=bf16 --run.stop_after=8 # as the run of the beginning
tap_is $? 75 "in bf16, stopped on a GPU after step 8"
MPILM_CUDA_MMA_SYNC='' on_gpu 1 stopped config.yaml --precision=bf16
works "and gone on there"
same gpu-config-bf16 stopped "the bits of the uninterrupted run"

# A device's state is copied while the next steps compute; their updates wait for the copy. Streams that do nothing before
# somebody waits, and a save that looks at its copy late, would keep a state of later steps.
on_gpu 1 at-once config.yaml --run.steps=12 --checkpoint.every=4 --checkpoint.async=false
works "saves between two steps"
MPILM_FAULT=late_save=1s CUDAEMU_LAZY=1 CUDAEMU_RACE=0 on_gpu 1 meanwhile config.yaml --run.steps=12 --checkpoint.every=4
works "saves while training goes on"
for step in 4 8 12; do
  file=checkpoints/step-$(printf %08d $step).h5
  "$MPILM" ckpt diff at-once/$file meanwhile/$file | grep -E '^differs +/(model|optimizer)' >diff.out
  tap_ok $((! $?)) "step $step: the state of that step"
done

# ---- what is said of the device ----

ln -s "$emulator/libcudart.so.13" libcuda.so.1 # a driver, as far as its presence is asked for
here=$emulator:$PWD
tap_exit 0 "info" -- env LD_LIBRARY_PATH="$here" CUDAEMU_DEVICES=2 "$MPILM" info
tap_like "$tap_out" '^backend +cuda$' "names what --backend=auto would take"
tap_like "$tap_out" '^devices +2$' "how many"
tap_like "$tap_out" '^device_bf16_tflops +[1-9]' "and how fast they multiply"
tap_exit 0 "check" -- env LD_LIBRARY_PATH="$here" "$MPILM" check config.yaml --run.folder=checked --json
tap_like "$tap_out" '"backend":"cuda".*"gflops":[0-9.]*[1-9]' "measures the device"
tap_exit 0 "without a device" -- env LD_LIBRARY_PATH="$here" CUDAEMU_DEVICES=0 "$MPILM" info
tap_like "$tap_out" '^backend +cpu$' "the CPU"
CUDAEMU_RACE=0 on_gpu 2 exposed config.yaml --parallel.overlap=false --run.steps=5 --checkpoint.every=0
works "2 ranks that sum behind backward"
tap_is "$(column reduce exposed | awk '$1 > 0' | wc -l) $(column reduce gpu-config-f32 | awk '$1 > 0' | wc -l)" "5 0" \
  "wait for sums in each step, and say how long; one rank never does"

# ---- what is missing ----

CUDAEMU_DEVICES=0 on_gpu 1 none config.yaml
tap_is $? 2 "no device: exit code 2"
tap_like "$(cat err)" '^mpilm: --backend=cuda: no GPU can be used: no CUDA-capable device' "and the driver's words"
CUDAEMU_MEMORY=40 on_gpu 1 small config.yaml --model.n_embd=512 --batch.micro=12
tap_is $? 2 "too little memory: exit code 2 before anything is taken"
tap_like "$(cat err)" "a rank's memory: .* MiB are wanted .* are free; lower batch.micro" "what is wanted, free, and can be done"
on_cpu auto config.yaml --run.steps=6 --checkpoint.every=0 --backend=auto
works "--backend=auto where there is no driver"
[ -e /dev/nvidiactl ] || tap_like "$(cat err)" 'the CPU computes: no NVIDIA driver' "one line says why the CPU computes"
CUDAEMU_RACE=0 CUDAEMU_NCCL_FAIL=1:20 on_gpu 2 broken config.yaml --run.hang_timeout=60
tap_ok $((! $?)) "a collective that fails on one rank ends the job"
tap_like "$(cat err)" 'rank 1 .*NCCL: a collective failed' "and who, and what, is said"
tap_end
