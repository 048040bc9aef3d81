"""
What is left of a cluster: its nodes by name, without lost ones, with slow ones, and with spare nodes.

A slow node has devices of a type of its own, whose rows in the cost table are those of the type that it is, divided by
the share of its speed that is left.
"""

import math
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from taut.data.arrays import Floats
from taut.data.cluster import ClusterSpec, LatencySpec, MatrixSpec, NetworkSpec, NodeSpec, RackSpec
from taut.data.costs import CostTable
from taut.data.suggest import adjacent, nearest
from taut.errors import FieldError
from taut.formulations.links import Links


class Site(NamedTuple):
    """
    A node that is left.

    ``number`` is its number in the plan's cluster, None of a spare node. Nodes of one ``place`` have equal links;
    ``devices`` are its devices' numbers in the plan's cluster. It runs at a ``share`` of its speed.
    """

    number: int | None
    spec: NodeSpec
    place: tuple[str, int]
    devices: tuple[int, ...]
    share: float = 1.0

    @property
    def slow(self) -> bool:
        """Whether it runs at less than its speed."""
        return self.share < 1.0


def node_number(text: str, count: int, names: Sequence[str] = (), option: str = "without") -> int:
    """
    The number of a node by its name, ``node-17``, ``17``, or one of the given names.

    Raises ``FieldError`` with the nearest right name.
    """
    if text in names:
        return names.index(text)
    known = names or [f"node-{number}" for number in range(count)]
    found = re.fullmatch(r"(?:node-)?(\d{1,9})", text)
    if found and int(found[1]) < count and not names:
        return int(found[1])
    near = nearest(text, known) if found is None or names else f"node-{adjacent(range(count), int(found[1]))}"
    meant = f"; did you mean {near}?" if near else ""
    raise FieldError(option, text, f"is no node of the plan, expected {known[0]} to {known[-1]}{meant}")


def slow_node(text: str, count: int, names: Sequence[str] = ()) -> tuple[int, float]:
    """Number and share of the speed of ``node-4=0.8``."""
    name, equals, share = text.partition("=")
    try:
        speed = float(share)
    except ValueError:
        speed = math.nan
    if not equals or not 0.0 < speed < 1.0:
        raise FieldError("slow", text, "expected NODE=SHARE with a share of its speed above 0 and below 1, such as 0.8")
    return node_number(name, count, names, "slow"), speed


def sites_left(
    cluster: ClusterSpec, without: Sequence[int] = (), slow: Mapping[int, float] | None = None, spares: int = 0
) -> list[Site]:
    """
    The nodes that are left, in the cluster's order, then spare ones, which are like the cluster's first node.

    Raises ``FieldError`` if no node is left, a node is lost and slow, or spare nodes have no known links.
    """
    slow, rack_of = slow or {}, {node: k for k, rack in enumerate(cluster.network.racks) for node in rack.nodes}
    measured = cluster.bandwidth_matrix is not None or cluster.latency_matrix is not None
    if spares and (measured or rack_of or len(cluster.nodes) > 1):
        raise FieldError("spares", str(spares), "expected 0, as the cluster's nodes or links are of several kinds")
    if both := sorted({*without} & {*slow}):
        raise FieldError("slow", f"node-{both[0]}", "is given with --without too, expected one of the two")
    found, first = list[Site](), 0
    for number, spec in enumerate(cluster.node_list):
        devices, first = tuple(range(first, first + spec.gpus_per_node)), first + spec.gpus_per_node
        if number in without:
            continue
        share = slow.get(number)
        if share is not None:
            device = spec.device.model_copy(update={"name": f"{spec.device.name} at {share:g}"})
            spec = spec.model_copy(update={"device": device})
        spec = spec.model_copy(update={"count": 1})
        where = number if measured else rack_of.get(number, -1)
        found.append(Site(number, spec, (spec.model_dump_json(), where), devices, share or 1.0))
    if not found and not spares:
        raise FieldError("without", f"node-{without[0]}", "leaves no node, expected at least one that is left")
    if spares:
        spec = cluster.nodes[0].model_copy(update={"count": 1})
        found += [Site(None, spec, (spec.model_dump_json(), -1), ()) for _ in range(spares)]
    return found


def cluster_of(cluster: ClusterSpec, sites: Sequence[Site]) -> ClusterSpec:
    """The cluster of some of its nodes, in their order, with their racks and measured links."""
    groups = [
        spec.model_copy(update={"count": len([*same])}) for spec, same in groupby(sites, key=lambda site: site.spec)
    ]
    numbers = [site.number for site in sites]
    place = {number: k for k, number in enumerate(numbers) if number is not None}
    racks = [
        RackSpec(**rack.model_dump() | {"nodes": [place[node] for node in rack.nodes if node in place]})
        for rack in cluster.network.racks
    ]
    network = NetworkSpec(**cluster.network.model_dump() | {"racks": [rack for rack in racks if rack.nodes]})
    few = f"{len(sites)} node{'s' * (len(sites) > 1)}"
    changes: dict[str, Any] = {"name": f"{few} of {cluster.name}", "nodes": groups, "network": network}
    if (rates := cluster.bandwidth_matrix) is not None:
        changes["bandwidth_matrix"] = MatrixSpec(unit=rates.unit, rows=_part(rates.rows, cluster, sites))
    if (latencies := cluster.latency_matrix) is not None:
        changes["latency_matrix"] = LatencySpec(rows_us=_part(latencies.rows_us, cluster, sites))
    return ClusterSpec.parse({**cluster.model_dump(), **{k: _plain(v) for k, v in changes.items()}}, "what is left")


def _plain(value: Any) -> Any:
    """Plain values of specs."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.model_dump() if hasattr(value, "model_dump") else value


def _part(rows: list[list[float]], cluster: ClusterSpec, sites: Sequence[Site]) -> list[list[float]]:
    """Rows and columns of a matrix by node, or by device, that are left."""
    by_node = len(rows) == cluster.num_nodes
    kept = [site.number for site in sites] if by_node else [device for site in sites for device in site.devices]
    return [[rows[i][j] for j in kept if j is not None] for i in kept if i is not None]


def slowed_costs(costs: CostTable, speeds: Mapping[str, tuple[str, float]]) -> CostTable:
    """The table with rows of slow types as well: by their names the type that they are, and the share of its speed."""
    rows, optimizer = [*costs.rows], dict(costs.optimizer_s_per_parameter)
    names = "forward_s", "input_grad_s", "weight_grad_s"
    for name, (device, share) in speeds.items():
        for row in costs.rows:
            if row.device == device:
                slower = {each: getattr(row, each) / share for each in names}
                rows.append(row.model_copy(update={"device": name, **slower}))
        if device in optimizer:
            optimizer[name] = optimizer[device] / share
    told = ", ".join(f"{name} from {device}" for name, (device, _) in speeds.items())
    words = f"{costs.basis}; slow nodes in proportion: {told}" if speeds else costs.basis
    return costs.model_copy(update={"rows": rows, "optimizer_s_per_parameter": optimizer, "basis": words})


def card_rates(links: Links) -> Floats:
    """Bytes per second of all cards of every node (nodes,): as stated, or what its devices send at most at once."""
    rate, found = links.rate, links.cards.copy()
    for node in np.flatnonzero(np.isinf(found)):
        sites, others = np.flatnonzero(links.node_of_site == node), np.flatnonzero(links.node_of_site != node)
        fastest = max((float(rate[a, others].max(initial=0.0)) for a in sites), default=0.0)
        found[node] = fastest * links.gpus_per_node[node] or np.inf
    return found
