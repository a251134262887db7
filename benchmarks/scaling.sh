#!/bin/bash
#SBATCH --job-name=scaling
#SBATCH --nodes=8
#SBATCH --exclusive
#SBATCH --time=01:00:00
# benchmarks/scaling.sh - tokens/s on 1, 2, 4, ... nodes: sbatch benchmarks/scaling.sh CONFIG [--section.key=value]...
# SPDX-License-Identifier: BSD-3-Clause
#
# The same global batch on more and more nodes of one allocation (strong scaling), or with MPILM_WEAK=yes a batch that
# grows with them. Prints a table, and leaves scaling.tsv and scaling.svg in MPILM_OUT (default scaling-JOB).
job_root=${MPILM_ROOT:-${SLURM_SUBMIT_DIR:-$(cd "$(dirname "$0")/.." && pwd)}}
. "$job_root/slurm/job.sh" || exit 2
job_begin "" "$job_root/benchmarks/scaling.sh" "$@"
[ $# -gt 0 ] || { job_say "usage: sbatch benchmarks/scaling.sh CONFIG [--section.key=value]..." && exit 2; }
out=${MPILM_OUT:-scaling-${SLURM_JOB_ID:-local}}
steps=${MPILM_STEPS:-40}
mkdir -p "$out" || exit 2
all=$job_nodes
batch=$(sed -n 's/^ *global: *\([0-9]*\).*/\1/p' "$1" | head -n 1)

# The median of the second half of the steps: the first ones warm caches up.
rate() { # FOLDER
  sed -n 's/.*"tokens_per_s": \([0-9.e+]*\).*/\1/p' "$1/metrics.jsonl" | tail -n $(((steps + 1) / 2)) | sort -g |
    awk '{ x[NR] = $1 } END { if (NR) print x[int((NR + 1) / 2)] }'
}

printf 'nodes\tranks\ttokens/s\tspeedup\tefficiency\n' | tee "$out/scaling.tsv"
for ((job_nodes = 1; job_nodes <= all; job_nodes *= 2)); do
  folder=$out/$job_nodes-nodes weak=()
  rm -rf "$folder"
  [ "${MPILM_WEAK:-no}" = no ] || weak=("--batch.global=$((${batch:-8} * job_nodes))")
  job_launch "${job_program[@]}" train "$@" ${weak[@]+"${weak[@]}"} "--run.folder=$folder" "--run.steps=$steps" \
    --checkpoint.every=0 --checkpoint.keep=1 --eval.every=0 --schedule.end="$steps" --schedule.warmup=0
  [ "$job_code" -eq 0 ] || exit "$job_code"
  now=$(rate "$folder")
  [ $job_nodes -gt 1 ] || first=$now
  awk -v n=$job_nodes -v r=$((job_nodes * job_ranks)) -v now="$now" -v first="$first" \
    'BEGIN { printf "%d\t%d\t%.0f\t%.2f\t%.1f %%\n", n, r, now, now / first, 100 * now / first / n }' |
    tee -a "$out/scaling.tsv"
  rm -rf "$folder/checkpoints"
done

# Speedup over nodes, both axes in powers of two, and the straight line that nothing beats.
awk -F'\t' 'NR > 1 { n[++k] = $1; s[k] = $4 }
  function px(v) { return 60 + 400 * log(v) / top }
  function py(v) { return 340 - 300 * log(v) / top }
  END {
    top = log(n[k] > 1 ? n[k] : 2)
    print "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"500\" height=\"400\" font-family=\"sans-serif\" font-size=\"13\">"
    print "<rect width=\"500\" height=\"400\" fill=\"white\"/>"
    printf "<line x1=\"60\" y1=\"340\" x2=\"460\" y2=\"40\" stroke=\"#999\" stroke-dasharray=\"5,5\"/>\n"
    for (i = 1; i <= k; i++) {
      printf "<text x=\"%.0f\" y=\"360\" text-anchor=\"middle\">%d</text>\n", px(n[i]), n[i]
      printf "<text x=\"50\" y=\"%.0f\" text-anchor=\"end\">%d</text>\n", py(n[i]) + 4, n[i]
      v = s[i] > 0.5 ? s[i] : 0.5
      points = points sprintf("%.1f,%.1f ", px(n[i]), py(v))
      printf "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"#06c\"/>\n", px(n[i]), py(v)
    }
    printf "<polyline points=\"%s\" fill=\"none\" stroke=\"#06c\" stroke-width=\"2\"/>\n", points
    print "<text x=\"260\" y=\"385\" text-anchor=\"middle\">nodes</text>"
    print "<text x=\"15\" y=\"25\">speedup over one node (dashed: linear)</text></svg>"
  }' "$out/scaling.tsv" >"$out/scaling.svg"
job_say "table and plot: $out/scaling.tsv, $out/scaling.svg"
