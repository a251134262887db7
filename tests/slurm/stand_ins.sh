# tests/slurm/stand_ins.sh - a job without a cluster: stand-ins for Slurm's commands, which note how they are called in the
# file calls and do as files tell them, and for the program. Sourced after tap.sh.
# shellcheck shell=bash
for name in $(compgen -v SLURM_) $(compgen -v MPILM_); do
  case $name in MPILM_SHARED | MPILM_TEST_TIMEOUT | MPILM_SCRIPT_TIMEOUT) ;; *) unset "$name" ;; esac
done
ln -s "$srcdir/slurm" slurm
mkdir bin

# Starts one rank, or none where there is a file unstarted, with these lines. Ranks started by the PMI that the file pmi names know each other.
cat >bin/srun <<'SH'
#!/bin/bash
echo "srun $*" >>calls
[ "$1" != --mpi=list ] || { echo "none pmix pmi2" && exit; }
[[ "$* " != *" check --json "* ]] || { [ "$1" != "--mpi=$(cat pmi)" ] || echo '{"ranks":2,'; exit; }
while [[ ${1-} == -* ]]; do shift; done
[ "$1" != stand-in ] || [ ! -e unstarted ] || { cat unstarted >&2 && exit 0; }
[ "$1" = bash ] || exec "$@"
for SLURMD_NODENAME in node1 node2; do export SLURMD_NODENAME && "$@"; done
SH
cat >bin/mpirun <<'SH'
#!/bin/bash
echo "mpirun $*" >>calls
SH
cat >bin/scontrol <<'SH'
#!/bin/bash
echo "scontrol $*" >>calls
case $1 in
show) echo "JobId=7 JobState=$(cat job.state) Reason=$(cat job.reason) EndTime=Unknown ExcNodeList=$(cat job.excluded) X=1" ;;
requeue) [ ! -s refuse ] || exit 1; [ -s survive ] || kill -KILL $PPID ;;
esac
SH
cat >bin/sinfo <<'SH'
#!/bin/bash
cat nodes
SH
cat >bin/squeue <<'SH'
#!/bin/bash
cat queue
SH
cat >bin/sbatch <<'SH'
#!/bin/bash
echo "sbatch $*" >>calls
echo "$((${SLURM_JOB_ID:-6} + 1));cluster" # as --parsable prints it where there are several clusters
SH
pause=$(command -v sleep) # a script that sleeps does not hold up the test
printf '#!/bin/sh\n:\n' >bin/sleep

# A program that ends with the code in the file code, after the lines in errors, and that keeps a journal where it ends with
# 0 or the file saves has a step that it saved. A row of a rollback comes
# last where there is a file rolls. On the nodes in lame it does not start.
cat >bin/stand-in <<'SH'
#!/bin/bash
[[ " $(cat lame) " != *" ${SLURMD_NODENAME-none} "* ]] || { echo "libx.so.1: cannot open shared object file" >&2 && exit 127; }
[ "$1" != --version ] || { echo "stand-in 1" && exit; }
cat errors >&2
folder=${*: -1}
[ ! -s saves ] && [ "$(cat code)" != 0 ] ||
  echo '{"saved_step": '"$(cat saves)"', "exit": '"$(cat code)"'}' >>"${folder#--run.folder=}/journal.jsonl"
[ ! -e rolls ] || echo '{"rollback": "now", "to_step": 5}' >>"${folder#--run.folder=}/journal.jsonl"
exit "$(cat code)"
SH
chmod +x bin/*
touch errors saves refuse survive queue
echo nowhere >lame
echo pmix >pmi
echo RUNNING >job.state
echo None >job.reason
echo '(null)' >job.excluded
printf 'node%d idle\n' 1 2 3 4 5 6 >nodes
PATH=$PWD/bin:$PATH
export MPILM_CHECK=no MPILM_WAIT=0
as_job=(env SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=2 SLURM_JOB_PARTITION=main SLURM_SUBMIT_DIR="$PWD" SLURM_CPUS_ON_NODE=16)

job() { # CODE EXIT [VARIABLE=VALUE]...: run the script with a program that ends so, and see how the script ends
  local code=$1 want=$2
  shift 2
  echo "$code" >code
  : >calls
  MPILM=stand-in tap_exit "$want" "exit code $code" -- \
    "${as_job[@]}" "$@" bash slurm/pretrain_cpu.sh config.yaml "--run.folder=${folder:-coded}"
}

requeues() { # WANT WORDS...
  tap_is "$(grep -c "scontrol requeue 7" calls)" "$@"
}

hide_slurm() { # a PATH without Slurm's commands but those in bin
  local program
  mkdir -p without
  for program in awk basename bash cat date dirname env find grep head hostname mkdir mktemp nproc rm sed sleep sort tail \
    timeout tr uniq wc; do
    ln -sf "$(PATH=${PATH#*:} command -v $program)" without/
  done
  PATH=$PWD/bin:$PWD/without
}
