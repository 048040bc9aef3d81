"""Degrees that suit a model and the nodes of a cluster: ``taut.formulations.space`` (3) and (10)."""

from taut.data.cluster import ClusterSpec
from taut.data.model import ModelSpec


def divisors(number: int) -> list[int]:
    """Divisors in ascending order."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def tensor_degrees(model: ModelSpec, cluster: ClusterSpec, max_tp: int) -> list[int]:
    """Tensor degrees that divide the devices, the layers and the nodes, (3)."""
    sizes = {group.gpus_per_node for group in cluster.nodes}
    return [tp for tp in divisors(cluster.num_devices) if tp <= max_tp and model.splits(tp) and _fits_nodes(tp, sizes)]


def context_degrees(model: ModelSpec, cluster: ClusterSpec, tp: int, max_cp: int) -> list[int]:
    """Context degrees that go with a tensor degree, (10)."""
    sizes = {group.gpus_per_node for group in cluster.nodes}
    several = [cp for cp in divisors(cluster.num_devices // tp) if 1 < cp <= max_cp and _fits_nodes(tp * cp, sizes)]
    within = all(size % tp == 0 for size in sizes)
    shared = [cp for cp in several if within and all(layer.seq % (2 * cp) == 0 for layer in model.kinds.values())]
    return [1, *shared]


def _fits_nodes(tp: int, sizes: set[int]) -> bool:
    inside = all(size % tp == 0 for size in sizes)
    return inside or (len(sizes) == 1 and tp % next(iter(sizes)) == 0)
