r"""
A placement in the words of the program that starts the processes: torchrun, Slurm, Open MPI.

``process.sh`` numbers a process by what Slurm or Open MPI tells it, and gives it the GPU on its line of ``gpus.txt``
as ``LOCAL_RANK``, which frameworks take for the device to use. ``ranks.csv`` is for people.

Processes are numbered as in ``taut.exports.job`` (1), N = tp cp dp of them on a stage. On models with experts the same
numbers count twice within a stage (``taut.formulations.degrees`` (1) and (3)):

(1) :math:`r = ((x \, edp + w) \, ep + e) \, etp + u`, expert tensor rank u, expert rank e, copy w of the experts, with
    edp = N / (ep etp). Without expert ranks all tensor ranks share every expert: etp = tp.

Open MPI takes a rankfile, which puts any process on any slot of any host. Slot g of a host is its core g, and stands
for GPU g. Where a process needs more cores than one, ``mpirun --map-by seq:FILE=hosts.txt --bind-to none`` takes the
hosts alone. Source: Open MPI 5, mpirun, ``--map-by rankfile``.

torchrun has a static rendezvous, ``torchrun.sh``, one for all nodes. It numbers processes node by node,
``--node-rank`` times the processes a node. A plan whose processes lie so needs one torchrun a node; its GPUs are listed
in ``CUDA_VISIBLE_DEVICES`` in the order of their processes. Any other plan has one torchrun a GPU, each a node of one
process. Source: torch/distributed/run.py.

Slurm has a job script, the host of every process, and a wrapper that gives a process its GPU. ``srun
--distribution=arbitrary`` starts process i on line i of ``SLURM_HOSTFILE``. Where the hosts' names are not known, the
script makes that file from the nodes of the allocation, in their order. Source: Slurm's manual of srun.
"""

import csv
from io import StringIO

import numpy as np

from taut.exports.job import Job
from taut.quoting import shell_word
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


MPIRUN_SCRIPT = """\
#!/usr/bin/env bash
# Starts the plan: bash mpirun.sh SCRIPT [ARGUMENTS], in an allocation that has its hosts.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/env.sh"
first=%s
export MASTER_ADDR=${MASTER_ADDR:-$first} MASTER_PORT=${MASTER_PORT:-29500}
mpirun -n %d --map-by rankfile:FILE="$here/rankfile" -x MASTER_ADDR -x MASTER_PORT \\
  bash "$here/process.sh" python "$@"
"""


def rank_files(job: Job) -> dict[str, str]:
    """Rankfile, hosts of the processes, start script, and GPUs of the processes."""
    names = [job.host_names[node] for node in job.nodes.tolist()]
    lines = [f"rank {rank}={name} slot={gpu}\n" for rank, (name, gpu) in enumerate(zip(names, job.gpus, strict=True))]
    start = MPIRUN_SCRIPT % (shell_word(names[0]), len(names))
    hosts = "".join(f"{name}\n" for name in names)
    return {"rankfile": "".join(lines), "hosts.txt": hosts, "mpirun.sh": start} | gpu_lines(job)


HEAD = """\
#!/usr/bin/env bash
# Starts this node's processes: bash torchrun.sh SCRIPT [ARGUMENTS]. Run it on every node.
# NODE is this node's name, by default that of the host; MASTER_ADDR and MASTER_PORT are those of process 0.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/env.sh"
NODE=${NODE:-$(hostname -s)}
first=%s known=%s
"""
UNKNOWN = """\
  *) echo "torchrun.sh: node $NODE is not one of the plan, expected $known" >&2; exit 2 ;;
esac
"""
WHOLE = """\
export CUDA_VISIBLE_DEVICES=$gpus
exec torchrun --nnodes %d --nproc-per-node "$count" --node-rank "$rank" \\
  --master-addr "${MASTER_ADDR:-$first}" --master-port "${MASTER_PORT:-29500}" "$@"
"""
SINGLE = """\
# Processes of one node do not have consecutive numbers: every GPU is a node of one process.
for place in $places; do
  CUDA_VISIBLE_DEVICES=${place#*:} torchrun --nnodes %d --nproc-per-node 1 --node-rank "${place%%:*}" \\
    --master-addr "${MASTER_ADDR:-$first}" --master-port "${MASTER_PORT:-29500}" "$@" &
done
wait
"""


def torchrun_script(job: Job) -> str:
    """The script that starts one node's processes."""
    names = [job.host_names[node] for node in job.node_order()]
    lines = [_whole_line, _single_line][not job.is_node_major]
    cases = "".join(f"  {shell_word(name)}) {lines(job, number)} ;;\n" for number, name in enumerate(names))
    many = len(names) if job.is_node_major else len(job.devices)
    run = (WHOLE if job.is_node_major else SINGLE) % many
    head = HEAD % (shell_word(names[0]), shell_word(_span(names)))
    return f'{head}case "$NODE" in\n{cases}{UNKNOWN}{run}'


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


SLURM_SCRIPT = """\
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
srun --distribution=arbitrary bash "$here/process.sh" python "$@"
"""
ALLOCATED = """\
# Line i of nodes.txt is the node of process i, counted in the order of the allocation.
mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
export SLURM_HOSTFILE="$here/hosts.$SLURM_JOB_ID.txt"
while read -r node; do echo "${hosts[$node]}"; done < "$here/nodes.txt" > "$SLURM_HOSTFILE"
"""
KNOWN = 'export SLURM_HOSTFILE="$here/hosts.txt"\n'


def slurm_files(job: Job) -> dict[str, str]:
    """Job script, hosts or nodes of the processes, and their GPUs."""
    used = sorted(set(job.nodes.tolist()))
    script = SLURM_SCRIPT.format(
        nodes=len(used),
        processes=len(job.devices),
        gpus=max(job.machines[node].machine_size for node in used),
        nodelist=f"#SBATCH --nodelist={','.join(job.host_names[node] for node in used)}\n" if job.hosts else "",
        hosts=KNOWN if job.hosts else ALLOCATED,
    )
    places = {node: place for place, node in enumerate(used)}
    names = [job.host_names[node] if job.hosts else str(places[node]) for node in job.nodes.tolist()]
    listed = "".join(f"{name}\n" for name in names)
    return {"slurm.sh": script, ("hosts.txt" if job.hosts else "nodes.txt"): listed} | gpu_lines(job)
