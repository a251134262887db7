#!/bin/bash
#SBATCH --job-name=pretrain
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=12
#SBATCH --mem=0
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@180
# slurm/pretrain_64gpu.sh - train on 8 nodes x 8 GPUs: sbatch slurm/pretrain_64gpu.sh CONFIG [--section.key=value]...
# SPDX-License-Identifier: BSD-3-Clause
#
# Submit it from the project's folder. One rank a GPU: a rank sees all GPUs of its node and takes that of its number on
# the node. MPILM_BACKEND=cpu computes on the processors instead. Other settings: slurm/job.sh, doc/cluster.md.
job_root=${MPILM_ROOT:-${SLURM_SUBMIT_DIR:-$(cd "$(dirname "$0")/.." && pwd)}}
. "$job_root/slurm/job.sh" || exit 2

job_train "$job_root/slurm/pretrain_64gpu.sh" "$@" "--backend=${MPILM_BACKEND:-cuda}"
