#!/usr/bin/env bash
# tests/slurm/test_64gpu.sh - the script for 8 nodes x 8 GPUs on 8 nodes that claim to have them; and the scaling benchmark.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
# shellcheck source=tests/train/common.sh
. "$srcdir/tests/train/common.sh"
# shellcheck source=tests/slurm/common.sh
. "$srcdir/tests/slurm/common.sh"
export CLUSTER_CPUS=96 CLUSTER_GPUS=8
cluster_begin 8

make_config config.yaml
make_data
tap_ok $? "a dataset is made"

# What each of the 64 ranks is given.
cat >stand-in <<'SH'
#!/bin/bash
[ "$1" != --version ] || exec echo "stand-in 1"
[ "$1" != check ] || exec echo '{"ranks":2,"nodes":[]}' # as two ranks that know each other say
echo "$SLURM_PROCID $SLURM_NODEID $SLURM_LOCALID $SLURM_CPUS_PER_TASK $CUDA_VISIBLE_DEVICES" >>ranks
mkdir -p runs/config && echo '{"saved_step": 1, "exit": 0}' >>runs/config/journal.jsonl
SH
chmod +x stand-in
MPILM_LAUNCHER="" MPILM=$PWD/stand-in submit slurm/pretrain_64gpu.sh config.yaml
follow 120
tap_is "$(shown JobState)" COMPLETED "sbatch takes the script as it is"
tap_is "$(sort -n ranks)" \
  "$(for i in $(seq 0 63); do echo "$i $((i / 8)) $((i % 8)) 12 0,1,2,3,4,5,6,7"; done)" \
  "64 ranks: each has its number on the node, 12 cores, and sees the 8 GPUs of its node"
explain

# Where the cluster gives each task its GPU.
rm -r ranks runs
MPILM=$PWD/stand-in MPILM_FLAGS=--gpus-per-task=1 submit --nodes=2 slurm/pretrain_64gpu.sh config.yaml
follow 60
tap_is "$(sort -n ranks)" "$(for i in $(seq 0 15); do echo "$i $((i / 8)) $((i % 8)) 12 $((i % 8))"; done)" \
  "--gpus-per-task=1: a rank sees one GPU, that of its number"
explain

# Without a driver: a sentence, exit code 2, and no second start. On fewer ranks: 64 starts of MPI take long on few cores.
few=(--nodes=2 --ntasks-per-node=2)
if [ "$("$MPILM" info | sed -n 's/^cuda *//p')" = no ] || [ ! -e /dev/nvidiactl ]; then
  submit "${few[@]}" slurm/pretrain_64gpu.sh config.yaml --run.folder=gpu
  follow 60
  tap_is "$(shown JobState) $(shown ExitCode) $(shown Restarts)" "FAILED 2:0 0" "no GPU: exit code 2, not started again"
  tap_is "$(grep -c '^mpilm: .*--backend=cuda' "slurm-$job.out")" 1 "in one sentence"
  explain
fi
MPILM_BACKEND=cpu MPILM_CHECK=yes submit "${few[@]}" slurm/pretrain_64gpu.sh config.yaml --run.folder=cpu
follow 60
tap_is "$(shown JobState) $(column step cpu | tail -n 1)" "COMPLETED 20" "MPILM_BACKEND=cpu: it trains on the processors"
explain

# An MPI that srun cannot start: here one whose only PMI would be PMI2. Two ranks tried do not count each other.
mkdir bin
cat >bin/srun <<SH
#!/bin/bash
[ "\$1" != --mpi=list ] || exec echo "MPI plugin types are... none pmi2"
exec $(command -v srun) "\$@"
SH
chmod +x bin/srun
PATH=$PWD/bin:$PATH MPILM_LAUNCHER="" MPILM_RANKS=2 submit --nodes=2 slurm/pretrain_cpu.sh config.yaml --run.folder=by-mpirun
follow 60
tap_is "$(shown JobState) $(sed -n 's/.*"ranks": \([0-9]*\).*/\1/p' by-mpirun/journal.jsonl)" "COMPLETED 4" \
  "mpirun in the allocation: 4 ranks"
job_says "by mpirun" "which the script found out"
explain

# tokenize.sh, and the benchmark over 1, 2, 4 nodes.
MPILM_RANKS=2 submit --nodes=2 slurm/tokenize.sh --vocab bytes --out again.h5 train.txt
follow 60
tap_is "$(shown JobState)" COMPLETED "tokenize.sh"
tap_ok "$(cmp -s train.h5 again.h5 && echo 0 || echo 1)" "makes the same dataset"
explain
MPILM_STEPS=6 submit --nodes=4 benchmarks/scaling.sh config.yaml
follow 90
tap_is "$(shown JobState)" COMPLETED "scaling.sh"
tap_is "$(cut -d , -f 1-3 "scaling-$job/scaling.csv" | tr '\n' ' ')" \
  "sweep,nodes,ranks strong,1,1 strong,2,2 strong,4,4 weak,1,1 weak,2,2 weak,4,4 " "has a row for 1, 2, 4 nodes, twice"
explain
tap_end
