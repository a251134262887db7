# tests/slurm/common.sh - a cluster for a test, and jobs on it. Sourced after tap.sh.
# shellcheck shell=bash

# The first of 30 ports in a row that nobody has: tests run side by side, and a port stays taken for a while after its end.
free_ports() {
  local try base port where rest taken=
  while read -r _ where rest; do
    [[ $where == *:* ]] && taken+=" $((16#${where##*:}))"
  done < <(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null)
  for ((try = 0; try < 400; try++)); do
    base=$((17000 + ($$ + try * 7) % 400 * 30))
    for port in $taken; do
      [ "$port" -lt $base ] || [ "$port" -ge $((base + 30)) ] || continue 2
    done
    echo $base
    return
  done
  return 1
}

# A cluster of N nodes in a folder of its own, stopped when the test ends. SKIP where that cannot be.
cluster_begin() { # N
  local program
  [ "$(id -u)" -eq 0 ] || tap_skip_all "a Slurm cluster on one machine needs root"
  for program in sbatch slurmctld slurmd munged unshare; do
    PATH=$PATH:/usr/sbin command -v $program >/dev/null || tap_skip_all "$program is not installed"
  done
  unshare --pid --fork --mount --uts true 2>/dev/null || tap_skip_all "this machine does not allow namespaces"
  CLUSTER=$(mktemp -d /tmp/mpilm-cluster.XXXXXX) || exit 99
  CLUSTER_PORT=$(free_ports) || exit 99
  export CLUSTER CLUSTER_PORT SLURM_CONF=$CLUSTER/etc/slurm.conf
  trap 'cluster down; rm -rf "$CLUSTER"' EXIT
  trap 'exit 99' TERM INT
  # Ranks of several nodes talk by TCP, over the loopback device. Most jobs do without looking at nodes and launchers.
  export OMPI_MCA_btl=self,vader,tcp OMPI_MCA_btl_tcp_if_include=lo MPILM_CHECK=${MPILM_CHECK-no}
  export MPILM_LAUNCHER=${MPILM_LAUNCHER-srun --mpi=pmix}
  cluster up "$1" || {
    tap_ok 1 "a cluster of $1 nodes"
    tap_end
  }
  tap_ok 0 "a cluster of $1 nodes"
  # The job scripts are run as a user runs them: from the project's folder, which here has the data beside them.
  ln -s "$srcdir/slurm" slurm
  ln -s "$srcdir/benchmarks" benchmarks
}

cluster() {
  bash "$srcdir/tests/slurm/cluster" "$@"
}

submit() { # SBATCH-WORDS...: sets job
  job=$(sbatch --parsable "$@") || job=none
}

state() { # of the job
  squeue -h -j "$job" -o %T 2>/dev/null
}

shown() { # KEY: what Slurm says of the job
  scontrol show job -o "$job" 2>/dev/null | sed -n 's/.* '"$1"'=\([^ ]*\).*/\1/p'
}

until_true() { # SECONDS COMMAND...: wait until it succeeds
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.05
  done
}

has_steps() { # N FOLDER: that many rows of metrics
  [ "$(wc -l 2>/dev/null <"$2/metrics.jsonl" || echo 0)" -ge "$1" ]
}

is_saving() { # FOLDER
  compgen -G "$1/checkpoints/.step-*.part" >/dev/null
}

has_ended() {
  [ -z "$(state)" ]
}

is_running() {
  [ "$(state)" = RUNNING ]
}

# A requeued job need not wait out Slurm's delay; once a requeue, as each call moves its beginning.
hurry() {
  local requeue
  [ "$(state)" = PENDING ] && [ "$(shown Reason)" = BeginTime ] || return 0
  requeue=$job/$(shown Restarts)
  [ "$requeue" != "${hurried-}" ] || return 0
  cluster hurry "$job" && hurried=$requeue
}

started_again() { # TIMES FOLDER: the journal tells of so many starts
  hurry
  [ "$(grep -c '"start"' "$2/journal.jsonl")" -gt "$1" ]
}

# Wait for the end of the job.
follow() { # SECONDS
  local end=$((SECONDS + $1))
  until has_ended; do
    [ $SECONDS -lt $end ] || {
      echo "# job $job is $(state) after $1 s"
      scancel "$job"
      return 1
    }
    hurry
    sleep 0.1
  done
}

job_says() { # REGEX WORDS...: the job's log has it
  tap_is "$(grep -aoEm 1 -- "$1" "slurm-$job.out" >/dev/null && echo yes)" yes "${*:2}"
}

explain() { # after a failed check: how the job's log ends
  [ $tap_failed -eq "${explained:-0}" ] || grep -avE '^(---|$|  )' "slurm-$job.out" | tail -n 30 | sed 's/^/# /'
  explained=$tap_failed
}
