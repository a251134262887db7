#!/usr/bin/env bash
# tests/slurm/scripts.sh - the job scripts without a cluster: what they ask of srun, how they pass signals on, and what they
# do with each exit code.
# shellcheck source=tests/tap.sh
. "$srcdir/tests/tap.sh"
# shellcheck source=tests/train/common.sh
. "$srcdir/tests/train/common.sh"
for name in $(compgen -v SLURM_); do unset "$name"; done

make_config config.yaml
make_data
tap_ok $? "a dataset is made"
ln -s "$srcdir/slurm" slurm

# An srun that starts one rank, and the commands that a script may call; each notes how it was called.
mkdir bin
cat >bin/srun <<'SH'
#!/bin/bash
echo "srun $*" >>calls
[ "$1" != --mpi=list ] || { echo "none pmix pmi2" && exit; }
while [[ ${1-} == -* ]]; do shift; done
exec "$@"
SH
cat >bin/scontrol <<'SH'
#!/bin/bash
echo "scontrol $*" >>calls
case $1 in
show) echo "JobId=7 JobState=$(cat job.state) EndTime=Unknown" ;;
requeue) kill -KILL $PPID ;;
esac
SH
cat >bin/sbatch <<'SH'
#!/bin/bash
echo "sbatch $*" >>calls
SH
printf '#!/bin/bash\nexit "$(cat code)"\n' >bin/stand-in # a program that ends as it is told
chmod +x bin/*
echo RUNNING >job.state
PATH=$PWD/bin:$PATH
export MPILM_CHECK=no MPILM_NODE_WAIT=0
as_job=(env SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=2 SLURM_SUBMIT_DIR="$PWD" SLURM_CPUS_ON_NODE=16)

SLURM_CPUS_PER_TASK=8 MPILM_RANKS=2 tap_exit 0 "a run under a stand-in for srun" -- \
  "${as_job[@]}" bash slurm/pretrain_cpu.sh config.yaml --run.folder=done
tap_like "$(cat calls)" "srun --mpi=pmix --nodes=2 --ntasks=4 --ntasks-per-node=2 --cpus-per-task=8 " \
  "srun is told the cores of a task"
tap_is "$(column step "done" | tail -n 1)" 20 "the run is whole"
rm calls
MPILM_RANKS=2 tap_exit 0 "without cores of a task" -- "${as_job[@]}" bash slurm/pretrain_cpu.sh config.yaml --run.folder=done
tap_like "$(cat calls)" "--cpus-per-task=8 " "those of the node are shared out"

for script in pretrain_cpu pretrain_64gpu; do
  for line in --requeue --open-mode=append --signal=B:USR1@180 --exclusive; do
    tap_is "$(grep -c "^#SBATCH $line\$" "slurm/$script.sh")" 1 "$script.sh asks for $line"
  done
done

# Exit code -> action.
job() { # CODE: run the script with a program that ends so
  echo "$1" >code
  rm -f calls
  MPILM=stand-in tap_exit "$2" "exit code $1" -- "${as_job[@]}" bash slurm/pretrain_cpu.sh config.yaml --run.folder=coded
}
job 0 0
tap_is "$(grep -c "scontrol requeue" calls)" 0 "0: done"
job 2 2
tap_is "$(grep -c "scontrol requeue" calls)" 0 "2: not started again"
job 76 76
tap_is "$(grep -c "scontrol requeue" calls)" 0 "76: not started again"
job 75 137 # scontrol requeue ends the script
tap_is "$(grep -c "scontrol requeue 7" calls)" 1 "75: started again"
for i in 1 2 3; do
  [ $i -lt 3 ] || export MPILM_FAILURES=3
  job 1 $((i < 3 ? 137 : 1))
  tap_is "$(grep -c "scontrol requeue 7" calls)" $((i < 3)) "1: started again, twice of 3 times that MPILM_FAILURES allows"
done
tap_is "$(wc -l <coded/failures.log)" 3 "failures are noted"
unset MPILM_FAILURES
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
  sleep 0.1
done
kill -USR1 $script
wait $script
tap_like "$(cat log)" "stopped after step [0-9]+ as asked by SIGUSR1" "USR1 to the batch shell reaches the program"
tap_is "$(grep -c "scontrol requeue 7" calls)" 1 "whose exit code is acted on"
tap_is "$(find signalled/checkpoints -name 'step-*.h5' | wc -l)" 1 "with a checkpoint"

# No scontrol: a follow-up job; no sbatch either: the exit code tells.
rm bin/scontrol
hide() { # a PATH without Slurm
  local folder=$PWD/without program
  mkdir -p "$folder"
  for program in env tr wc find bash basename dirname sed grep date mktemp tee head rm cat sort uniq awk mkdir timeout tail nproc sleep hostname; do
    ln -sf "$(command -v $program)" "$folder/"
  done
  ln -sf "$PWD"/bin/* "$folder/"
  echo "$folder"
}
PATH=$(hide)
job 75 75
tap_like "$(cat calls)" "sbatch --dependency=afterany:7 .*slurm/pretrain_cpu.sh config.yaml --run.folder=coded" \
  "without scontrol a follow-up job is submitted"
rm bin/sbatch without/sbatch
job 75 75
tap_like "$tap_err" "submit the job once more \(exit code 75\)" "without sbatch it says what to do"
tap_end
