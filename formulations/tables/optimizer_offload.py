r"""
Seconds of an optimizer whose states are in the host's memory in part.

A share F of a device's parameters is updated by its host, the rest by the device, which takes o seconds for a
parameter (``taut.data.costs``). With B bytes a second that transfers reach on the device's link to its host, in one
direction, and H those that updates reach of a node's host memory, of which each of the node's G devices has an equal
part,

(1) gradients go to the host and weights come back in single precision, :math:`4 F / B` seconds a parameter each. Both
    frameworks convert on the device, whatever format they keep there: Megatron-LM,
    ``megatron/core/optimizer/cpu_offloading/hybrid_optimizer.py``, whose copies are asynchronous (PyTorch then converts
    on the GPU, ``aten/src/ATen/native/cuda/Copy.cu``), and DeepSpeed, ``deepspeed/runtime/zero/stage_1_and_2.py``;
(2) the host reads the gradient and reads and writes weight and both moments: :math:`28 F G / H` seconds. Meanwhile the
    device updates the others, :math:`(1 - F) o`;
(3) :math:`o(F) = 8 F / B + \max(28 F G / H, (1 - F) o)`, as transfers wait for one another and for both updates
    (``--overlap-cpu-optimizer-d2h-h2d`` is not counted on). It is o at F = 0.

A parameter takes as long on every device of a type, so T_opt stays its seconds a parameter times the parameters of a
stage over the devices that share them, and all that is said of T_opt holds. Where nodes of one type of device differ,
the least H / G of them counts for all.

B and H are shares of the stated rates: 0.77 of the link, and of the memory 0.24, unless a cluster says otherwise.
NVIDIA measured an optimizer on two nodes of eight H100 (Megatron-Bridge,
``skills/nemo-mbridge-perf-cpu-offloading/card.yaml``): at F = 1 a step of Qwen3-30B-A3B took 3.193 s more, and 2.881 s
with transfers beside the update. With 1.9e9 parameters on a device, 63 GB/s of PCIe 5.0 and 614.4 GB/s of memory, the
312 ms of transfers are (1) at 0.77 and the rest (2) at 0.24 of these.
"""

from collections.abc import Iterable

import numpy as np

from taut.data.arrays import Floats
from taut.data.cluster import ClusterSpec
from taut.data.costs import CostTable
from taut.data.memory import MemoryModel
from taut.errors import DataError

SHARES = 0.0, 0.25, 0.5, 0.75, 1.0
"""Shares of the states that are tried where none is stated: seconds and bytes are linear in the share, up to the host's
update beside the device's, so that a finer grid changes a plan little."""
MOVED_BYTES = 8
"""Bytes of a gradient to the host and of a weight back, in single precision, (1)."""
HOST_BYTES = 28
"""Bytes of the host's memory that the update of a parameter reads and writes, (2)."""


def optimizer_seconds(cluster: ClusterSpec, costs: CostTable, memory: MemoryModel) -> Floats:
    """Seconds of the optimizer for a parameter by device type of a cluster, (3); 0 where a device has no price."""
    fraction, priced = memory.optimizer_offload_fraction, costs.optimizer_s_per_parameter
    return np.array([offloaded_seconds(cluster, name, fraction, priced.get(name, 0.0)) for name in cluster.devices])


class OffloadedShares:
    """The memory model and the optimizer's seconds by the share of states on hosts, where candidates differ in it."""

    def __init__(self, cluster: ClusterSpec, costs: CostTable, memory: MemoryModel) -> None:
        self._cluster, self._costs = cluster, costs
        self._memory, self._seconds = {0.0: memory}, dict[float, Floats]()

    def memory_with(self, share: float) -> MemoryModel:
        """The memory model with a candidate's share, its own where that is 0."""
        if share not in self._memory:
            self._memory[share] = self._memory[0.0].model_copy(update={"optimizer_offload_fraction": share})
        return self._memory[share]

    def seconds(self, share: float) -> Floats:
        """Seconds of the optimizer for a parameter by device type with a candidate's share, (3)."""
        if share not in self._seconds:
            self._seconds[share] = optimizer_seconds(self._cluster, self._costs, self.memory_with(share))
        return self._seconds[share]


def describes_hosts(cluster: ClusterSpec) -> bool:
    """Whether a cluster states the links and hosts of all its devices."""
    return all(node.device.host_link is not None and node.host_update is not None for node in cluster.nodes)


def check_hosts(cluster: ClusterSpec, memory: MemoryModel, shares: Iterable[float] = ()) -> None:
    """
    Refuse states in the memory of hosts that the cluster does not describe, or beside what the memory model keeps.

    ``shares``: of the optimizer states on hosts, where candidates differ in them. Raises ``DataError``: with what is
    missing, or does not go with it.
    """
    most = max(shares, default=0.0)
    if most and memory.optimizer_offload_fraction:
        share = f"{memory.optimizer_offload_fraction:g}"
        raise DataError(
            f"{memory.name}: optimizer_offload_fraction: is {share}, expected 0 where candidates have theirs"
        )
    if most:
        MemoryModel.parse({**memory.model_dump(), "optimizer_offload_fraction": most}, memory.name)
    for device in cluster.devices:
        offloaded_seconds(cluster, device, most or memory.optimizer_offload_fraction, 0.0)


def offloaded_seconds(cluster: ClusterSpec, device: str, fraction: float, own: float) -> float:
    """
    Seconds of the optimizer for a parameter, (3).

    ``cluster``: states the link of every device to its host and the memory of the hosts; ``device``: name of a device
    type of the cluster; ``fraction``: share of the parameters whose states are in the host's memory; ``own``: seconds
    of the device's own optimizer for a parameter. Raises ``DataError`` if the cluster does not state what (3) needs.
    """
    if not fraction:
        return own
    link = cluster.devices[device].host_link
    if link is None:
        raise _missing(
            cluster, f"device {device}: host_link_gbytes", "GB/s in one direction of a GPU's link to its host"
        )
    shares = [node.host_update for node in cluster.nodes if node.device.name == device]
    known = [share for share in shares if share is not None]
    if len(known) < len(shares):
        raise _missing(cluster, f"node of {device}: host_memory_gbytes", "GB/s of the memory of a node's hosts")
    return MOVED_BYTES * fraction / link + max(HOST_BYTES * fraction / min(known), (1 - fraction) * own)


def _missing(cluster: ClusterSpec, what: str, expected: str) -> DataError:
    return DataError(f"cluster {cluster.name}: {what}: missing, expected {expected} beside optimizer_offload_fraction")
