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
#   MPILM_SWEEP       a file: task N of a job array adds the words of its line N
#   MPILM_FAILURES    so many failed starts, and the job is not started again (10)
#   MPILM_EXCLUDE     so many nodes may be left out because starts failed on them (2)
#   MPILM_MIN_NODES   with how many nodes the job can do, where it asked for a range: leaving nodes out keeps so many
#   MPILM_SBATCH      sbatch options for the follow-up job where there is no scontrol
#   MPILM_WAIT        seconds to wait for what Slurm does in its own time: miss a dead node, answer again (600)

job_say() {
  printf '%s job %s: %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "${SLURM_JOB_ID:-none}" "$*" >&2
}

job_refuse() { # WORDS...: what trying again cannot mend
  job_say "$@"
  exit 2
}

# ---- what there is ----

job_find_program() {
  if [ -z "${MPILM-}" ]; then
    MPILM=mpilm
    command -v mpilm >/dev/null || [ ! -x "$job_root/build/mpilm" ] || MPILM=$job_root/build/mpilm
  fi
  read -ra job_program <<<"$MPILM"
  command -v "${job_program[0]}" >/dev/null || job_refuse "${job_program[0]} is not found: set MPILM to the program"
}

job_processors() { # those that this process may use, whatever OpenMP is told
  env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc
}

job_find_shape() {
  local node=${SLURM_CPUS_ON_NODE:-$(job_processors)}
  job_nodes=${SLURM_JOB_NUM_NODES:-1}
  job_ranks=${MPILM_RANKS:-${SLURM_NTASKS_PER_NODE:-1}}
  job_cpus=${SLURM_CPUS_PER_TASK:-$((node / job_ranks))}
  [ "$job_cpus" -gt 0 ] || job_cpus=1
  [ $((job_ranks * job_cpus)) -le "$node" ] || [ -z "${SLURM_CPUS_PER_TASK-}" ] ||
    job_refuse "$job_ranks ranks x $job_cpus cores are more than the $node cores of a node:" \
      "fewer MPILM_RANKS, or another --cpus-per-task"
}

# The nodes on which the program does not even tell its version: a missing library, a container that does not start.
job_lame_nodes() {
  if [ -n "${SLURM_JOB_ID-}" ] && command -v srun >/dev/null; then
    # shellcheck disable=SC2016
    timeout 120 srun --mpi=none --overlap "--nodes=$job_nodes" "--ntasks=$job_nodes" --ntasks-per-node=1 \
      bash -c '"$@" --version >/dev/null 2>&1 || echo "$SLURMD_NODENAME"' - "${job_program[@]}" 2>/dev/null
  else
    "${job_program[@]}" --version >/dev/null 2>&1 || hostname
  fi
}

# Nothing helps where the program starts on no node; on some, these are at fault. Does not return where there are any.
job_blame_lame_nodes() { # WHY
  local lame
  lame=$(job_lame_nodes)
  [ -n "$lame" ] || return 0
  [ "$(wc -l <<<"$lame")" -lt "$job_nodes" ] || job_refuse "${job_program[*]} does not start: $1"
  job_code=127 job_hosts=$(head -n 1 <<<"$lame")
  job_say "${job_program[*]} does not start on ${lame//$'\n'/, }"
  job_finish
}

job_find_version() {
  job_version=$("${job_program[@]}" --version 2>&1) || job_blame_lame_nodes "$(tail -n 1 <<<"$job_version")"
}

# srun starts ranks that MPI knows only through a PMI that this MPI was built for. A list of plugins does not tell that;
# two ranks that count each other do.
job_counts_ranks() { # LAUNCHER...
  timeout 60 "$@" --overlap --nodes=1 --ntasks=2 --ntasks-per-node=2 --cpus-per-task=1 "${job_program[@]}" \
    check --json 2>/dev/null | grep -q '"ranks":2,'
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
      ! job_counts_ranks "${job_launcher[@]}" || return 0
    done
  fi
  job_launcher=(mpirun)
  command -v mpirun >/dev/null ||
    job_refuse "neither srun by PMIx or PMI2 nor mpirun starts ranks that know each other: set MPILM_LAUNCHER"
}

job_report() {
  job_say "start ${SLURM_RESTART_COUNT:-0} on ${SLURM_JOB_NODELIST:-$(hostname)}, $job_nodes nodes x $job_ranks ranks x" \
    "$job_cpus cores, $job_version, by ${job_launcher[*]}"
}

# ---- launching ----

# For mpirun: each rank its cores, where the node has as many as the job was told.
job_cores() {
  [ "$(job_processors)" -lt $((job_ranks * job_cpus)) ] || echo ":PE=$job_cpus"
}

# Sets `command` to the words that run "$@" on all ranks.
job_command() {
  case ${job_launcher[0]##*/} in
  srun)
    # srun no longer takes --cpus-per-task from sbatch (since 22.05): without it each rank is bound to one core. Ranks
    # are bound to cores, neighbours to the same socket: GPUs are counted along the sockets too. The first rank to leave
    # must not kill the others on their way out, or the exit code that all agree on is lost; a crash ends them by PMIx.
    command=("${job_launcher[@]}" "--nodes=$job_nodes" "--ntasks=$((job_nodes * job_ranks))"
      "--ntasks-per-node=$job_ranks" "--cpus-per-task=$job_cpus" --cpu-bind=cores --distribution=block:block
      --kill-on-bad-exit=0 --wait=10)
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

# What Slurm or the user asks of this script is passed on as USR1: save, and stop.
job_on_signal() {
  job_woken=yes job_stopped=yes
  job_say "asked to stop: passing it on"
  [ -z "$job_pid" ] || kill -USR1 "$job_pid" 2>/dev/null
}

# Run "$@" on all ranks and wait for it. Sets job_code, and job_hosts: the node that is to blame for a failure, if any.
job_launch() {
  local command noted filter
  job_code=75 job_hosts=''
  [ $job_stopped = no ] || return 0
  noted=$(mktemp) || noted=/dev/null
  job_command "$@"
  exec {job_errors}> >(trap '' USR1 TERM && LC_ALL=C exec sed -uE "/$job_tells/w $noted" >&2)
  filter=$!
  "${command[@]}" 2>&$job_errors {job_errors}>&- &
  job_pid=$!
  exec {job_errors}>&-
  [ $job_stopped = no ] || kill -USR1 $job_pid 2>/dev/null
  # A signal ends `wait` early.
  while
    job_woken=no
    wait $job_pid
    job_code=$?
    [ $job_woken = yes ]
  do :; done
  job_pid=''
  # Stopped before the launcher listened.
  [ $job_stopped = no ] || [ $job_code -ne 138 ] || job_code=75
  timeout 5 tail -s 0.05 --pid=$filter -f /dev/null # it has seen the last line
  job_hosts=$(job_blame <"$noted")
  # srun may end with 0 where it could not start the ranks.
  [ $job_code -ne 0 ] || ! grep -q '^srun: error: .*launch failed' "$noted" || job_code=1
  [ "$noted" = /dev/null ] || rm -f "$noted"
}

# The lines of stderr that tell where something broke.
job_tells='^srun: error: |noticed that process rank|Remote daemon:|^mpilm: \[rank '

# Such lines -> the node that is to blame: what the launcher says of a node, what a rank other than 0 says of itself (where
# all fail, rank 0 speaks), the first to die. Where one rank leaves with an exit code, the others are killed after it;
# where ranks of several nodes leave so, none is to blame.
job_blame() {
  sed -nE \
    -e 's/^srun: error: Node failure on ([^ ,]+).*/1 \1/p' \
    -e 's/^srun: error: Task launch .* failed on node ([^ :]+):.*/1 \1/p' \
    -e 's/.*noticed that process rank .* on node ([^ ]+) exited.*/1 \1/p' \
    -e 's/.*Remote daemon: .* on node ([^ ]+).*/1 \1/p' \
    -e 's/^mpilm: \[rank [1-9][0-9]* ([^] ]+)\].*/2 \1/p' \
    -e 's/^srun: error: ([^ :]+): tasks? [^:]*: Exited with exit code.*/3 \1/p' \
    -e 's/^srun: error: ([^ :]+): tasks? [^:]*: (Killed|Segmentation|Bus|Aborted|Illegal|Floating|Out Of Memory).*/4 \1/p' |
    awk '$2 !~ /[][]/ {
      if (!($1 in first)) first[$1] = $2
      if ($1 == 3 && !seen[$2]++) left++
      if ($1 >= 3 && !way) way = $1
    }
    END {
      if (1 in first) print first[1]
      else if (2 in first) print first[2]
      else if (way == 4) print first[4]
      else if (left == 1 && (4 in first)) print first[3]
    }'
}

# ---- what became of earlier starts ----
#
# The file $job_starts has a line for the begin and one for the end of each start, and one for a follow-up job:
#   TIME job=7 restart=0 nodes=node[1-4] entries=2 saved=40
#   TIME job=7 restart=0 code=1 entries=3 saved=60 host=node2
#   TIME job=7 restart=0 next=8
# `entries` and `saved` are what the journal then had: its length, and the newest step that was saved.

job_note() { # WORDS...; fails where it cannot be written
  { mkdir -p "$(dirname "$job_starts")" && printf '%s job=%s restart=%s %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" \
    "${SLURM_JOB_ID:-none}" "${SLURM_RESTART_COUNT:-0}" "$*" >>"$job_starts"; } 2>/dev/null
}

job_journal() {
  sed -n 's/.*"saved_step": \([0-9]*\).*/\1/p' "$job_folder/journal.jsonl" 2>/dev/null |
    awk '{ if ($1 > most) most = $1 } END { printf "entries=%d saved=%d", NR, most }'
}

# How many starts of this job, and of those that it follows, failed: with a failure, or from outside and before the
# journal told of them. They count for a day, and for as long as no further step is saved.
job_count_failures() {
  awk -v job="${SLURM_JOB_ID:-none}" -v now="$(job_journal)" -v since="$(date -u -d '-1 day' +%Y-%m-%dT%H:%M:%SZ)" '
    function value(key, i) {
      for (i = 2; i <= n; i++) if (index(word[i], key "=") == 1) return substr(word[i], length(key) + 2)
      return ""
    }
    function fail() { if (value("saved") == saved || word[1] > since) failed++ }
    { line[NR] = $0 }
    END {
      n = split(now, word, " "); saved = substr(word[2], 7)
      ours[job] = 1
      for (i = NR; i > 0; i--) { n = split(line[i], word, " "); if (value("next") in ours) ours[value("job")] = 1 }
      for (i = 1; i <= NR; i++) {
        n = split(line[i], word, " ")
        if (!(value("job") in ours) || value("next") != "") continue
        code = value("code")
        if (code == "" ? open : code == 75) { if (value("entries") == entries) fail() }
        else if (code != "" && code != 0 && code != 2 && code != 76) fail()
        open = code == ""
        entries = value("entries")
      }
      print failed + 0
    }' "$job_starts" 2>/dev/null
}

# End here where too many starts failed. Where they cannot be counted, Slurm counts restarts.
job_keep_budget() { # CODE to end with
  local failed
  failed=$(job_count_failures)
  [ "${failed:-${SLURM_RESTART_COUNT:-0}}" -lt "${MPILM_FAILURES:-10}" ] && return 0
  job_say "${failed:-${SLURM_RESTART_COUNT:-0}} starts failed and saved no further step, or failed within a day:" \
    "MPILM_FAILURES allows ${MPILM_FAILURES:-10}; $job_starts tells of them, without it they are forgotten"
  exit "$1"
}

# Begin a start: end at once where a follow-up job has taken over, or where starts are lost before they can tell.
job_begin_start() {
  local next
  next=$(sed -n "s/.* job=${SLURM_JOB_ID:-none} .* next=//p" "$job_starts" 2>/dev/null | tail -n 1)
  if [ -n "$next" ] && { ! command -v squeue >/dev/null || [ -n "$(squeue -h -j "$next" 2>/dev/null)" ]; }; then
    job_say "job $next goes on with this run"
    exit 0
  fi
  job_note "nodes=${SLURM_JOB_NODELIST:-$(hostname)} $(job_journal)" || job_say "cannot write $job_starts"
  job_keep_budget 1
}

# ---- what follows ----

# Does every node of the job answer? One that does not is missed by Slurm in its own time.
job_nodes_answer() {
  [ -n "${SLURM_JOB_ID-}" ] && command -v srun >/dev/null || return 0
  timeout 60 srun --mpi=none --overlap "--nodes=$job_nodes" "--ntasks=$job_nodes" --ntasks-per-node=1 true \
    >/dev/null 2>&1
}

# The nodes that failed twice in a week, as many as may be left out, separated by commas.
job_bad_nodes() {
  awk -v since="$(date -u -d '-7 days' +%Y-%m-%dT%H:%M:%SZ)" '$1 > since' "$job_starts" 2>/dev/null |
    sed -nE 's/.* host=([^ ]+)$/\1/p' | grep -vx unknown | sort | uniq -c | sort -k1,1nr |
    awk -v most="${MPILM_EXCLUDE:-2}" '$1 >= 2 && n++ < most { printf "%s%s", (n > 1 ? "," : ""), $2 }'
}

# Are there nodes enough in the partition without these?
job_can_spare() { # NODE,NODE
  local left
  [ -n "${SLURM_JOB_PARTITION-}" ] && command -v sinfo >/dev/null || return 0
  left=$(sinfo -h -N -p "$SLURM_JOB_PARTITION" -o '%N %T' | awk '$2 !~ /^(down|drain|fail|inval|unknown)|\*$/ { print $1 }' |
    sort -u | grep -vxcF "${1//,/$'\n'}")
  [ "$left" -ge "${MPILM_MIN_NODES:-$job_nodes}" ] && return 0
  job_say "starts failed on $1, but without it $left nodes are left and the job needs" \
    "${MPILM_MIN_NODES:-$job_nodes} (MPILM_MIN_NODES)"
  return 1
}

# A task of an array is NUMBER_TASK: the number of the last one alone would mean the whole array.
job_name() {
  echo "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_JOB_ID:+_$SLURM_ARRAY_TASK_ID}"
}

job_shown() { # KEY: what Slurm says of this job
  scontrol show job -o "$(job_name)" 2>/dev/null | sed -n "s/.* $1=\([^ ]*\).*/\1/p"
}

# May the job be requeued? A cancelled one stays so, and one that Slurm requeues needs no help; one whose time is up may.
# A controller that does not answer is waited for.
job_may_requeue() {
  local state end=$((SECONDS + ${MPILM_WAIT:-600}))
  until
    state=$(job_shown JobState)
    [ -n "$state" ] || [ $SECONDS -ge $end ]
  do sleep 5; done
  [ "$state" = RUNNING ] || [ "$(job_shown Reason)" = TimeLimit ] || {
    job_say "not asking for a requeue: the job is ${state:-unknown to Slurm}"
    return 1
  }
}

job_exclude() { # NODE,NODE: beside those that the user left out
  local before
  before=$(job_shown ExcNodeList)
  [ "$before" != "(null)" ] || before=''
  scontrol update "JobId=$(job_name)" "ExcNodeList=${before:+$before,}$1"
}

# A new job like this one behind it. What Slurm does not tell the script comes from its #SBATCH lines and MPILM_SBATCH.
job_follow_up() { # NODE,NODE to leave out
  local words=("--dependency=afterany:$(job_name)") next
  words+=("--nodes=$job_nodes" ${1:+"--exclude=$1"})
  [ -z "${SLURM_JOB_NAME-}" ] || words+=("--job-name=$SLURM_JOB_NAME")
  [ -z "${SLURM_JOB_PARTITION-}" ] || words+=("--partition=$SLURM_JOB_PARTITION")
  [ -z "${SLURM_JOB_ACCOUNT-}" ] || words+=("--account=$SLURM_JOB_ACCOUNT")
  [ -z "${SLURM_JOB_QOS-}" ] || words+=("--qos=$SLURM_JOB_QOS")
  [ -z "${SLURM_NTASKS_PER_NODE-}" ] || words+=("--ntasks-per-node=$SLURM_NTASKS_PER_NODE")
  [ -z "${SLURM_CPUS_PER_TASK-}" ] || words+=("--cpus-per-task=$SLURM_CPUS_PER_TASK")
  [ -z "${SLURM_ARRAY_TASK_ID-}" ] || words+=("--array=$SLURM_ARRAY_TASK_ID")
  [ -z "${SLURM_JOB_END_TIME-}" ] || [ -z "${SLURM_JOB_START_TIME-}" ] ||
    words+=("--time=$(((SLURM_JOB_END_TIME - SLURM_JOB_START_TIME + 59) / 60))")
  # shellcheck disable=SC2206
  words+=(${MPILM_SBATCH-})
  next=$(sbatch --parsable "${words[@]}" "$job_script" "${job_words[@]}") || return 1
  job_note "next=${next%%;*}"
  job_say "job ${next%%;*} goes on with this run"
}

# Start the job again: the same job where Slurm lets it, else a new one behind it. Does not return.
job_again() { # CODE: exit with it where neither can be done
  local bad
  trap '' USR1 TERM
  job_keep_budget "$1"
  bad=$(job_bad_nodes)
  [ -z "$bad" ] || job_can_spare "$bad" || bad=''
  [ -z "$bad" ] || job_say "left out from now on, as starts failed there: $bad"
  if [ -n "${SLURM_JOB_ID-}" ] && command -v scontrol >/dev/null; then
    job_may_requeue || exit "$1"
    if scontrol requeue "$(job_name)"; then
      [ -z "$bad" ] || job_exclude "$bad"
      sleep 300 # Slurm ends this script
      exit "$1"
    fi
    job_say "Slurm does not requeue this job"
  fi
  [ -n "${SLURM_JOB_ID-}" ] && command -v sbatch >/dev/null && [ -w "$job_starts" ] && job_follow_up "$bad" && exit "$1"
  job_say "nothing here can start the job again: submit it once more (exit code $1)"
  exit "$1"
}

# What the exit code of the launcher asks for. Does not return.
job_finish() {
  [ -n "$job_starts" ] || exit "$job_code"
  case $job_code in 126 | 127) [ -n "$job_hosts" ] || job_blame_lame_nodes "exit code $job_code" ;; esac
  case $job_code in 0 | 75 | 2 | 76) job_hosts='' ;; *) job_hosts=${job_hosts:-unknown} ;; esac
  job_note "code=$job_code $(job_journal)${job_hosts:+ host=$job_hosts}" || job_say "cannot write $job_starts"
  case $job_code in
  0) job_say "done" && exit 0 ;;
  75) job_say "stopped: starting again" && job_again 75 ;;
  2 | 76) job_say "exit code $job_code: starting again cannot help" && exit "$job_code" ;;
  esac
  job_say "failed with exit code $job_code, first on node: $job_hosts"
  job_keep_budget "$job_code"
  if ! job_nodes_answer; then
    job_say "a node does not answer: Slurm requeues the job when it misses that node"
    sleep "${MPILM_WAIT:-600}"
  fi
  job_again "$job_code"
}

# Set-up common to all scripts.
job_begin() { # STARTS SCRIPT WORDS...: STARTS is the file that tells of earlier starts; "": nothing is started again
  set -u
  job_starts=$1 job_script=$2
  shift 2
  job_words=("$@") job_stopped=no job_woken=no job_pid=''
  trap job_on_signal USR1 TERM
  job_find_program
  job_find_shape
  [ -z "$job_starts" ] || job_begin_start
  job_find_version
  export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$job_cpus}"
  # The tree fence of Slurm 22.05's PMIx plugin lets ranks out of MPI_Init too early now and then.
  export SLURM_PMIX_FENCE="${SLURM_PMIX_FENCE:-ring}"
  job_find_launcher
  job_report
}

# ---- training ----

# The config among the words, which may stand behind options.
job_config() { # WORDS...
  local word
  for word in "$@"; do case $word in -*) ;; *.yaml | *.yml) printf '%s\n' "$word" && return ;; esac done
  for word in "$@"; do case $word in -*) ;; *) printf '%s\n' "$word" && return ;; esac done
  return 1
}

# The run folder: --run.folder of the words, else runs/NAME for NAME.yaml; each task of an array has its own. Where the
# parent of an absolute path is missing, a file system is: it would be made on the wrong disk.
job_find_folder() { # CONFIG WORDS...
  local word next=no
  job_folder=runs/$(basename -- "$1" | sed 's/\.ya\?ml$//')
  for word in "$@"; do
    case $word in
    --run.folder=*) job_folder=${word#*=} ;;
    --run.folder) next=yes && continue ;;
    *) [ $next = no ] || job_folder=$word ;;
    esac
    next=no
  done
  job_folder=$job_folder${SLURM_ARRAY_TASK_ID:+-$SLURM_ARRAY_TASK_ID}
  [[ $job_folder != /* ]] || [ -d "$(dirname "$job_folder")" ] ||
    job_refuse "$(dirname "$job_folder"), the folder that the run folder goes into, is not there"
}

# Sets job_sweep to the words of this task of an array.
job_find_sweep() {
  job_sweep=()
  [ -n "${MPILM_SWEEP-}" ] || return 0
  [ -n "${SLURM_ARRAY_TASK_ID-}" ] || job_refuse "MPILM_SWEEP is for job arrays: sbatch --array=1-N"
  read -ra job_sweep <<<"$(sed -n "${SLURM_ARRAY_TASK_ID}p" "$MPILM_SWEEP")"
  [ ${#job_sweep[@]} -gt 0 ] || job_refuse "$MPILM_SWEEP has no line $SLURM_ARRAY_TASK_ID for this task of the array"
}

job_train() { # SCRIPT CONFIG WORDS...
  local script=$1 words config
  shift
  job_find_sweep
  words=("$@" ${job_sweep[@]+"${job_sweep[@]}"})
  config=$(job_config ${words[@]+"${words[@]}"}) || job_refuse "usage: sbatch $script CONFIG [--section.key=value]..."
  job_find_folder "$config" "${words[@]}"
  job_begin "$job_folder/starts.log" "$script" "$@"
  words+=("--run.folder=$job_folder")
  if [ "${MPILM_CHECK:-yes}" = yes ]; then
    job_launch "${job_program[@]}" check "${words[@]}"
    [ "$job_code" -eq 0 ] || job_finish
  fi
  job_launch "${job_program[@]}" train "${words[@]}"
  # What is done is in the journal, whatever the launcher says.
  [ "$job_code" -ne 0 ] || grep -a '"saved_step"' "$job_folder/journal.jsonl" 2>/dev/null | tail -n 1 | grep -q '"exit": 0' || {
    job_say "${job_launcher[0]} ended without an error, but the run did not end"
    job_code=1
  }
  job_finish
}
