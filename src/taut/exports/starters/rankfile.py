"""
Open MPI: a rankfile, which puts any process on any slot of any host.

Slot g of a host is its core g, and stands for GPU g. Where a process needs more cores than one, ``mpirun --map-by
seq:FILE=hosts.txt --bind-to none`` takes the hosts alone. Source: Open MPI 5, mpirun, ``--map-by rankfile``.
"""

from taut.exports.job import Job
from taut.exports.starters.processes import gpu_lines

SCRIPT = """\
#!/usr/bin/env bash
# Starts the plan: bash mpirun.sh SCRIPT [ARGUMENTS], in an allocation that has its hosts.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/env.sh"
export MASTER_ADDR=${MASTER_ADDR:-%s} MASTER_PORT=${MASTER_PORT:-29500}
mpirun -n %d --map-by rankfile:FILE="$here/rankfile" -x MASTER_ADDR -x MASTER_PORT \\
  bash "$here/process.sh" python "$@"
"""


def rank_files(job: Job) -> dict[str, str]:
    """Rankfile, hosts of the processes, start script, and GPUs of the processes."""
    names = [job.host_names[node] for node in job.nodes.tolist()]
    lines = [f"rank {rank}={name} slot={gpu}\n" for rank, (name, gpu) in enumerate(zip(names, job.gpus, strict=True))]
    start = SCRIPT % (names[0], len(names))
    hosts = "".join(f"{name}\n" for name in names)
    return {"rankfile": "".join(lines), "hosts.txt": hosts, "mpirun.sh": start} | gpu_lines(job)
