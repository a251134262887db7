#!/usr/bin/env bash
# tests/cudaemu/defects.sh - the emulator sees each defect of defects.cu, and says where it is.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
program=$(dirname "$MPILM")/tests/cudaemu/defects
[ -e "$(dirname "$program")/lib/libcudart.so.13" ] || tap_skip_all "configure found no CUDA toolkit"
ulimit -c 0

run() { # DEFECT [KNOB=VALUE...]: what is said; the program aborts, and its shell need not tell
  local defect=$1
  shift
  { env "$@" timeout 60 "$srcdir/tests/cudaemu/run" "$program" "$defect"; } 2>&1
}

caught() { # DEFECT REGEX [KNOB=VALUE...]: said in these words, of a line with (or just above) the mark of this defect
  local defect=$1 regex=$2 said lines
  shift 2
  said=$(run "$defect" "$@")
  lines=$(grep -nE "DEFECT.* $defect( |\$)" "$srcdir/tests/cudaemu/defects.cu" |
    awk -F: '{ print $1 "|" $1 - 1 }' | paste -sd '|')
  tap_like "$said" "defects.cu:($lines): .*$regex" "$defect"
}

caught past_the_end "write of 4 bytes at .*, 0 bytes past the end of an allocation of 256 bytes"
caught past_shared "write of 4 bytes at byte 256 of .*, which has 256"
caught host_pointer "no device memory"
caught freed "an allocation of 4 bytes that was freed"
caught misaligned "misaligned 16-byte access"
caught uninitialised "uninitialised device memory"
caught uninitialised_shared "uninitialised shared memory"
caught race_shared "race: (read after write to|write after read of) shared memory"
caught race_warp "race: read after write to shared memory" CUDAEMU_INIT=0
caught race_blocks "race: .* device memory"
caught no_threadfence "race: read after write to device memory"
caught divergent_barrier "wait at different places"
caught missing_barrier "deadlock: warp 1 waits at barrier 4"
caught dead_lane "lane 0 reads lane 16, which does not take part"
caught no_wait "uninitialised shared memory"
caught endless "an endless loop" CUDAEMU_LIMIT=100000
caught unknown_instruction "the emulator cannot execute this instruction"
caught trap trap
caught no_mbarrier "no mbarrier was initialised"
caught overwrites "race: write after write to shared memory"
caught no_mbarrier_wait "race: read after write to shared memory"
caught wrong_mbarrier "race: read after write to shared memory"
caught early_release "race: write after read of shared memory .*wgmma"
caught no_proxy_fence "no fence.proxy.async between this and the write"

tap_like "$(run unknown_instruction)" "does not know the instruction in 'dp4a.s32.s32" \
  "an unknown instruction is named when the kernel is compiled"
tap_like "$(run missing_event CUDAEMU_LAZY=0)" "in order" "a missing event does not show where all is done at once"
tap_like "$(run missing_event CUDAEMU_LAZY=1)" "out of order" "and does where all is done late"
tap_like "$(run nccl_mismatch)" "NCCL: call 1 differs: rank . has AllReduce of (64|32) .* AllReduce of (64|32)" \
  "ranks that call NCCL with different counts"
tap_like "$(run copy_past_the_end)" "write of 260 bytes .* runs past the end" "a copy past the end"
run device_pointer_on_host >/dev/null
tap_is $? 139 "the host cannot read a device pointer: SIGSEGV"
tap_like "$(run past_the_end CUDAEMU_ABORT=0)" "an illegal memory access was encountered" \
  "a fault is an error of the API where CUDAEMU_ABORT=0"
tap_like "$(run trap CUDAEMU_DEVICES=0)" "no CUDA-capable device is detected" "a machine without a device"
tap_like "$(run trap CUDAEMU_DRIVER=0)" "driver version is insufficient" "a machine without a driver"
tap_end
