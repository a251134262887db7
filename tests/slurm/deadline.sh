#!/usr/bin/env bash
# tests/slurm/deadline.sh - the end of the job's time stops a run, with a checkpoint and with no signal; tasks that do not
# know each other are refused.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
# shellcheck source=tests/train/common.sh
. "$srcdir/tests/train/common.sh"

make_config config.yaml
make_data
tap_ok $? "a dataset is made"

forever=(--run.steps=1000000 --checkpoint.every=0 --log.every=100000)
started=$SECONDS
SLURM_JOB_END_TIME=$(($(date +%s) + 14)) tap_exit 75 "a job that ends in 14 s" -- \
  train 2 limited "${forever[@]}" --run.deadline_margin=10
elapsed=$((SECONDS - started))
tap_ok $((elapsed > 12)) "stopped before its end less the margin (after $elapsed s)"
tap_like "$tap_err" "the job ends in 1[0-4] s" "the log tells when the job ends"
step=$(column step limited | tail -n 1)
tap_like "$tap_err" "stopped after step $step as the job's time is ending" "and why the run stopped"
tap_is "$(basename "$(last_checkpoint limited)")" "$(printf 'step-%08d.h5' "$step")" "the step is saved"

# A save that takes long is begun so much earlier: without that, this one would end 3 s after the job.
end=$(($(date +%s) + 12))
SLURM_JOB_END_TIME=$end MPILM_FAULT=slow_save=3s tap_exit 75 "saves take 3 s" -- \
  train 1 slow --run.steps=1000000 --checkpoint.every=5 --run.deadline_margin=2 --log.every=100000
left=$((end - $(stat -c %Z "$(last_checkpoint slow)"))) # since it has its name
tap_ok $((left < 0)) "the last one is done before the job ends ($left s)"

# What scontrol tells counts where Slurm sets no variable. It prints local time.
mkdir bin
cat >bin/scontrol <<'SH'
#!/bin/sh
echo "$*" >>scontrol.log
echo "JobId=7 JobName=x StartTime=2026-01-01T00:00:00 EndTime=$(date -d "+12 seconds" +%Y-%m-%dT%H:%M:%S) Deadline=N/A"
SH
chmod +x bin/scontrol
PATH=$PWD/bin:$PATH SLURM_JOB_ID=7 tap_exit 75 "scontrol tells the end" -- \
  train 2 asked "${forever[@]}" --run.deadline_margin=9
tap_is "$(cat scontrol.log)" "show job -o 7" "it is asked once, by one rank"

SLURM_NTASKS=4 SLURM_PROCID=2 SLURM_STEP_ID=0 tap_alone lm_comm_world 2 "do not know each other" "4 tasks of Slurm, each alone in MPI" -- \
  "$MPILM" train config.yaml --run.folder=alone
tap_like "$tap_err" "1 rank but Slurm started 4 tasks.*--mpi=pmix.*mpirun" "are told of srun --mpi=pmix and mpirun"
tap_ok $(("$(find . -path './alone*' | wc -l)" > 0)) "and nothing is written"
SLURM_NTASKS=4 SLURM_PROCID=2 SLURM_STEP_ID=0 MPILM_ALLOW_SINGLETONS=1 tap_exit 75 "unless that is wanted" -- \
  "$MPILM" train config.yaml --run.folder=alone --run.stop_after=1
SLURM_NTASKS=4 tap_exit 0 "in the shell of a job, outside of a step, a serial tool works" -- "$MPILM" ckpt ls alone
tap_end
