"""
Slurm: a job script, the host of every process, and a wrapper that gives a process its GPU.

``srun --distribution=arbitrary`` starts process i on line i of ``SLURM_HOSTFILE``. Where the hosts' names are not
known, the script makes that file from the nodes of the allocation, in their order. Source: Slurm's manual of srun.
"""

from taut.exports.job import Job
from taut.exports.starters.processes import gpu_lines

SCRIPT = """\
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
    script = SCRIPT.format(
        nodes=len(used),
        processes=len(job.devices),
        gpus=max(job.cluster.node_list[node].gpus_per_node for node in used),
        nodelist=f"#SBATCH --nodelist={','.join(job.host_names[node] for node in used)}\n" if job.hosts else "",
        hosts=KNOWN if job.hosts else ALLOCATED,
    )
    places = {node: place for place, node in enumerate(used)}
    names = [job.host_names[node] if job.hosts else str(places[node]) for node in job.nodes.tolist()]
    listed = "".join(f"{name}\n" for name in names)
    return {"slurm.sh": script, ("hosts.txt" if job.hosts else "nodes.txt"): listed} | gpu_lines(job)
