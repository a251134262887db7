#!/bin/bash
#SBATCH --job-name=scaling
#SBATCH --nodes=8
#SBATCH --exclusive
#SBATCH --time=01:00:00
# benchmarks/scaling.sh - tokens/s on 1, 2, 4, ... nodes or ranks, and where the time of a step goes.
# SPDX-License-Identifier: BSD-3-Clause
#
#   sbatch benchmarks/scaling.sh CONFIG [--section.key=value]...     over the nodes of the allocation
#   benchmarks/scaling.sh CONFIG [--section.key=value]...            over ranks on this machine, by mpirun
#
# Strong: the same global batch on more and more. Weak: a batch that grows with them. In MPILM_OUT (default scaling-JOB) it
# leaves scaling.jsonl with an object a run, scaling.csv, and, where there is gnuplot, scaling.png and scaling.svg.
#
#   MPILM_SWEEPS   "strong weak"; MPILM_STEPS   steps of a run (40)
#   MPILM_RANKS    ranks on each node; without Slurm: up to so many ranks (one a core)
#
# Steps of the second half count, but for the last, which ends in a save that nothing hides; one save in the background falls
# among them. tokens_per_s is the median of the steps. The split is a mean of seconds a step: compute and loader are those
# of the slowest rank, update that of rank 0, exchange is the rest of the step: communication that no computation hides,
# waiting for a slower rank included. With parallel.zero the update includes the gathering of weights.

in_slurm=${SLURM_JOB_ID:+yes}
job_root=${MPILM_ROOT:-${SLURM_SUBMIT_DIR:-$(cd "$(dirname "$0")/.." && pwd)}}
[ -n "$in_slurm" ] || export MPILM_RANKS="${MPILM_RANKS:-$(env -u OMP_NUM_THREADS nproc)}"
. "$job_root/slurm/job.sh" || exit 2
job_begin "" "$job_root/benchmarks/scaling.sh" "$@"
[ $# -gt 0 ] || { job_say "usage: benchmarks/scaling.sh CONFIG [--section.key=value]..." && exit 2; }
out=${MPILM_OUT:-scaling-${SLURM_JOB_ID:-local}}
steps=${MPILM_STEPS:-40}
[ "$steps" -ge 6 ] || job_refuse "MPILM_STEPS is $steps; want at least 6: the first half warms up"
mkdir -p "$out" || exit 2
columns=sweep,nodes,ranks,threads,batch,tokens_per_s,speedup,efficiency,step,compute,exchange,loader,update,checkpoint

# ---- a run ----

# From metrics.jsonl: batch, tokens/s, then seconds: of a step, compute, exchange, loader, update, checkpoint.
summarise() { # FOLDER
  sed -E 's/^\{"step": ([0-9]+),.*"batch": ([0-9]+), "tokens": ([0-9]+),.*"tokens_per_s": ([^,]+),.*"seconds": \{([^}]*)\}.*/\1 \2 \3 \4 \5/
    s/"[a-z]+": //g; s/,//g' "$1/metrics.jsonl" | awk -v from=$((steps / 2)) -v to=$((steps - 1)) '
    $1 >= from && $1 <= to {
      rate[++n] = $4; batch = $2
      step += ($3 - before) / $4; loader += $5; compute += $6; update += $8; checkpoint += $10
    }
    { before = $3 }
    END {
      for (i = 2; i <= n; i++) for (k = i; k > 1 && rate[k] < rate[k - 1]; k--) { x = rate[k]; rate[k] = rate[k - 1]; rate[k - 1] = x }
      exchange = step - compute - loader - update
      printf "%d %.6g %.6g %.6g %.6g %.6g %.6g %.6g\n", batch, (rate[int((n + 1) / 2)] + rate[int((n + 2) / 2)]) / 2, step / n,
        compute / n, (exchange > 0 ? exchange : 0) / n, loader / n, update / n, checkpoint / n
    }'
}

# Sets result to what summarise() says.
run() { # FOLDER OVERRIDES...
  local folder=$1
  shift
  rm -rf "$folder"
  job_launch "${job_program[@]}" train "${config[@]}" "$@" "--run.folder=$folder" "--run.steps=$steps" \
    "--checkpoint.every=$((steps * 3 / 4))" --checkpoint.keep=1 --eval.every=0 "--schedule.end=$steps" --schedule.warmup=0
  [ "$job_code" -eq 0 ] || exit "$job_code"
  result=$(summarise "$folder")
  rm -rf "$folder/checkpoints"
}

record() { # SWEEP: of the last run, in the two files and the table
  awk -v sweep="$1" -v nodes="$job_nodes" -v ranks=$((job_nodes * job_ranks)) -v threads="$OMP_NUM_THREADS" \
    -v first="$first" -v first_ranks="$first_ranks" -v columns="$columns" -v json="$out/scaling.jsonl" \
    -v csv="$out/scaling.csv" -v table="%-7s %5s %5s %7s %6s %12s %8s %10s %9s %9s %9s %9s %9s %10s\n" '
    {
      speedup = $2 / first; efficiency = speedup * first_ranks / ranks
      n = split(columns, name, ",")
      split(sweep " " nodes " " ranks " " threads " " $1 " " $2 " " sprintf("%.4f %.4f", speedup, efficiency) " " \
        $3 " " $4 " " $5 " " $6 " " $7 " " $8, value, " ")
      line = "{\"sweep\": \"" sweep "\""
      for (i = 2; i <= 9; i++) line = line ", \"" name[i] (i == 9 ? "_seconds" : "") "\": " value[i]
      line = line ", \"seconds\": {"
      for (i = 10; i <= n; i++) line = line (i > 10 ? ", " : "") "\"" name[i] "\": " value[i]
      print line "}}" >>json
      line = sweep
      for (i = 2; i <= n; i++) line = line "," value[i]
      print line >>csv
      printf table, value[1], value[2], value[3], value[4], value[5], value[6], value[7], value[8], value[9], value[10],
        value[11], value[12], value[13], value[14]
    }' <<<"$result"
}

# ---- the sweeps ----

points() { # N: 1 2 4 ... N
  local n
  for ((n = 1; n < $1; n *= 2)); do echo $n; done
  echo "$1"
}

at() { # POINT: so many nodes; without Slurm, ranks
  if [ -n "$in_slurm" ]; then job_nodes=$1; else job_ranks=$1; fi
}

config=("$@") all=$job_nodes
[ -n "$in_slurm" ] || all=$job_ranks
echo "$columns" >"$out/scaling.csv"
: >"$out/scaling.jsonl"
tr , ' ' <<<"$columns" | xargs printf '%-7s %5s %5s %7s %6s %12s %8s %10s %9s %9s %9s %9s %9s %10s\n'
at 1
run "$out/1"
first_result=$result first_ranks=$((job_nodes * job_ranks))
read -r batch first _ <<<"$first_result"
for sweep in ${MPILM_SWEEPS:-strong weak}; do
  for n in $(points "$all"); do
    at "$n"
    result=$first_result grown=()
    [ "$sweep" = strong ] || grown=("--batch.global=$((batch * n))")
    [ "$n" -eq 1 ] || run "$out/$sweep-$n" ${grown[@]+"${grown[@]}"}
    record "$sweep"
  done
done

# ---- the plot ----

plot() { # TERMINAL FILE
  gnuplot <<GNUPLOT
set terminal $1
set output '$2'
set datafile separator ','
set key left top
set multiplot layout 1, 2
set xlabel 'ranks'
set ylabel 'speedup'
set logscale xy 2
set grid
plot for [sweep in "${MPILM_SWEEPS:-strong weak}"] '$out/scaling.csv' \
  using (strcol(1) eq sweep ? \$3 : NaN):7 with linespoints pointtype 7 title sweep, \
  x / $first_ranks with lines dashtype 2 linecolor 'gray' title 'linear'
unset logscale
set ylabel 'seconds a step'
set xlabel ''
set xtics rotate by -45
set style data histograms
set style histogram rowstacked
set style fill solid 0.8 border -1
set boxwidth 0.7
set yrange [0:*]
set key outside top horizontal
plot for [column in "compute exchange loader update checkpoint"] '$out/scaling.csv' \
  using (column(column)):xtic(strcol(1) . ' ' . strcol(3)) title column
unset multiplot
GNUPLOT
}

if command -v gnuplot >/dev/null; then
  plot "pngcairo size 1200,480" "$out/scaling.png" && plot "svg size 1200,480 background 'white'" "$out/scaling.svg" || exit 1
  job_say "$out: scaling.jsonl, scaling.csv, scaling.png, scaling.svg"
else
  job_say "$out: scaling.jsonl, scaling.csv; gnuplot (Debian: gnuplot-nox) would draw them"
fi
