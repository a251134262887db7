#!/bin/bash
#SBATCH --job-name=tokenize
#SBATCH --nodes=1
#SBATCH --exclusive
#SBATCH --time=12:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
# slurm/tokenize.sh - tokenize a corpus on all cores of the nodes:
#   sbatch slurm/tokenize.sh --vocab V.json --out D.h5 [--val-out E.h5] FILE...
# SPDX-License-Identifier: BSD-3-Clause
#
# Submit it from the project's folder. One rank a core, unless MPILM_RANKS says otherwise; more nodes by --nodes. A start
# that fails begins anew: the dataset appears under its name only when it is whole.
job_root=${MPILM_ROOT:-${SLURM_SUBMIT_DIR:-$(cd "$(dirname "$0")/.." && pwd)}}
. "$job_root/slurm/job.sh" || exit 2
MPILM_RANKS=${MPILM_RANKS:-${SLURM_CPUS_ON_NODE:-1}}
MPILM_FAILURES=${MPILM_FAILURES:-3}
job_begin tokenize.starts.log "$job_root/slurm/tokenize.sh" "$@"
job_launch "${job_program[@]}" tokenize "$@"
job_finish
