#!/usr/bin/env bash
# Starts the plan: bash mpirun.sh SCRIPT [ARGUMENTS], in an allocation that has its hosts.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/env.sh"
first=%s
export MASTER_ADDR=${MASTER_ADDR:-$first} MASTER_PORT=${MASTER_PORT:-29500}
mpirun -n %d --map-by rankfile:FILE="$here/rankfile" -x MASTER_ADDR -x MASTER_PORT \
  bash "$here/process.sh" python "$@"
