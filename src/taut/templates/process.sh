#!/usr/bin/env bash
# Runs one process of the plan: bash process.sh COMMAND [ARGUMENTS], under srun or mpirun.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/env.sh"
export RANK=${SLURM_PROCID:-${OMPI_COMM_WORLD_RANK:?not started by srun or mpirun}}
export WORLD_SIZE=${SLURM_NTASKS:-${OMPI_COMM_WORLD_SIZE:-}}
export LOCAL_RANK=$(sed -n "$((RANK + 1))p" "$here/gpus.txt")
exec "$@"
