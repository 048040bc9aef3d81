"""
Link rates that were probably meant in another unit, told by the catalog's nodes of the same device.

Rates of a cluster file are Gb/s (1e9 bits per second) in one direction. Data sheets state GB/s, an eighth of that
figure, and often both directions together, twice it. So a stated rate r is suspicious beside the rate R of the
catalog's node where, within ``TOLERANCE``,

(1) r = R / 8: GB/s in one direction;
(2) r = R / 4 or r = 2 R, inside a node: GB/s or Gb/s of both directions. Between nodes it is another network.
"""

import warnings
from collections.abc import Iterator, Mapping
from functools import cache

from taut.data.catalog.builtin import catalog_cluster
from taut.data.catalog.devices import catalog_section
from taut.data.cluster import ClusterSpec, NodeSpec

TOLERANCE = 0.02
"""Data sheets round, as 900 GB/s for 2 x 448."""
BETWEEN = {8.0: "GB/s in one direction"}
INSIDE = {**BETWEEN, 4.0: "GB/s of both directions", 0.5: "Gb/s of both directions"}
"""What a rate may be meant as, by the factor to the usual one, between and inside nodes, (1) and (2)."""


def warn_of_units(cluster: ClusterSpec, source: str) -> None:
    """
    Warn in one line of every rate that looks like another unit; the rate is used as it is stated.

    Parameters
    ----------
    cluster
        A cluster that a user describes.
    source
        The file or option that the warning names.
    """
    for words in _doubts(cluster):
        warnings.warn(f"{source}: {words}", UserWarning, stacklevel=3)


def _doubts(cluster: ClusterSpec) -> Iterator[str]:
    """What is suspicious, in words, once for each field."""
    seen: set[str] = set()
    for number, group in enumerate(cluster.nodes):
        known = _catalog_nodes().get(group.device.name)
        if known is None:
            continue
        name, node, network = known
        for field, stated, usual, units in (
            ("intra_bandwidth_gbps", group.intra_bandwidth_gbps, node.intra_bandwidth_gbps, INSIDE),
            ("network.bandwidth_gbps", cluster.network.bandwidth_gbps, network, BETWEEN),
        ):
            meant = None if stated is None or usual is None else _meant(stated, usual, units)
            if meant and field not in seen:
                seen.add(field)
                where = field if field.startswith("network") else f"nodes.{number}.{field}"
                yield (
                    f"{where} is {stated:g}, which looks like {meant}: {name} has {usual:g} Gb/s; "
                    "expected Gb/s (1e9 bits) in one direction"
                )


def _meant(stated: float, usual: float, units: Mapping[float, str]) -> str | None:
    """The unit that would make the stated rate the usual one."""
    return next((unit for factor, unit in units.items() if abs(stated * factor / usual - 1) <= TOLERANCE), None)


@cache
def _catalog_nodes() -> dict[str, tuple[str, NodeSpec, float | None]]:
    """Name, node and network rate of the catalog's first cluster of one node, by device."""
    found: dict[str, tuple[str, NodeSpec, float | None]] = {}
    for name in catalog_section("clusters"):
        cluster = catalog_cluster(name)
        if cluster.num_nodes == 1:
            node = cluster.nodes[0]
            found.setdefault(node.device.name, (name, node, cluster.network.bandwidth_gbps))
    return found
