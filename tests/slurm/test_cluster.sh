#!/usr/bin/env bash
# tests/slurm/test_cluster.sh - jobs on four nodes: nodes die, signals come, ranks hang; each run ends as one that
# nothing disturbed.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
# shellcheck source=tests/train/common.sh
. "$srcdir/tests/train/common.sh"
# shellcheck source=tests/slurm/common.sh
. "$srcdir/tests/slurm/common.sh"
cluster_begin 4

make_config config.yaml
make_data
tap_ok $? "a dataset is made"
steps=(--run.steps=120 --checkpoint.every=20 --log.every=20)
train 2 reference "${steps[@]}" >log 2>&1
tap_ok $? "an undisturbed run, without Slurm"

pretrain() { # FOLDER SBATCH-WORDS... -- OVERRIDES...
  local folder=$1 words=()
  shift
  while [ "$1" != -- ]; do words+=("$1") && shift; done
  shift
  MPILM_RANKS=2 submit "${words[@]}" slurm/pretrain_cpu.sh config.yaml --run.folder="$folder" "${steps[@]}" "$@"
}

ends_well() { # FOLDER WORDS...
  follow 120
  tap_is "$(shown JobState)" COMPLETED "${*:2}: done"
  close_to loss reference "$1" 1e-5 "${*:2}: the losses of the undisturbed run"
  tap_is "$(column step "$1" | sort -n | uniq -d)" "" "${*:2}: each step once"
  explain
}

# 1. Nothing happens.
MPILM_CHECK=yes MPILM_LAUNCHER="" pretrain plain --
ends_well plain "4 nodes x 2 ranks"
job_says "on node\[1-4\], 4 nodes x 2 ranks .* by srun --mpi=pmix" "the job reports where it runs"
tap_is "$(grep -cE '^ +[0-9]+ +[01] +node[1-4] ' "slurm-$job.out")" 8 "all ranks were looked at before"
tap_like "$(cat plain/journal.jsonl)" '"job": "'"$job"'", "restart": 0, "ranks": 8, "hosts": \["node1", "node2", "node3", "node4"\]' \
  "the journal has job and hosts"
tap_is "$(basename "$(last_checkpoint plain)")" step-00000120.h5 "the last step is saved"

# 2. Nodes die: one in a step, then that of rank 0 in a save, and the run goes on with those that are left. Here and in 3,
# slow saves keep the run from its end until what is to happen to it has happened.
MPILM_FAULT=slow_save=1s pretrain dying --nodes=2-4 --
until_true 60 has_steps 30 dying
cluster kill node2
until_true 60 started_again 1 dying
until_true 60 has_steps 50 dying && until_true 60 is_saving dying
cluster kill node1
ends_well dying "node2 dies in a step, node1 in a save"
tap_is "$(sed -n 's/.*"ranks": \([0-9]*\).*/\1/p' dying/journal.jsonl | tr '\n' ' ')" "8 6 4 " \
  "it went on with 3 nodes, then with 2"
# Slurm may give it nodes of which one has just died, and take them back before a rank starts.
tap_like "$(shown Restarts)" '^[23]$' "Slurm requeued it twice, or once more for a start that came to nothing"
cluster start node1 node2
tap_ok $? "the nodes come back"

# Two at once.
MPILM_FAULT=slow_save=1s pretrain pair --nodes=2-4 --
until_true 60 has_steps 30 pair
cluster kill node3 node4
ends_well pair "two nodes die at once"
cluster start node3 node4

# 3. Signals to the batch script and to the ranks, preemption, suspension; a job that is cancelled stays so.
MPILM_FAULT=slow_save=500ms pretrain signalled -- --checkpoint.every=5 --checkpoint.async=false
until_true 60 has_steps 10 signalled
scancel --batch --signal=USR1 "$job"
until_true 30 started_again 1 signalled
until_true 60 has_steps 30 signalled
scancel --signal=TERM "$job"
until_true 30 started_again 2 signalled
until_true 60 has_steps 50 signalled
scontrol requeue "$job"
until_true 30 started_again 3 signalled
until_true 60 has_steps 70 signalled
scontrol suspend "$job" && sleep 1 && scontrol resume "$job"
ends_well signalled "USR1, TERM, preemption, suspension"
tap_is "$(shown Restarts)" 3 "three requeues"
tap_is "$(sed -n 's/.*"exit": \([0-9a-z]*\).*/\1/p' signalled/journal.jsonl | tr '\n' ' ')" "75 75 75 0 " \
  "each stop had a checkpoint"

pretrain cancelled -- --run.steps=100000
until_true 60 has_steps 10 cancelled
scancel "$job"
until_true 30 has_ended
sleep 1
tap_is "$(shown JobState) $(shown Restarts)" "CANCELLED 0" "a job that is cancelled is not started again"
explain

# 4. A rank hangs, in the first start.
cat >first_start <<'SH'
#!/bin/bash
[ -n "${SLURM_RESTART_COUNT-}" ] || export MPILM_FAULT=$FAULT
exec "$PROGRAM" "$@"
SH
chmod +x first_start
export PROGRAM=$MPILM
FAULT=hang@step35:rank5 MPILM=$PWD/first_start pretrain hanging -- --run.hang_timeout=4
ends_well hanging "a rank hangs"
tap_is "$(shown Restarts)" 1 "it was started once more"

# 5. A run that gets nowhere.
MPILM_MIN_NODES=2 MPILM_FAULT=die@step30:rank3 pretrain stuck --nodes=2-4 -- --checkpoint.async=false
follow 120
tap_is "$(shown JobState) $(shown ExitCode)" "FAILED 76:0" "a rank that always dies: exit code 76"
tap_is "$(wc -l <stuck/journal.jsonl) $(shown Restarts)" "4 4" "after three starts that saved nothing"
job_says "the last 3 starts saved no new step: step 20" "the sentence names the step"
tap_like "$(cat stuck/starts.log)" "code=[0-9]+ .*host=node2$" "the node of the rank that died is noted"
job_says "left out from now on, as starts failed there: node2" "and left out"
tap_is "$(tail -n 1 stuck/journal.jsonl | grep -c '"node2"')" 0 "so that the next starts did without it"
explain
tap_end
