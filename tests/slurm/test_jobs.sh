#!/usr/bin/env bash
# tests/slurm/test_jobs.sh - jobs that fail before they train, a bad node, arrays, jobs that cannot be requeued.
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
steps=(--run.steps=60 --checkpoint.every=20 --log.every=20)
train 2 reference "${steps[@]}" >log 2>&1
tap_ok $? "an undisturbed run, without Slurm"
export PROGRAM=$MPILM MPILM_RANKS=2

program() { # FILE: a program that begins with the lines on stdin
  { echo '#!/bin/bash' && cat && echo 'exec "$PROGRAM" "$@"'; } >"$1"
  chmod +x "$1"
}

# A node on which ranks die: in the first start before MPI knows of them, in the second in a step.
program on-bad-node <<'SH'
[ "$(hostname)" = node2 ] || exec "$PROGRAM" "$@"
[ "$1" = --version ] || [ -n "${SLURM_RESTART_COUNT-}" ] || kill -KILL $$
export MPILM_FAULT=die@step10
SH
MPILM=$PWD/on-bad-node submit --nodes=2 --exclude=node4 slurm/pretrain_cpu.sh config.yaml --run.folder=bad "${steps[@]}"
bad=$job

# Meanwhile, on another node: what fails before it trains.
ends() { # STATE RESTARTS WORDS...
  follow 60
  tap_is "$(shown JobState) $(shown ExitCode) $(shown Restarts)" "$1 $2" "${*:3}"
  explain
}
submit --nodes=1 slurm/pretrain_cpu.sh config.yaml --run.folder=unfit --optim.lr=-1
ends "FAILED 2:0" 0 "a config that cannot be"
tap_is "$(grep -c '^mpilm: .*optim.lr' "slurm-$job.out")" 1 "one sentence"
submit --nodes=1 slurm/pretrain_cpu.sh config.yaml --run.folder=unfit --data.train=nowhere.h5
ends "FAILED 2:0" 0 "data that are not there"
tap_is "$(grep -c '^mpilm: .*nowhere.h5' "slurm-$job.out")" 1 "one sentence"
program without-library <<'SH'
echo "mpilm: error while loading shared libraries: libx.so.1: cannot open shared object file" >&2 && exit 127
SH
MPILM=$PWD/without-library submit --nodes=1 slurm/pretrain_cpu.sh config.yaml --run.folder=unfit
ends "FAILED 2:0" 0 "a library that is missing everywhere"
job_says "without-library does not start: .*libx.so.1" "one sentence"
program crashing <<'SH'
[ "$1" != check ] || kill -SEGV $$
SH
MPILM=$PWD/crashing MPILM_CHECK=yes MPILM_FAILURES=2 submit --nodes=1 slurm/pretrain_cpu.sh config.yaml --run.folder=crashed
ends "FAILED 139:0" 1 "a program that crashes before there is a journal: as often as MPILM_FAILURES allows"
tap_is "$(ls crashed)" starts.log "of which only the job script tells"

job=$bad
follow 60
tap_is "$(shown JobState)" COMPLETED "a bad node: the run ends all the same"
tap_is "$(grep -c 'host=node2$' bad/starts.log)" 2 "two starts fail, and the node is named"
job_says "left out from now on, as starts failed there: node2" "and reported"
tap_like "$(shown ExcNodeList)" "^node4,node2$" "and left out, as the one that the user left out"
tap_like "$(tail -n 1 bad/journal.jsonl)" '"hosts": \["node1", "node3"\].*"exit": 0' "and the run ends without it"
close_to loss reference bad 1e-5 "the losses of the undisturbed run"

# Runs that are told to stop must not reach their end before: each of their 60 steps is saved, and until then takes half a
# second. The starts that follow are as fast as any.
program slow_until_asked <<'SH'
[ "${SLURM_ARRAY_TASK_ID-}" = 1 ] || [ -e asked ] || export MPILM_FAULT=slow_save=500ms
SH
each_saved=("${steps[@]}" --checkpoint.every=1 --checkpoint.async=false --checkpoint.keep=2)

ask_to_stop() { # FOLDER: the job, once its run has made steps
  until_true 60 has_steps 3 "$1"
  touch asked
  scancel --batch --signal=USR1 "$job"
}

# An array: each task has its own words and its own folder, and is requeued by itself.
printf '%s\n' --optim.lr=1e-3 "--optim.lr=2e-3 --run.seed=5" >sweep
MPILM=$PWD/slow_until_asked MPILM_SWEEP=sweep submit --array=1-2 --nodes=1 slurm/pretrain_cpu.sh config.yaml \
  --run.folder=sweep-run "${each_saved[@]}"
array=$job job=${job}_2
ask_to_stop sweep-run-2
ends "COMPLETED 0:0" 1 "task 2 of an array, asked to stop"
job=${array}_1
ends "COMPLETED 0:0" 0 "task 1 goes on meanwhile"
close_to loss reference sweep-run-1 1e-5 "with the words of its line"
tap_is "$(grep -cE '^ *(lr: 0.002|seed: 5) ' sweep-run-2/config.used.yaml)" 2 "each"

# Without scontrol, as in a container: a new job follows. Here Slurm requeues jobs that end with 75 by itself, which must not
# make two of them.
mkdir inside
ln -s /usr/bin/* inside/
rm inside/scontrol inside/squeue
echo RequeueExit=75 >>"$SLURM_CONF"
scontrol reconfigure
rm asked
MPILM=$PWD/slow_until_asked submit --nodes=2 --export="ALL,PATH=$PWD/inside" slurm/pretrain_cpu.sh config.yaml \
  --run.folder=chain "${each_saved[@]}"
ask_to_stop chain
until_true 30 grep -q next= chain/starts.log
next=$(sed -n 's/.* next=//p' chain/starts.log)
ends "COMPLETED 0:0" 1 "a job without scontrol ends"
job_says "job $next goes on with this run" "in favour of another"
job=$next
ends "COMPLETED 0:0" 0 "which brings the run to its end"
close_to loss reference chain 1e-5 "with the losses of the undisturbed run"
tap_is "$(sed -n 's/.*"job": "\([0-9]*\)".*"exit": \([0-9]*\).*/\1:\2/p' chain/journal.jsonl | tr '\n' ' ')" \
  "$((next - 1)):75 $next:0 " "in two starts"
tap_end
