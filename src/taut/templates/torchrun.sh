#!/usr/bin/env bash
# Starts this node's processes: bash torchrun.sh SCRIPT [ARGUMENTS]. Run it on every node.
# NODE is this node's name, by default that of the host; MASTER_ADDR and MASTER_PORT are those of process 0.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/env.sh"
NODE=${NODE:-$(hostname -s)}
first=%s known=%s
case "$NODE" in
%s  *) echo "torchrun.sh: node $NODE is not one of the plan, expected $known" >&2; exit 2 ;;
esac
