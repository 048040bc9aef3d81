r"""
What every process launcher needs: the GPU of every process, and who is who.

``process.sh`` numbers a process by what Slurm or Open MPI tells it, and gives it the GPU on its line of ``gpus.txt``
as ``LOCAL_RANK``, which frameworks take for the device to use. ``ranks.csv`` is for people.

Processes are numbered as in ``taut.exports.job`` (1), N = tp cp dp of them on a stage. On models with experts the same
numbers count twice within a stage (``taut.formulations.degrees`` (1) and (3)):

(1) :math:`r = ((x \, edp + w) \, ep + e) \, etp + u`, expert tensor rank u, expert rank e, copy w of the experts, with
    edp = N / (ep etp). Without expert ranks all tensor ranks share every expert: etp = tp.
"""

import csv
from io import StringIO

import numpy as np

from taut.exports.job import Job
from taut.solver.certificate.document import StrategySection

DENSE = ("rank", "host", "gpu", "device", "stage", "replica", "context_rank", "tensor_rank")
EXPERTS = ("expert_copy", "expert_rank", "expert_tensor_rank")
"""Columns of ``ranks.csv``: of every plan, and further ones of models with experts."""
WRAPPER = """\
#!/usr/bin/env bash
# Runs one process of the plan: bash process.sh COMMAND [ARGUMENTS], under srun or mpirun.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/env.sh"
export RANK=${SLURM_PROCID:-${OMPI_COMM_WORLD_RANK:?not started by srun or mpirun}}
export WORLD_SIZE=${SLURM_NTASKS:-${OMPI_COMM_WORLD_SIZE:-}}
export LOCAL_RANK=$(sed -n "$((RANK + 1))p" "$here/gpus.txt")
exec "$@"
"""


def gpu_lines(job: Job) -> dict[str, str]:
    """The wrapper, and the GPU of every process on its node, a line each."""
    return {"process.sh": WRAPPER, "gpus.txt": "".join(f"{gpu}\n" for gpu in job.gpus.tolist())}


def rank_table(job: Job) -> str:
    """Every process with its host, GPU, device of the cluster, and ranks, those of experts where there are some."""
    chosen, text = job.strategy, StringIO()
    experts = _expert_grid(chosen) if job.model.has_experts else ()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*DENSE, *(EXPERTS if experts else ())))
    for rank, (device, node, gpu) in enumerate(zip(job.devices, job.nodes, job.gpus, strict=True)):
        dense = np.unravel_index(rank, (chosen.pp, chosen.dp, chosen.cp, chosen.tp))
        routed = np.unravel_index(rank, (chosen.pp, *experts))[1:] if experts else ()
        writer.writerow((rank, job.host_names[node], gpu, device, *dense, *routed))
    return text.getvalue()


def _expert_grid(chosen: StrategySection) -> tuple[int, int, int]:
    """Copies of the experts, expert ranks, and expert tensor ranks of a stage, (1)."""
    etp = chosen.etp or chosen.tp
    return chosen.dp * chosen.cp * chosen.tp // (chosen.ep * etp), chosen.ep, etp
