#!/usr/bin/env bash
# tests/slurm/test_limits.sh - jobs of one minute: Slurm's signal before the end, and the end without any. Meanwhile, on a
# cluster that binds ranks: which cores they get.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
# shellcheck source=tests/train/common.sh
. "$srcdir/tests/train/common.sh"
# shellcheck source=tests/slurm/common.sh
. "$srcdir/tests/slurm/common.sh"
unset OMP_NUM_THREADS # the script sets it; nproc heeds it
[ "$(nproc)" -ge 2 ] || tap_skip_all "ranks cannot be bound to two cores on a machine with one"
export CLUSTER_CPUS=2 CLUSTER_TASK=task/affinity
cluster_begin 3

make_config config.yaml
make_data
tap_ok $? "a dataset is made"
steps=(--run.steps=120 --checkpoint.every=4 --checkpoint.async=false --checkpoint.keep=3 --log.every=20)
train 2 reference "${steps[@]}" >log 2>&1
tap_ok $? "an undisturbed run, without Slurm"

ends_well() { # FOLDER WORDS...
  follow 200
  tap_is "$(shown JobState)" COMPLETED "${*:2}: done"
  close_to loss reference "$1" 1e-5 "${*:2}: the losses of the undisturbed run"
  tap_is "$(column step "$1" | sort -n | uniq -d)" "" "${*:2}: each step once"
  tap_ok $(($(shown Restarts) < 1)) "${*:2}: in several allocations ($(($(shown Restarts) + 1)))"
  tap_is "$(sed -n 's/.*"exit": \([0-9a-z]*\).*/\1/p' "$1/journal.jsonl" | uniq | tr '\n' ' ')" "75 0 " \
    "${*:2}: each stop had a checkpoint"
}

# Slow saves make both runs last for three quarters of a minute. Slurm looks at the time every 30 s, so a signal for 20 s
# before the end comes 20 to 50 s before it; the run's own watch would not stop it before the last seconds.
export MPILM_FAULT=slow_save=1500ms MPILM_RANKS=2
submit --nodes=1 --time=1 --signal=B:USR1@20 slurm/pretrain_cpu.sh config.yaml --run.folder=signal \
  "${steps[@]}" --run.deadline_margin=0
by_signal=$job
sed '/--signal/d' slurm/pretrain_cpu.sh >unsignalled.sh
submit --nodes=1 --time=1 unsignalled.sh config.yaml --run.folder=deadline "${steps[@]}" --run.deadline_margin=30
by_deadline=$job

cat >stand-in <<'SH'
#!/bin/bash
[ "$1" != --version ] || exec echo "stand-in 1"
echo "$SLURM_PROCID $OMP_NUM_THREADS $(taskset -cp $$ | sed 's/.*: //')" >>cores
echo '{"saved_step": 1, "exit": 0}' >>bound/journal.jsonl
SH
chmod +x stand-in
MPILM=$PWD/stand-in submit --nodes=1 slurm/pretrain_cpu.sh config.yaml --run.folder=bound
follow 60
tap_is "$(shown JobState) $(sort cores | tr '\n' ' ')" "COMPLETED 0 1 0 1 1 1 " "two ranks on two cores: each has its own"
rm cores
MPILM_RANKS=1 MPILM=$PWD/stand-in submit --nodes=1 slurm/pretrain_cpu.sh config.yaml --run.folder=bound
follow 60
tap_is "$(shown JobState) $(sort cores | tr '\n' ' ')" "COMPLETED 0 2 0,1 " "one rank has both"
rm cores
sed -i 's/SLURM_PROCID/OMPI_COMM_WORLD_RANK/' stand-in
OMPI_MCA_hwloc_base_binding_policy="" MPILM_LAUNCHER=mpirun MPILM=$PWD/stand-in \
  submit --nodes=1 slurm/pretrain_cpu.sh config.yaml --run.folder=bound
follow 60
tap_is "$(shown JobState) $(sort cores | tr '\n' ' ')" "COMPLETED 0 1 0 1 1 1 " "by mpirun too each has its own"
explain

job=$by_signal
ends_well signal "Slurm's signal"
job_says "asked to stop: passing it on" "Slurm's signal: it came to the script"
job_says "stopped after step [0-9]+ as asked by SIGUSR1" "Slurm's signal: and to the run"
explain
job=$by_deadline
ends_well deadline "no signal"
tap_is "$(grep -c "asked to stop" "slurm-$job.out")" 0 "no signal: none came"
job_says "stopped after step [0-9]+ as the job's time is ending" "no signal: stopped in time by itself"
explain
tap_end
