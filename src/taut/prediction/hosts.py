"""
What rows keep in the memory of hosts: shares of optimizer states and of activations, where their framework does so.

A row without a framework may have any share there.
"""

from collections.abc import Callable
from typing import Any

from taut.data.cluster import NodeSpec
from taut.data.costs import OFFLOAD_MODULES
from taut.data.memory import MemoryModel
from taut.data.samples import ConfigurationRow
from taut.data.stack import Stack
from taut.errors import DataError
from taut.formulations.mechanisms.offload import ActivationOffload, exceeds_hosts


def hosts_of(row: ConfigurationRow, node_of: Callable[[], NodeSpec]) -> dict[str, float]:
    """The memory of the hosts of a row's nodes, of each GPU what it has on a node; empty where the row uses none."""
    if not (row.optimizer_offload_fraction or row.activation_offload_fraction):
        return {}
    gpus, node, found = min(row.gpus_per_node, row.n_gpus), node_of(), dict[str, float]()
    if node.host_memory_gbytes is not None:
        rate = node.host_memory_gbytes / node.gpus_per_node * gpus
        found |= {"host_memory_gbytes": rate, "host_memory_efficiency": node.host_memory_efficiency}
    if node.host_memory_gib is not None:
        found["host_memory_gib"] = node.host_memory_gib / node.gpus_per_node * gpus
    return found


def with_states_on_hosts(row: ConfigurationRow, memory: MemoryModel, stack: Stack | None) -> MemoryModel:
    """The memory model with the row's share of optimizer states on the host, where the framework has it."""
    if not (share := row.optimizer_offload_fraction):
        return memory
    if stack is not None and not stack.zero_beside_offload(share):
        raise DataError(f"optimizer_offload_fraction is {share:g}, not in {stack.name}, expected 0")
    return MemoryModel.parse({**memory.model_dump(), "optimizer_offload_fraction": share}, memory.name)


def activations_on_hosts(row: ConfigurationRow) -> dict[str, Any]:
    """The row's share of activations on the host, as its space states it."""
    share = row.activation_offload_fraction
    listed = [ActivationOffload(fraction=share, recompute=[row.recompute])] if share else []
    return {"activation_offload": listed}


def check_room(row: ConfigurationRow, needed: int) -> None:
    """Refuse more activations than the memory of a host holds, from the bytes of the fullest device."""
    if row.activation_offload_fraction and exceeds_hosts(needed):
        raise DataError("activation_offload_fraction: more than host_memory_gib of a node holds, expected less")


def lacks_on_hosts(row: ConfigurationRow, stack: Stack | None) -> str:
    """What a row has on the host that its framework does not put there; empty where it does."""
    states, share = row.optimizer_offload_fraction, row.activation_offload_fraction
    if states and stack and row.dp * row.cp > 1 and row.zero not in (beside := stack.zero_beside_offload(states)):
        return f"zero is {row.zero}, expected {' or '.join(map(str, beside))} beside optimizer_offload_fraction"
    if share and row.offload_modules:
        known = stack.offload_modules if stack else OFFLOAD_MODULES
        if lacking := [module for module in row.offload_modules if module not in known]:
            return f"offload_modules: the stack has not {lacking[0]}, expected none"
        full = "offload_modules: full recompute keeps no inputs of modules, expected recompute none or selective"
        return full if row.recompute == "full" else ""
    if not share or stack is None:
        return ""
    if (row.pp > 1 and not stack.offload_pipelines) or row.recompute not in stack.offload_activations:
        words = f"activation_offload_fraction is {share:g} beside pp {row.pp} and recompute {row.recompute}"
        return f"{words}, which the stack has not, expected 0"
    part = stack.offload_shares == "all" and share < 1
    return f"activation_offload_fraction is {share:g}, expected 0 or 1 in the stack" if part else ""
