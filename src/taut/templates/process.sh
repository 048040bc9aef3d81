#!/usr/bin/env bash
# Runs one process of the plan: bash process.sh COMMAND [ARGUMENTS], under srun or mpirun.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/env.sh"
export RANK=${SLURM_PROCID:-${OMPI_COMM_WORLD_RANK:?not started by srun or mpirun}}
export WORLD_SIZE=${SLURM_NTASKS:-${OMPI_COMM_WORLD_SIZE:-}}
export LOCAL_RANK=$(sed -n "$((RANK + 1))p" "$here/gpus.txt")
# On the cores and the memory of the GPU's NUMA node, where the host names it and lets numactl bind.
bus=$(nvidia-smi --query-gpu=pci.bus_id --format=csv,noheader -i "$LOCAL_RANK" 2>/dev/null || true)
bus=${bus,,}
numa=$(cat "/sys/bus/pci/devices/${bus:4}/numa_node" 2>/dev/null || true)
bind=(numactl --cpunodebind="$numa" --membind="$numa")
if [[ $numa =~ ^[0-9]+$ ]] && "${bind[@]}" true 2>/dev/null; then
  exec "${bind[@]}" "$@"
fi
exec "$@"
