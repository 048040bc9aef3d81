#!/usr/bin/env bash
#SBATCH --nodes={nodes}
#SBATCH --ntasks={processes}
#SBATCH --gpus-per-node={gpus}
#SBATCH --distribution=arbitrary
#SBATCH --exclusive
{nodelist}# Starts the plan: sbatch slurm.sh SCRIPT [ARGUMENTS], in this folder.
set -euo pipefail
here=$SLURM_SUBMIT_DIR
source "$here/env.sh"
{hosts}export MASTER_ADDR=$(head -n 1 "$SLURM_HOSTFILE") MASTER_PORT=${{MASTER_PORT:-29500}}
srun --cpu-bind=none --distribution=arbitrary bash "$here/process.sh" python "$@"
