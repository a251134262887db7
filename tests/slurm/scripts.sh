#!/usr/bin/env bash
# tests/slurm/scripts.sh - the job scripts without a cluster: what they ask of srun, how they pass signals on, and what they
# do with each exit code.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
# shellcheck source=tests/train/common.sh
. "$srcdir/tests/train/common.sh"

make_config config.yaml
make_data
tap_ok $? "a dataset is made"
# shellcheck source=tests/slurm/stand_ins.sh
. "$srcdir/tests/slurm/stand_ins.sh"

SLURM_CPUS_PER_TASK=8 MPILM_RANKS=2 tap_exit 0 "a run under a stand-in for srun" -- \
  "${as_job[@]}" bash slurm/pretrain_cpu.sh config.yaml --run.folder=done
tap_like "$(cat calls)" "srun --mpi=pmix --nodes=2 --ntasks=4 --ntasks-per-node=2 --cpus-per-task=8 " \
  "srun is told the cores of a task"
tap_is "$(column step "done" | tail -n 1)" 20 "the run is whole"
rm calls
MPILM_RANKS=2 tap_exit 0 "without cores of a task" -- "${as_job[@]}" bash slurm/pretrain_cpu.sh config.yaml --run.folder=done
tap_like "$(cat calls)" "--cpus-per-task=8 " "those of the node are shared out"

tap_like "$(cat calls)" "--cpu-bind=cores --distribution=block:block " "ranks are bound, neighbours beside each other"
tap_exit 2 "more cores than there are" -- env SLURM_CPUS_PER_TASK=12 MPILM_RANKS=2 "${as_job[@]}" \
  bash slurm/pretrain_cpu.sh config.yaml
tap_like "$tap_err" "2 ranks x 12 cores are more than the 16 cores of a node" "is a sentence"

echo pmi2 >pmi
job 0 0
tap_like "$(tail -n 1 calls)" "srun --mpi=pmi2 --nodes=2" "pmi2 where ranks by PMIx do not know each other"
echo none >pmi
job 0 0
tap_like "$(tail -n 1 calls)" "^mpirun -n 2 --map-by ppr:1:node.* stand-in train config.yaml" "mpirun where none do"
n=$(env -u OMP_NUM_THREADS nproc)
job 0 0 SLURM_CPUS_ON_NODE="$n" MPILM_RANKS="$n" OMP_NUM_THREADS=1
tap_like "$(tail -n 1 calls)" "^mpirun -n $((2 * n)) --map-by ppr:$n:node:PE=1 " "which binds where the node has the cores"
echo pmix >pmi
rm -r coded

for script in pretrain_cpu pretrain_64gpu; do
  for line in --requeue --open-mode=append --signal=B:USR1@180 --exclusive; do
    tap_is "$(grep -c "^#SBATCH $line\$" "slurm/$script.sh")" 1 "$script.sh asks for $line"
  done
done

# Words in another order, and folders that are not there.
echo 0 >code
tap_exit 0 "options before the config" -- env MPILM=stand-in "${as_job[@]}" bash slurm/pretrain_cpu.sh --optim.lr 1e-3 --verbose config.yaml
tap_like "$(tail -n 1 calls)" "stand-in train --optim.lr 1e-3 --verbose config.yaml --run.folder=runs/config" "the folder is that of the config"
tap_exit 2 "no config" -- env MPILM=stand-in "${as_job[@]}" bash slurm/pretrain_cpu.sh --optim.lr=1e-3
tap_like "$tap_err" "usage: sbatch .*pretrain_cpu.sh CONFIG" "is a sentence"
tap_exit 2 "a run folder on a file system that is not mounted" -- env MPILM=stand-in "${as_job[@]}" \
  bash slurm/pretrain_cpu.sh config.yaml --run.folder="$PWD/disk/user/run"
tap_like "$tap_err" "$PWD/disk/user, the folder that the run folder goes into, is not there" "is a sentence"
tap_is "$(ls -d disk 2>/dev/null)" "" "and nothing is made"
rm -r runs

# Exit code -> action.
job 0 0
requeues 0 "0: done"
job 2 2
requeues 0 "2: not started again"
job 76 76
requeues 0 "76: not started again"
job 75 137 # scontrol requeue ends the script
requeues 1 "75: started again"
for i in 1 2 3; do
  [ $i -lt 3 ] || export MPILM_FAILURES=4
  job 1 $((i < 3 ? 137 : 1))
  requeues $((i < 3)) "1: started again, until MPILM_FAILURES starts in a row came to nothing"
done
tap_is "$(sed -n 's/.* code=\([0-9]*\) .*/\1/p' coded/starts.log | tr '\n' ' ')" "0 2 76 75 1 1 1 " "each start is noted"
unset MPILM_FAILURES
# srun can end with 0 though it started nothing.
echo "srun: error: task 0 launch failed: Unspecified error" >unstarted
job 0 137
tap_is "$(tail -n 1 coded/starts.log | grep -c code=1)" 1 "ranks that could not be started are a failure, whatever srun returns"
: >unstarted
echo '{"saved_step": 5, "exit": null}' >>coded/journal.jsonl
job 0 137
tap_like "$tap_err" "srun ended without an error, but the run did not end" "so is an end that the journal does not know of"
rm unstarted
touch rolls # not a start
job 0 0
rm rolls

echo CANCELLED >job.state
job 75 75
tap_is "$(grep -c "scontrol requeue 7" calls)" 0 "a job that was cancelled is not started again"
echo RUNNING >job.state

# USR1 to the batch shell alone.
rm -f calls
"${as_job[@]}" bash slurm/pretrain_cpu.sh config.yaml --run.folder=signalled --run.steps=1000000 --checkpoint.every=0 \
  --log.every=100000 >log 2>&1 &
script=$!
for _ in $(seq 300); do
  [ "$(wc -l 2>/dev/null <signalled/metrics.jsonl || echo 0)" -lt 3 ] || break
  "$pause" 0.1
done
kill -USR1 $script
wait $script
tap_like "$(cat log)" "stopped after step [0-9]+ as asked by SIGUSR1" "USR1 to the batch shell reaches the program"
tap_is "$(grep -c "scontrol requeue 7" calls)" 1 "whose exit code is acted on"
tap_is "$(find signalled/checkpoints -name 'step-*.h5' | wc -l)" 1 "with a checkpoint"

# The time is up before the run could stop by itself: it may go on all the same.
echo COMPLETING >job.state
job 143 143
requeues 0 "a job that ends for some other reason is not started again"
echo TimeLimit >job.reason
job 143 137
requeues 1 "one whose time is up is"
echo None >job.reason
echo RUNNING >job.state

# Asked to stop while nothing runs: at the next turn, without starting the program.
cat >bin/early <<'SH'
#!/bin/bash
[ "$1" != --version ] || { kill -USR1 "$(cat pid)"; exec echo "early 1"; }
touch started
SH
chmod +x bin/early
rm calls
"${as_job[@]}" MPILM=early bash -c 'echo $$ >pid; exec bash slurm/pretrain_cpu.sh config.yaml --run.folder=early' >log 2>&1
tap_is "$(ls started 2>/dev/null)|$(grep -c 'scontrol requeue 7' calls)" "|1" "a signal before the start is not lost, nor fatal"
tap_end
