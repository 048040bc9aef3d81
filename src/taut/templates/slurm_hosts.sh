# Line i of nodes.txt is the node of process i, counted in the order of the allocation.
mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
export SLURM_HOSTFILE="$here/hosts.$SLURM_JOB_ID.txt"
while read -r node; do echo "${hosts[$node]}"; done < "$here/nodes.txt" > "$SLURM_HOSTFILE"
