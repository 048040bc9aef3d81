r"""
Activations in the memory of hosts: what a layer then takes, and which ranges of layers a host holds.

A share s of what every layer keeps for the backward pass, or of what its named modules do, goes to the host while the
layer's forward pass runs, and comes back while its backward pass does. With K bytes that a layer keeps of a micro-batch
under its recompute (none for the embedding and the head, which stay), of these H of the named modules (all K where none
are named, the cost table's ``offload_bytes`` otherwise), and B bytes a second that transfers reach on a device's link
to its host, in one direction (``taut.data.device``), forward f and backward seconds b of the layer without
communication become

(1) :math:`f' = \max(f, a / B)` and :math:`b' = \max(b, a / B)` with :math:`a = \lfloor s H \rfloor`, as each direction
    of the link has one pass's transfers beside its computation. What b' has more than b counts to the gradient by the
    input. Communication of a block hides nothing of a transfer here, so that the price is on the safe side;
(2) of a micro-batch in flight a device keeps :math:`K - a`, and beside these two layers' :math:`a`: the one that leaves
    or comes, and the one that runs;
(3) a host keeps :math:`q a` for every layer of a stage, with the most micro-batches in flight q of any stage, and the
    share F of the optimizer states that is there (``taut.formulations.tables.optimizer_offload``). A stage is feasible
    where these are no more than an equal part of its node's ``host_memory_gib`` for each GPU, the least of any node;
    of a device with several chunks each has an equal part of that.
    A range of more takes ``HOST_FULL`` bytes for a micro-batch, which no device has, so that all that is said of
    memory holds for hosts too.

Transfers of optimizer states come after the passes, so both shares of the link add up in the step.

This is the offload of Transformer Engine that Megatron-LM starts with ``--cpu-offloading-num-layers``
(megatron/core/transformer/transformer_block.py, ``get_cpu_offload_context``): of n among L layers, which it spreads
over the passes of all L, so that s = n / L; with one stage, without recompute, and n < L
(megatron/core/transformer/transformer_config.py). With modules it is that of ``--fine-grained-activation-offloading``
(megatron/core/pipeline_parallel/fine_grained_activation_offload.py), whose ``--activation-offload-fraction`` is of the
modules in the order of a pass: the share of a stage's bytes as here, the earlier layers' first. All that full recompute
keeps is what DeepSpeed's ``cpu_checkpointing`` moves, on a stream of its own since 2026
(deepspeed/runtime/activation_checkpointing/checkpointing.py, ``_ActivationOffloadEngine``).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Ints
from taut.data.cluster import ClusterSpec
from taut.data.costs import LayerCost
from taut.data.memory import MemoryModel
from taut.data.units import GIB
from taut.errors import DataError

HOST_FULL = 2**50
"""Bytes of a micro-batch that stand for a host that is full, (3): a pebibyte, which no device has."""
LEAST_COEFFICIENT = 1e-3
"""Least coefficient of activations beside which ``HOST_FULL`` bytes still exceed every device."""


@dataclass(frozen=True)
class ActivationsOnHosts:
    """
    The share of activations on hosts, and what moves it.

    Parameters
    ----------
    share
        Of what a layer keeps, s.
    sequence_parallel
        Whether tensor ranks share what lies between their parts of a layer.
    links
        Bytes a second of each device type's link to its host, B.
    modules
        Whether the share is of what named modules keep, H, and not of all.
    """

    share: float
    sequence_parallel: bool
    links: Mapping[str, float]
    modules: bool = False

    def price(self, device: str, cost: LayerCost) -> LayerCost:
        """What a layer takes and keeps, (1) and (2)."""
        seconds = self.moved(cost) / self.links[device]
        without, with_sp = self._moved(cost)
        return LayerCost(
            max(cost.forward, seconds),
            max(cost.input_grad, seconds - cost.weight_grad),
            cost.weight_grad,
            cost.activation_bytes - without,
            cost.activation_bytes_sp - with_sp,
        )

    def moved(self, cost: LayerCost) -> int:
        """Bytes that go to the host, a."""
        return self._moved(cost)[self.sequence_parallel]

    def _moved(self, cost: LayerCost) -> tuple[int, int]:
        """These without and with sequence parallelism."""
        kept = cost.activation_bytes, cost.activation_bytes_sp
        of = (cost.offload_bytes, cost.offload_bytes_sp) if self.modules else kept
        return int(self.share * of[0]), int(self.share * of[1])


def host_links(cluster: ClusterSpec) -> dict[str, float]:
    """Bytes a second of every device type's link to its host, of those that state it."""
    return {name: device.host_link for name, device in cluster.devices.items() if device.host_link is not None}


def host_bytes(cluster: ClusterSpec) -> int:
    """Bytes of host memory for one GPU, the least of any node, (3); 0 where one does not state it."""
    return min(int((node.host_memory_gib or 0.0) * GIB) // node.gpus_per_node for node in cluster.nodes)


def beyond_host(moved: Ints, in_flight: int, states: Ints, room: int) -> Ints:
    """Whether ranges have more on their host than it holds, (3): from bytes of a micro-batch and of states."""
    return np.asarray(in_flight * moved + states > room)


def check_activation_hosts(cluster: ClusterSpec, memory: MemoryModel, shares: Iterable[float]) -> None:
    """
    Refuse activations on hosts that the cluster does not describe, or in a memory model that has no such term.

    Raises ``DataError``: with what is missing, or does not go with it.
    """
    if not max(shares, default=0.0):
        return
    expected = "beside activation_offload_fraction"
    for name, device in cluster.devices.items():
        if device.host_link is None:
            what = f"device {name}: host_link_gbytes: missing, expected GB/s in one direction of its link to the host"
            raise DataError(f"cluster {cluster.name}: {what} {expected}")
    if any(node.host_memory_gib is None for node in cluster.nodes):
        what = "host_memory_gib: missing, expected GiB of the memory of a node's hosts"
        raise DataError(f"cluster {cluster.name}: {what} {expected}")
    for term in ("activations", "checkpoints"):
        if memory.coefficient(term) < LEAST_COEFFICIENT:
            raise DataError(f"{memory.name}: coefficients.{term}: expected {LEAST_COEFFICIENT:g} or more {expected}")
