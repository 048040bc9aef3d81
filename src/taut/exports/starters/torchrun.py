"""
torchrun with a static rendezvous: ``torchrun.sh``, one for all nodes.

Static rendezvous numbers processes node by node, ``--node-rank`` times the processes a node. A plan whose processes lie
so needs one torchrun a node; its GPUs are listed in ``CUDA_VISIBLE_DEVICES`` in the order of their processes. Any other
plan has one torchrun a GPU, each a node of one process. Source: torch/distributed/run.py.
"""

import numpy as np

from taut.exports.job import Job

HEAD = """\
#!/usr/bin/env bash
# Starts this node's processes: bash torchrun.sh SCRIPT [ARGUMENTS]. Run it on every node.
# NODE is this node's name, by default that of the host; MASTER_ADDR and MASTER_PORT are those of process 0.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/env.sh"
NODE=${NODE:-$(hostname -s)}
"""
UNKNOWN = """\
  *) echo "torchrun.sh: node $NODE is not one of the plan, expected %s" >&2; exit 2 ;;
esac
"""
WHOLE = """\
export CUDA_VISIBLE_DEVICES=$gpus
exec torchrun --nnodes %d --nproc-per-node "$count" --node-rank "$rank" \\
  --master-addr "${MASTER_ADDR:-%s}" --master-port "${MASTER_PORT:-29500}" "$@"
"""
SINGLE = """\
# Processes of one node do not have consecutive numbers: every GPU is a node of one process.
for place in $places; do
  CUDA_VISIBLE_DEVICES=${place#*:} torchrun --nnodes %d --nproc-per-node 1 --node-rank "${place%%:*}" \\
    --master-addr "${MASTER_ADDR:-%s}" --master-port "${MASTER_PORT:-29500}" "$@" &
done
wait
"""


def torchrun_script(job: Job) -> str:
    """The script that starts one node's processes."""
    names = [job.host_names[node] for node in job.node_order()]
    lines = [_whole_line, _single_line][not job.is_node_major]
    cases = "".join(f"  {name}) {lines(job, number)} ;;\n" for number, name in enumerate(names))
    many = len(names) if job.is_node_major else len(job.devices)
    run = (WHOLE if job.is_node_major else SINGLE) % (many, names[0])
    return f'{HEAD}case "$NODE" in\n{cases}{UNKNOWN % _span(names)}{run}'


def _whole_line(job: Job, number: int) -> str:
    """Number of a node, its processes, and their GPUs."""
    gpus = job.gpus[job.nodes == job.node_order()[number]].tolist()
    return f"rank={number}; count={len(gpus)}; gpus={','.join(map(str, gpus))}"


def _single_line(job: Job, number: int) -> str:
    """Processes of a node with their GPUs."""
    ranks = np.flatnonzero(job.nodes == job.node_order()[number]).tolist()
    return 'places="' + " ".join(f"{rank}:{job.gpus[rank]}" for rank in ranks) + '"'


def _span(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
