"""Which devices share a node: from what the processes say of where they run to an order of devices, node by node."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from taut.data.spec import shorten
from taut.errors import DataError, FieldError


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a process runs: its host, and its number among how many there, -1 where the launcher does not say."""

    host: str
    local_rank: int = -1
    local_size: int = -1


def device_order(seats: Sequence[Seat], gpus_per_node: int | None = None) -> tuple[list[int], int]:
    """
    Processes node by node, and how many a node has.

    Nodes are runs of ``gpus_per_node`` processes where it is given; else what the launcher says, where it numbers
    processes node by node; else hosts, in the order of their first process.

    Raises ``DataError`` if nodes have different numbers of processes.
    """
    size = len(seats)
    if gpus_per_node is not None:
        if gpus_per_node < 1 or size % gpus_per_node:
            raise FieldError("gpus_per_node", str(gpus_per_node), f"expected a divisor of the {size} processes")
        return list(range(size)), gpus_per_node
    told = all(seat.local_size > 0 and rank % seat.local_size == seat.local_rank for rank, seat in enumerate(seats))
    node_of = [rank - seat.local_rank if told else seat.host for rank, seat in enumerate(seats)]
    counts = Counter(node_of)
    if len(set(counts.values())) > 1:
        found = shorten(list(counts.values()))
        raise DataError(f"network profile: nodes have {found} processes, expected as many on each")
    place = {node: index for index, node in enumerate(counts)}
    return sorted(range(size), key=lambda rank: place[node_of[rank]]), counts[node_of[0]]
