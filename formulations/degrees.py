r"""
Degrees that suit a model and the nodes of a cluster: ``taut.formulations.space`` (3), (10) and (11).

The devices of a stage are numbered tensor ranks first, then context ranks, then replicas. Consecutive ones make groups:

(1) tp devices are a tensor group, tp cp devices a replica, and x e devices an expert group, with e expert ranks of x
    tensor ranks each. A tensor group lies in an expert group. Either the expert group lies in the replica, or the
    replica in the expert group;
(2) the larger of expert group and replica is a *block*. Its devices exchange tokens in every layer, so they run in
    step. A stage of N devices has N / w blocks of w devices, and each block is part of a pipeline of its own;
(3) the N / tp devices with the same place in their tensor group hold the same dense weights. The N / (x e) devices with
    the same place in their expert group hold the same experts. If s consecutive replicas share a copy, the copy is s tp
    consecutive devices. It holds whole expert groups, so x e divides s tp. In a copy s devices have the same dense
    weights, and s tp / (x e) devices the same experts (Megatron-LM's ``parallel_state.py`` divides dp cp and edp by the
    instances of the optimizer, torchtitan's ``parallel_dims.py`` divides dp_shard cp tp by ep);
(4) context ranks share attention in one of four ways, Megatron-LM's ``--cp-comm-type``:

    - ``p2p``: keys and values go round a ring;
    - ``all_gather``: every rank gathers all keys and values;
    - ``a2a``: after an all-to-all each rank has all tokens of 1/cp of the heads; cp divides the heads of a tensor rank,
      and its heads of keys;
    - ``a2a+p2p``: the all-to-all among the context ranks of a node, and the ring between nodes. The replica fills
      several nodes, and a node has several of its context ranks.

    All kinds except ``all_gather`` hold about as much as one layer keeps anyway. If an indexer chooses the tokens of
    attention, only ``all_gather`` shares it (Megatron-LM's ``transformer_config.py`` refuses other kinds).
(5) a layer that mixes tokens otherwise exchanges heads under every kind (``taut.data.layers.mixer`` (5)), so tp cp
    divides its heads. Matrices of its own for attention (``attends``) leave no context ranks.
"""

from collections.abc import Iterator
from typing import NamedTuple

from taut.data.cluster import ClusterSpec
from taut.data.model import ModelSpec
from taut.data.stack import ContextKind


class BlockShape(NamedTuple):
    """Degrees of a block, (1), and how its context ranks share attention, (4); ``etp`` equals tp if ``ep`` is 1."""

    tp: int
    cp: int = 1
    ep: int = 1
    etp: int = 1
    cp_comm: ContextKind = "p2p"

    @property
    def replica(self) -> int:
        """Devices of a replica."""
        return self.tp * self.cp

    @property
    def experts(self) -> int:
        """Devices of an expert group."""
        return self.etp * self.ep

    @property
    def width(self) -> int:
        """Devices of a block, (2)."""
        return max(self.replica, self.experts)

    def divides_copy(self, shards: int) -> bool:
        """Whether a copy that so many replicas share, 0 for all of them, is one of whole blocks, (3)."""
        return shards * self.tp % self.experts == 0

    @property
    def groups(self) -> dict[int, str]:
        """Groups that lie within one node or on whole nodes, the widest first: their names by their devices."""
        names = {self.experts: "expert group", self.replica: "replica", self.width: "block", self.tp: "tensor group"}
        return dict(sorted(names.items(), reverse=True))


def divisors(number: int) -> list[int]:
    """Divisors in ascending order."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def tensor_degrees(model: ModelSpec, cluster: ClusterSpec, max_tp: int, *, replicated_kv: bool = True) -> list[int]:
    """Tensor degrees that divide the devices, the layers and the nodes, (3), and key-value heads unless replicated."""
    sizes = {group.gpus_per_node for group in cluster.nodes}
    every = [tp for tp in divisors(cluster.num_devices) if tp <= max_tp and model.splits(tp) and _fits_nodes(tp, sizes)]
    return [tp for tp in every if replicated_kv or divides_kv(model, tp)]


def divides_kv(model: ModelSpec, tp: int) -> bool:
    """Whether each of ``tp`` tensor ranks has key-value heads of its own in every layer that mixes tokens."""
    layers = (layer for each in model.kinds.values() for layer in (each.together if each.beside else [each]))
    return all(layer.key_value_heads % tp == 0 for layer in layers if layer.mixes)


def context_degrees(
    model: ModelSpec, cluster: ClusterSpec, tp: int, max_cp: int, *, mixer_contexts: bool = True
) -> list[int]:
    """Context degrees that go with a tensor degree, (10); ``mixer_contexts``: whether mixers may have several, (5)."""
    sizes = {group.gpus_per_node for group in cluster.nodes}
    several = [cp for cp in divisors(cluster.num_devices // tp) if 1 < cp <= max_cp and _fits_nodes(tp * cp, sizes)]
    kinds, mixers = model.kinds.values(), [each for layer in model.kinds.values() for each in layer.mixers]
    if any(size % tp for size in sizes) or any(mixer.attends or not mixer_contexts for _, mixer in mixers):
        return [1]
    divided = [cp for cp in several if all(heads % (tp * cp) == 0 for heads, _ in mixers)]
    return [1, *(cp for cp in divided if all(layer.seq % (2 * cp) == 0 for layer in kinds))]


def inner_contexts(tp: int, cp: int, node_size: int) -> int:
    """Context ranks of a replica on one node."""
    return min(cp, max(node_size // tp, 1))


def expert_degrees(model: ModelSpec, cluster: ClusterSpec, replica: BlockShape, devices: int) -> Iterator[BlockShape]:
    """Blocks with several expert ranks, by (1), of so many devices of a stage, whose replicas are given."""
    sizes, tp, width = {group.gpus_per_node for group in cluster.nodes}, replica.tp, replica.width
    if not model.expert_counts or any(size % tp for size in sizes):
        return
    for ep in divisors(min(model.expert_counts))[1:]:
        for etp in sorted({1, tp}):
            held = ep * etp
            nested = held % tp == 0 and (held % width == 0 or width % held == 0) and devices % max(held, width) == 0
            whole = all(count % ep == 0 for count in model.expert_counts)
            if nested and whole and _fits_nodes(held, sizes) and _fits_nodes(max(held, width), sizes):
                yield replica._replace(ep=ep, etp=etp)


def _fits_nodes(tp: int, sizes: set[int]) -> bool:
    inside = all(size % tp == 0 for size in sizes)
    return inside or (len(sizes) == 1 and tp % next(iter(sizes)) == 0)
