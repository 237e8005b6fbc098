#!/usr/bin/env bash
# sbatch docs/launch/slurm.sh: four nodes of eight GPUs, one torchrun on each. Not tried by arcwise's authors.
#SBATCH --job-name=arcwise
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --requeue
set -euo pipefail
host=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes "$SLURM_NNODES" --nproc-per-node 8 --max-restarts 3 \
  --rdzv-id "$SLURM_JOB_ID" --rdzv-backend c10d --rdzv-endpoint "$host:29400" \
  -m arcwise train faces-r50 --data folder:/data/faces --out /runs/faces --resume
