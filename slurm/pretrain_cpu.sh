#!/bin/bash
#SBATCH --job-name=pretrain
#SBATCH --nodes=4
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@180
# slurm/pretrain_cpu.sh - train on CPU nodes: sbatch slurm/pretrain_cpu.sh CONFIG [--section.key=value]...
# SPDX-License-Identifier: BSD-3-Clause
#
# Submit it from the project's folder. MPILM_RANKS=2 starts two ranks on each node, one a NUMA domain or socket; a range
# of nodes, --nodes=2-4, lets the job go on with fewer after a failure. Other settings: slurm/job.sh, doc/cluster.md.
job_root=${MPILM_ROOT:-${SLURM_SUBMIT_DIR:-$(cd "$(dirname "$0")/.." && pwd)}}
. "$job_root/slurm/job.sh" || exit 2
job_train "$job_root/slurm/pretrain_cpu.sh" "$@"
