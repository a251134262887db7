#!/usr/bin/env bash
# tests/slurm/budget.sh - no failure is started again for ever, whatever it leaves behind; nodes on which starts failed; the
# follow-up job where Slurm does not requeue.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
# shellcheck source=tests/slurm/stand_ins.sh
. "$srcdir/tests/slurm/stand_ins.sh"
export MPILM_FAILURES=3

starts() { # FOLDER: how its starts ended
  sed -nE 's/.* (code=[0-9]+) .*/\1/p; s/.* (next=.*)/\1/p' "$1/starts.log" | tr '\n' ' '
}

# Starts that end before the journal has a line.
folder=nothing
for i in 1 2 3; do
  job 1 $((i < 3 ? 137 : 1))
  requeues $((i < 3)) "start $i of 3 that MPILM_FAILURES allows"
done
tap_like "$tap_err" "3 starts failed.*MPILM_FAILURES allows 3; nothing/starts.log" "the sentence says what to do"
job 1 1
tap_is "$(grep -c 'stand-in train' calls)" 0 "started by hand it ends before the program begins"
job 1 137 SLURM_JOB_ID=8
tap_is "$(grep -c "scontrol requeue 8" calls)" 1 "another job begins anew"
folder=asked
for i in 1 2 3; do job 75 $((i < 3 ? 137 : 75)); done
requeues 0 "one that is asked to stop before it could train, each time, ends too"

# Killed from outside before the end can be noted: the node died, say.
folder=lost
mkdir lost
for i in 1 2 3; do echo "2026-01-01T00:00:00Z job=7 restart=$i nodes=node[1-2] entries=0 saved=0"; done >lost/starts.log
job 0 1
tap_is "$(starts lost)" "" "three starts that left neither an end nor an entry in the journal are failures"
sed -i '3s/entries=0/entries=1/' lost/starts.log
job 0 0
tap_is "$(starts lost)" "code=0 " "one of which the journal tells is not: the run's own guard counts it"

# With progress a run may fail for years; only many in a day are too many.
folder=moving
for i in 10 20 30 40; do
  echo $i >saves
  job 1 137
  [ $i -ne 20 ] || sed -i 's/^20[0-9]*/2020/' moving/starts.log
done
requeues 1 "failures with progress are forgotten after a day"
echo 50 >saves
job 1 1
requeues 0 "three in a day are too many"
: >saves
for i in 1 2; do
  sed -i 's/^20[0-9]*/2020/' moving/starts.log
  job 1 $((i < 2 ? 137 : 1))
done
requeues 0 "without progress they count as long as that lasts"

# Nothing can be noted.
echo "not a folder" >file
folder=file/run
job 1 137
requeues 1 "where failures cannot be noted"
job 1 1 SLURM_RESTART_COUNT=3
requeues 0 "Slurm's count of restarts is the budget"

# A library is missing: everywhere, or on one node.
folder=library
echo "node1 node2" >lame
job 0 2 SLURMD_NODENAME=node1
requeues 0 "a program that starts on no node is not started again"
tap_is "$(grep -c ': stand-in does not start: libx.so.1: cannot open shared object file$' <<<"$tap_err")" 1 "one sentence says why"
echo node1 >lame
job 0 137 SLURMD_NODENAME=node1
requeues 1 "where it starts on other nodes it is"
tap_like "$(tail -n 1 library/starts.log)" "code=127 .*host=node1$" "and the node is noted"
echo node2 >lame
rm library/starts.log
job 127 137 SLURMD_NODENAME=node1
tap_like "$(tail -n 1 library/starts.log)" "code=127 .*host=node2$" "so is one that only some ranks see"
echo nowhere >lame

# Which node is to blame.
blame() { # WANT WORDS...: for the lines on stdin
  # shellcheck source=slurm/job.sh
  tap_is "$(. slurm/job.sh && job_blame)" "$@"
}
blame node3 "a rank that is killed; the others are after it" <<'LOG'
srun: error: node3: task 5: Killed
srun: error: node1: tasks 0-1: Killed
LOG
blame node3 "a rank that leaves alone" <<'LOG'
srun: error: node3: task 5: Exited with exit code 1
srun: error: node1: tasks 0-1: Killed
LOG
blame "" "ranks of several nodes leave" <<'LOG'
srun: error: node1: task 0: Exited with exit code 1
srun: error: node3: tasks 4-5: Exited with exit code 1
srun: error: node2: task 2: Killed
LOG
blame "" "all leave" <<'LOG'
srun: error: node1: task 0: Exited with exit code 1
LOG
blame "" "all are killed at once" <<'LOG'
srun: error: node[1-4]: tasks 0-7: Killed
LOG
blame node4 "a node that is gone, seen after its ranks" <<'LOG'
srun: error: node1: task 0: Killed
srun: error: Node failure on node4
LOG
blame node2 "a node that does not take the ranks" <<'LOG'
srun: error: Task launch for StepId=9.0 failed on node node2: Communication connection failure
LOG
blame gpu-07 "a rank that speaks for itself" <<'LOG'
mpilm: [rank 5 gpu-07] the GPU fell off the bus
srun: error: gpu-01: task 0: Exited with exit code 1
LOG
blame "" "rank 0 speaks for all" <<'LOG'
mpilm: [rank 0 node1] out of memory
LOG
blame node2 "as mpirun tells it" <<'LOG'
mpirun noticed that process rank 1 with PID 0 on node node2 exited on signal 9 (Killed).
LOG

# Nodes on which starts failed twice are left out, beside those that the user left out, if enough are left.
echo "mpilm: [rank 1 node2] the GPU fell off the bus" >errors
echo node9 >job.excluded
echo yes >survive # a script lives on for a moment after scontrol requeue
unset MPILM_FAILURES
folder=bad
job 1 1
tap_is "$(grep -c ExcNodeList calls)" 0 "one failure says nothing of a node"
job 1 1
tap_like "$(cat calls)" "scontrol update JobId=7 ExcNodeList=node9,node2$" "two do"
tap_like "$tap_err" "left out from now on, as starts failed there: node2" "which is reported"
echo '(null)' >job.excluded
echo "mpilm: [rank 1 node5] the GPU fell off the bus" >errors
job 1 1
echo "mpilm: [rank 1 node6] the GPU fell off the bus" >errors
for i in 1 2 3; do job 1 1; done
tap_like "$(cat calls)" "ExcNodeList=(node6,node2|node2,node6)$" "at most two nodes, the worst"
job 1 1 MPILM_EXCLUDE=0
tap_is "$(grep -c ExcNodeList calls)" 0 "none where MPILM_EXCLUDE says so"
printf 'node%d idle\n' 1 2 6 >nodes
printf '%s\n' 'node3 down' 'node4 drained' 'node5 idle*' >>nodes
job 1 1
tap_is "$(grep -c ExcNodeList calls)" 0 "none where too few others could be used"
tap_like "$tap_err" "starts failed on node(2,node6|6,node2), but without .* 1 nodes? .* needs 2" "which is reported"
job 1 1 MPILM_MIN_NODES=1
tap_is "$(grep -c ExcNodeList calls)" 1 "unless the job can do with fewer"
sed -i 's/^20[0-9]*/2020/' bad/starts.log
job 1 1 MPILM_MIN_NODES=1
tap_is "$(grep -c ExcNodeList calls)" 0 "old failures are forgotten"
: >errors
: >survive

# Where Slurm refuses to requeue, or there is no scontrol: a follow-up job with the same options. It counts on.
export MPILM_FAILURES=3
echo no >refuse
folder=chain
job 1 1 SLURM_JOB_ACCOUNT=ml SLURM_JOB_QOS=long SLURM_JOB_NAME=big SLURM_NTASKS_PER_NODE=8 SLURM_CPUS_PER_TASK=2 \
  SLURM_ARRAY_JOB_ID=5 SLURM_ARRAY_TASK_ID=4 SLURM_JOB_START_TIME=1000 SLURM_JOB_END_TIME=4590 MPILM_SBATCH="--exclude=node1 --time=9"
tap_is "$(grep '^sbatch' calls)" "sbatch --parsable --dependency=afterany:5_4 --nodes=2 --job-name=big --partition=main \
--account=ml --qos=long --ntasks-per-node=8 --cpus-per-task=2 --array=4 --time=60 --exclude=node1 --time=9 \
$PWD/slurm/pretrain_cpu.sh config.yaml --run.folder=chain" "a job that Slurm does not requeue has a follow-up"
tap_is "$(starts chain-4)" "code=1 next=8 " "which is noted"
rm bin/scontrol
hide_slurm
folder=chain
job 75 75
tap_like "$(cat calls)" "sbatch .*--dependency=afterany:7 .*slurm/pretrain_cpu.sh config.yaml --run.folder=chain" "so has one without scontrol"
job 1 1 SLURM_JOB_ID=8
job 1 1 SLURM_JOB_ID=9
tap_is "$(grep -c '^sbatch' calls)" 0 "but failures of the jobs before count"
tap_is "$(starts chain)" "code=75 next=8 code=1 next=9 code=1 " "to the last"
echo "8 main pretrain" >queue
job 1 0
tap_like "$tap_err" "job 8 goes on with this run" "a job that Slurm starts again all the same leaves the run to the one behind it"
: >queue
rm chain/starts.log
job 0 0
folder=file/run
job 75 75 SLURM_JOB_ID=20
tap_is "$(grep -c '^sbatch' calls)" 0 "without a note of failures there is no follow-up"
rm bin/sbatch
folder=alone
job 75 75
tap_like "$tap_err" "submit it once more \(exit code 75\)" "without sbatch it says what to do"
tap_end
