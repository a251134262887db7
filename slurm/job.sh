# slurm/job.sh - what the job scripts share: launch mpilm on the job's nodes, pass signals on, act on its exit code.
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Settings, from the environment (doc/cluster.md):
#   MPILM             the program, in words: "mpilm", "apptainer exec --nv mpilm.sif mpilm"
#   MPILM_RANKS       ranks on each node
#   MPILM_LAUNCHER    how ranks are started, in words: "srun --mpi=pmix", "mpirun"; found out where it is not set
#   MPILM_FLAGS       more words for srun or mpirun
#   MPILM_CHECK       yes: `mpilm check` looks at the nodes before training; no: it does not
#   MPILM_FAILURES    so many failed starts of a job, and it is not started again (10)
#   MPILM_EXCLUDE     so many nodes may be left out because starts failed on them (2)
#   MPILM_SBATCH      sbatch options for the follow-up job where there is no scontrol

job_say() {
  printf '%s job %s: %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "${SLURM_JOB_ID:-none}" "$*" >&2
}

# ---- what there is ----

job_find_program() {
  if [ -z "${MPILM-}" ]; then
    MPILM=mpilm
    command -v mpilm >/dev/null || [ ! -x "$job_root/build/mpilm" ] || MPILM=$job_root/build/mpilm
  fi
  read -ra job_program <<<"$MPILM"
  command -v "${job_program[0]}" >/dev/null || {
    job_say "${job_program[0]} is not found: set MPILM to the program"
    exit 2
  }
}

job_find_shape() {
  job_nodes=${SLURM_JOB_NUM_NODES:-1}
  job_ranks=${MPILM_RANKS:-${SLURM_NTASKS_PER_NODE:-1}}
  job_cpus=${SLURM_CPUS_PER_TASK:-}
  if [ -z "$job_cpus" ]; then
    job_cpus=$((${SLURM_CPUS_ON_NODE:-$(nproc)} / job_ranks))
    [ "$job_cpus" -gt 0 ] || job_cpus=1
  fi
}

# srun starts ranks that MPI knows only through a PMI that this MPI was built for. A list of plugins does not tell that;
# two ranks that count each other do.
job_counts_ranks() { # LAUNCHER...
  [ "$(timeout 60 "$@" --overlap --nodes=1 --ntasks=2 "${job_program[@]}" check --json 2>/dev/null |
    grep -c '"ranks": 2')" -gt 0 ]
}

job_find_launcher() {
  local kinds kind
  job_launcher=()
  if [ -n "${MPILM_LAUNCHER-}" ]; then
    read -ra job_launcher <<<"$MPILM_LAUNCHER"
    return
  fi
  if command -v srun >/dev/null; then
    kinds=$(srun --mpi=list 2>&1)
    for kind in pmix pmi2; do
      grep -qw "$kind" <<<"$kinds" || continue
      job_launcher=(srun "--mpi=$kind")
      [ $kind = pmix ] || job_counts_ranks "${job_launcher[@]}" || continue
      return
    done
  fi
  job_launcher=(mpirun)
  command -v mpirun >/dev/null || {
    job_say "neither srun with PMIx or PMI2 nor mpirun is found: set MPILM_LAUNCHER"
    exit 2
  }
}

job_report() {
  job_say "start ${SLURM_RESTART_COUNT:-0} on ${SLURM_JOB_NODELIST:-$(hostname)}, $job_nodes nodes x $job_ranks ranks x" \
    "$job_cpus cores, $("${job_program[@]}" --version), by ${job_launcher[*]}"
}

# ---- launching ----

# For mpirun: each rank its cores, where the node has as many as the job was told.
job_cores() {
  [ "$(nproc)" -lt $((job_ranks * job_cpus)) ] || echo ":PE=$job_cpus"
}

# Sets `command` to the words that run "$@" on all ranks.
job_command() {
  case ${job_launcher[0]##*/} in
  srun)
    # srun no longer takes --cpus-per-task from sbatch (since 22.05): without it each rank is bound to one core.
    command=("${job_launcher[@]}" "--nodes=$job_nodes" "--ntasks=$((job_nodes * job_ranks))"
      "--ntasks-per-node=$job_ranks" "--cpus-per-task=$job_cpus" --kill-on-bad-exit=1)
    ;;
  mpirun | mpiexec)
    command=("${job_launcher[@]}" -n $((job_nodes * job_ranks)))
    [ -z "${SLURM_JOB_ID-}" ] || command+=(--map-by "ppr:$job_ranks:node$(job_cores)")
    ;;
  *) command=("${job_launcher[@]}") ;;
  esac
  # shellcheck disable=SC2206
  command+=(${MPILM_FLAGS-} "$@")
}

# Run "$@" on all ranks and wait for it, passing USR1 and TERM on as USR1: save, and stop. Sets job_code, and job_hosts:
# the first node on which a
# rank died or failed alone: where all fail, rank 0 speaks, and its node is not to blame.
job_launch() {
  local command noted pid
  noted=$(mktemp) || exit 1
  job_command "$@"
  "${command[@]}" 2> >(tee >(grep -aE --line-buffered \
    '^srun: error: |noticed that process rank|Remote daemon:|^mpilm: \[rank ' >"$noted") >&2) &
  pid=$!
  # shellcheck disable=SC2064
  trap "job_say 'asked to stop: passing it on'; job_stopped=yes; kill -USR1 $pid 2>/dev/null" USR1 TERM
  # A signal ends `wait` early, so wait until the launcher has really ended.
  while
    wait $pid
    job_code=$?
    kill -0 $pid 2>/dev/null
  do :; done
  trap '' USR1 TERM
  job_hosts=$(sed -nE \
    -e 's/^srun: error: Node failure on ([^ ,]+).*/\1/p' \
    -e 's/^srun: error: ([^ :]+): tasks? [^:]*: (Killed|Segmentation|Bus|Aborted|Out Of Memory).*/\1/p' \
    -e 's/^srun: error: Task launch .* failed on node ([^ :]+):.*/\1/p' \
    -e 's/.*noticed that process rank .* on node ([^ ]+) exited.*/\1/p' \
    -e 's/.*Remote daemon: .* on node ([^ ]+).*/\1/p' \
    -e 's/^mpilm: \[rank [1-9][0-9]* ([^] ]+)\].*/\1/p' "$noted" | head -n 1)
  rm -f "$noted"
}

# ---- what follows ----

# Does every node of the job answer? One that does not is missed by Slurm in its own time.
job_nodes_answer() {
  [ -n "${SLURM_JOB_ID-}" ] && command -v srun >/dev/null || return 0
  timeout 60 srun --mpi=none --overlap "--nodes=$job_nodes" "--ntasks=$job_nodes" --ntasks-per-node=1 true \
    >/dev/null 2>&1
}

job_excluded() { # the nodes that failed twice, as many as may be left out, separated by commas
  sed -nE 's/.* host=([^ ]+)$/\1/p' "$job_failures" 2>/dev/null | grep -vx unknown | sort | uniq -c |
    sort -k1,1nr | awk -v most="${MPILM_EXCLUDE:-2}" '$1 >= 2 && n++ < most { printf "%s%s", (n > 1 ? "," : ""), $2 }'
}

job_state() { # RUNNING, CANCELLED, ...: what Slurm thinks of this job
  scontrol show job -o "$SLURM_JOB_ID" 2>/dev/null | sed -n 's/.* JobState=\([A-Z_]*\).*/\1/p'
}

# Start the job again: the same job where Slurm lets it, else a new one behind it. Does not return.
job_again() { # CODE: exit with it where neither can be done
  local excluded state
  excluded=$(job_excluded)
  [ -z "$excluded" ] || job_say "left out from now on, as starts failed there: $excluded"
  if [ -n "${SLURM_JOB_ID-}" ] && command -v scontrol >/dev/null; then
    state=$(job_state)
    # A cancelled job stays so, and one that Slurm requeues by itself needs no help.
    [ "$state" = RUNNING ] || {
      job_say "not asking for a requeue: the job is ${state:-unknown}"
      exit "$1"
    }
    if scontrol requeue "$SLURM_JOB_ID"; then
      [ -z "$excluded" ] || scontrol update "JobId=$SLURM_JOB_ID" "ExcNodeList=$excluded"
      sleep 300 # Slurm ends this script
      exit "$1"
    fi
    job_say "Slurm does not requeue this job"
  fi
  if [ -n "${SLURM_JOB_ID-}" ] && command -v sbatch >/dev/null; then
    # shellcheck disable=SC2086
    sbatch "--dependency=afterany:$SLURM_JOB_ID" ${excluded:+"--exclude=$excluded"} ${MPILM_SBATCH-} "$job_script" \
      "${job_words[@]}" && exit "$1"
  fi
  job_say "neither scontrol nor sbatch can start it again: submit the job once more (exit code $1)"
  exit "$1"
}

job_record_failure() {
  job_say "failed with exit code $job_code${job_hosts:+, first on $job_hosts}"
  mkdir -p "$(dirname "$job_failures")" && printf '%s job=%s restart=%s code=%s host=%s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" \
    "${SLURM_JOB_ID:-none}" "${SLURM_RESTART_COUNT:-0}" "$job_code" "${job_hosts:-unknown}" >>"$job_failures"
}

# What the exit code of the launcher asks for. Does not return.
job_finish() {
  local failures
  case $job_code in
  0) job_say "done" && exit 0 ;;
  75) job_say "stopped with a checkpoint: starting again" && job_again 75 ;;
  2 | 76) job_say "exit code $job_code: starting again cannot help" && exit "$job_code" ;;
  esac
  job_record_failure
  failures=$(grep -c " job=${SLURM_JOB_ID:-none} " "$job_failures")
  if [ "$failures" -ge "${MPILM_FAILURES:-10}" ]; then
    job_say "$failures starts of this job have failed, MPILM_FAILURES allows ${MPILM_FAILURES:-10}"
    exit "$job_code"
  fi
  if ! job_nodes_answer; then
    job_say "a node does not answer: Slurm requeues the job when it misses that node"
    sleep "${MPILM_NODE_WAIT:-600}"
  fi
  job_again "$job_code"
}

# Set-up common to all scripts. "$@": the words that the script was given.
job_begin() { # SCRIPT WORDS...
  set -u
  job_script=$1
  shift
  job_words=("$@") job_stopped=no
  job_find_program
  job_find_shape
  export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$job_cpus}"
  # The tree fence of Slurm 22.05's PMIx plugin lets ranks out of MPI_Init too early now and then.
  export SLURM_PMIX_FENCE="${SLURM_PMIX_FENCE:-ring}"
  job_find_launcher
  job_report
}

# ---- training ----

# The run folder: --run.folder of the words, else runs/NAME for NAME.yaml.
job_find_folder() { # CONFIG WORDS...
  local word next=no
  job_folder=runs/$(basename "$1" | sed 's/\.ya\?ml$//')
  for word in "$@"; do
    case $word in
    --run.folder=*) job_folder=${word#*=} ;;
    --run.folder) next=yes && continue ;;
    *) [ $next = no ] || job_folder=$word ;;
    esac
    next=no
  done
}

job_train() { # SCRIPT CONFIG WORDS...
  job_begin "$@"
  shift
  [ $# -gt 0 ] || {
    job_say "usage: sbatch $job_script CONFIG [--section.key=value]..."
    exit 2
  }
  job_find_folder "$@"
  job_failures=$job_folder/failures.log
  if [ "${MPILM_CHECK:-yes}" = yes ]; then
    job_launch "${job_program[@]}" check "$@" "--run.folder=$job_folder"
    [ "$job_code" -ne 0 ] || [ $job_stopped = no ] || job_code=75
    [ "$job_code" -eq 0 ] || job_finish
  fi
  job_launch "${job_program[@]}" train "$@" "--run.folder=$job_folder"
  job_finish
}
