#!/bin/bash
# tests/train/test_launch.sh - ranks that do not know each other, and ranks that share too few cores.
. "$srcdir/tests/tap.sh"
. "$srcdir/tests/train/common.sh"

make_config config.yaml
make_data
tap_ok $? "a dataset is made"
short=(--run.steps=2 --checkpoint.every=0 --schedule.warmup=0)

# What srun sets for a task, where its MPI knows of one rank only.
task() {
  env SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=2 SLURM_STEP_ID=0 "$@"
}
tap_exit 2 "one of four tasks, each rank 0 of 1" -- task "$MPILM" train config.yaml --run.folder=lost "${short[@]}"
tap_like "$tap_err" "MPI has 1 rank but Slurm started 4 tasks.*srun --mpi=pmix, or mpirun" "is refused"
[ ! -e lost ]
tap_ok $? "and touches nothing"
tap_exit 0 "as asked for" -- task env MPILM_ALLOW_SINGLETONS=1 "$MPILM" train config.yaml --run.folder=apart "${short[@]}"
tap_exit 0 "a serial tool" -- task "$MPILM" ckpt ls apart
tap_exit 0 "in the shell of a batch job" -- env SLURM_NTASKS=4 "$MPILM" train config.yaml --run.folder=shell "${short[@]}"

# Bound to one core, all of them.
core=$(taskset -pc $$ | sed 's/.*: *\([0-9]*\).*/\1/')
tap_exit 0 "2 ranks" -- train 2 told "${short[@]}" --verbose
tap_like "$tap_err" "MPI grants MPI_THREAD_(FUNNELED|SERIALIZED|MULTIPLE)" "--verbose tells the thread level"
bound() {
  OMP_NUM_THREADS=1 taskset -c "$core" timeout 100 "${MPIRUN:-mpirun}" -n 4 "$MPILM" train config.yaml "$@"
}
tap_exit 0 "bound to core $core" -- bound --run.folder=one "${short[@]}"
tap_like "$tap_err" "^.rank 0 [^]]+. warning: 4 ranks x 1 thread of this node run on 1 core: they wait for each other" "is told"
tap_is "$(grep -c 'wait for each other' <<<"$tap_err")" 1 "once"
tap_exit 0 "a rank, a thread" -- train 1 alone "${short[@]}" --run.threads=1
tap_is "$(grep -c 'wait for each other' <<<"$tap_err")" 0 "has nothing to tell"

# Nobody says how many threads: ranks x threads are no more than the cores.
tap_exit 0 "2 ranks, no OMP_NUM_THREADS" -- env -u OMP_NUM_THREADS timeout 100 "${MPIRUN:-mpirun}" -n 2 "$MPILM" train \
  config.yaml --run.folder=default "${short[@]}"
threads=$(sed -n 's/.*: 2 ranks x \([0-9]*\) thread.*/\1/p' <<<"$tap_err")
[ $((2 * ${threads:-1000})) -le "$(env -u OMP_NUM_THREADS nproc)" ] || [ "$threads" = 1 ]
tap_ok $? "2 ranks x ${threads:-?} threads on $(env -u OMP_NUM_THREADS nproc) cores"

# More ranks than cores, a thread each: they take turns, and do not spin while others have work. Processor time counts,
# which other programs on this machine hardly change.
for n in 2 4; do
  before=$(awk '{ print $16 + $17 }' "/proc/$$/stat") # of the children that have ended, in ticks
  OMP_NUM_THREADS=1 tap_exit 0 "$n ranks, 100 steps" -- train $n "ranks$n" --run.steps=100 --checkpoint.every=0 --log.every=100
  spent[n]=$(($(awk '{ print $16 + $17 }' "/proc/$$/stat") - before))
done
tap_ok $((spent[4] > 10 * spent[2])) "4 ranks take ${spent[4]} ticks, 2 take ${spent[2]}: no more than 10 times as many"

# ---- one dataset, two runs ----
train 2 first "${short[@]}" >first.log 2>&1 &
first=$!
tap_exit 0 "a second run on the same data, at the same time" -- train 2 second "${short[@]}"
wait $first
tap_ok $? "does not disturb the first"
mkdir disk
if mount -t tmpfs mpilm-test disk 2>/dev/null; then
  trap 'umount disk' EXIT
  cp train.h5 val.h5 disk
  mount -o remount,ro disk
  tap_exit 0 "data on a file system that is read-only" -- train 2 from-disk "${short[@]}" --data.train=disk/train.h5 --data.val=disk/val.h5
else
  tap_skip "no right to mount" "data on a file system that is read-only"
fi
tap_exit 0 "versions" -- "$MPILM" info
tap_like "$tap_out" '^hdf5 +[0-9.]+ \(headers [0-9.]+\)$' "of HDF5 as linked and as compiled"

# ---- ranks that were given different things ----
unequal() { # WORDS of rank 1...
  timeout 60 "${MPIRUN:-mpirun}" -n 1 "$MPILM" train config.yaml "--run.folder=$PWD/unequal" "${short[@]}" : \
    -n 1 "${@:1:2}" "$MPILM" train config.yaml "--run.folder=$PWD/unequal" "${short[@]}" "${@:3}"
}
tap_exit 2 "another batch on rank 1" -- unequal -wdir . --batch.global=6
tap_like "$tap_err" "rank 1 .*batch.global is not what it is on rank 0; want the same config on all ranks" "is refused by name"
mkdir node && cp config.yaml val.h5 node && make_text 300 9 >node/other.txt
"$MPILM" tokenize --vocab bytes --out node/train.h5 node/other.txt >/dev/null 2>&1
tap_exit 2 "other data under the same name on rank 1" -- unequal -wdir node
tap_like "$tap_err" "rank 1 .*data.train holds other data than on rank 0" "are refused by name"
tap_is "$(ls -d unequal 2>/dev/null)" "" "before anything is made"
cp train.h5 node/copy.h5
tap_exit 0 "a copy of the data of its own, and threads" -- unequal -wdir node --data.train=copy.h5 --run.threads=1

# ---- who reads the messages is gone ----
{ "$MPILM" train config.yaml --run.folder=unread "${short[@]}" --log.every=1 2>&1; echo $? >code; } | true
tap_is "$(cat code)" 0 "a run whose messages nobody reads goes on to its end"
"$MPILM" train config.yaml --run.folder=hung --run.steps=1000000 --checkpoint.every=0 --log.every=100000 >log 2>&1 &
run=$!
for _ in $(seq 200); do [ -s hung/metrics.jsonl ] && break; sleep 0.05; done
kill -HUP $run
wait $run
tap_is "$? $(ls hung/checkpoints | wc -l)" "75 1" "one whose terminal goes away is saved and stopped"
tap_end
