"""
Figures of a cluster file that were probably meant in another unit, told by the catalog's hardware.

Rates of a cluster file are Gb/s (1e9 bits per second) in one direction; data sheets state GB/s, an eighth of that
figure, and often both directions together, twice it. Figures of a device are those of one GPU: GiB, TFLOP/s without
sparsity, GB/s. So beside the known figure R of the same device a stated figure r is suspicious where, within a
tolerance,

(1) r = R / 8, of a link: GB/s in one direction;
(2) r = R / 4, r = 2 R or r = 8 R, of a link inside a node: both directions, or eight GPUs together. Between nodes
    the first two are another network, and the last are all cards of a node where one pair was asked for;
(3) 8 r is the rate of one pair of devices between nodes, of the cards of a node together: GB/s. A node with one card
    for eight devices is hardware, so known cards are no measure;
(4) r = 8 R or r = R / 8, of a device: bits for bytes or the reverse, or the sum of eight GPUs; r = R / 1000 or
    r = 1000 R: the next larger or smaller unit; of the link to its host r = 2 R: both directions; and of a peak rate
    r = 2 R: with sparsity. In fp32 eight times the peak is a tensor core's in TF32.

Links are compared with the first node of the catalog that has such a device, the vendor's; a figure near that of any
node or device of the catalog is somebody's hardware. A device is known by its name or by the part before the first
hyphen (``h100`` of ``h100-pcie``) if there is a number in it. Links that were measured are not looked at.
"""

import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

from taut.data.catalog.builtin import catalog_cluster
from taut.data.catalog.devices import catalog_devices, catalog_section
from taut.data.cluster import ClusterSpec, NodeSpec
from taut.data.device import DeviceSpec

MEASURED = ("nccl-tests", "measured")
"""How the source of a cluster begins whose rates inside nodes were measured."""
LINK_TOLERANCE = 0.02
"""Data sheets round, as 900 GB/s for 2 x 448; PCIe 5.0 is an eighth of an H100's NVLink but for 12 %."""
DEVICE_TOLERANCE = 0.1
"""Variants of a GPU differ by a few per cent in clocks and usable memory, none by a factor of two."""
BETWEEN = {8.0: "GB/s in one direction"}
PAIR = {**BETWEEN, 0.125: "Gb/s of all cards of a node"}
INSIDE = {
    **BETWEEN,
    4.0: "GB/s of both directions",
    0.5: "Gb/s of both directions",
    0.125: "Gb/s of eight GPUs together",
}
"""What a link's rate may be meant as, by the factor to the usual one, between and inside nodes, (1) and (2)."""
SMALLER = "an eighth, as where bits are taken for bytes"
MEMORY = {8.0: SMALLER, 0.125: "Gbit, or eight GPUs together", 1000.0: "TB", 0.001: "MB"}
TRAFFIC = {8.0: SMALLER, 0.125: "Gb/s, or eight GPUs together", 1000.0: "TB/s", 0.001: "MB/s"}
HOST = {0.125: "Gb/s", 0.5: "GB/s of both directions"}
PEAK = {
    **{8.0: SMALLER, 0.125: "eight GPUs together", 1000.0: "PFLOP/s", 0.001: "GFLOP/s"},
    0.5: "the rate with sparsity or sums in fp16",
}
"""What a device's memory, memory bandwidth, link to its host and peak rates may be meant as, (4)."""


class _Figure(NamedTuple):
    """A stated figure, the known ones by where they are from, its unit, and what it may be in another unit."""

    field: str
    stated: float
    known: list[tuple[str, float]]
    unit: str
    meant: Mapping[float, str]
    tolerance: float


def warn_of_units(cluster: ClusterSpec, source: str) -> None:
    """Warn in one line, naming its source, of every figure that looks like another unit; it is used as stated."""
    seen: set[str] = set()
    for figure in _figures(cluster):
        doubt = _doubt(figure)
        kind = figure.field.rpartition(".")[2] if figure.field.startswith("nodes.") else figure.field
        if doubt and kind not in seen:
            seen.add(kind)
            warnings.warn(f"{source}: {doubt}", UserWarning, stacklevel=3)


def _figures(cluster: ClusterSpec) -> Iterator[_Figure]:
    """Every figure that has a known one, node by node."""
    pair = None if cluster.bandwidth_matrix is not None else _pair_rate(cluster)
    for number, group in enumerate(cluster.nodes):
        where, link = f"nodes.{number}.", "Gb/s (1e9 bits) in one direction"
        nodes = _catalog_nodes(_family(group.device.name))
        if not cluster.measured_by_device and not cluster.source.startswith(MEASURED):
            inside = [(name, node.intra_bandwidth_gbps) for name, node, _ in nodes]
            field = f"{where}intra_bandwidth_gbps"
            yield _Figure(field, group.intra_bandwidth_gbps, inside, f"{link}, of one GPU", INSIDE, LINK_TOLERANCE)
        if pair is not None:
            networks = [(name, rate) for name, _, rate in nodes if rate is not None]
            unit = f"{link}, of one pair of GPUs"
            meant = BETWEEN if cluster.network.racks else PAIR
            yield _Figure("network.bandwidth_gbps", pair, networks, unit, meant, LINK_TOLERANCE)
            if group.nic_bandwidth_gbps is not None:
                cards, field = [("network.bandwidth_gbps", pair)], f"{where}nic_bandwidth_gbps"
                unit = f"{link}, of all cards of a node"
                yield _Figure(field, group.nic_bandwidth_gbps, cards, unit, BETWEEN, LINK_TOLERANCE)
        yield from _device_figures(group.device, f"{where}device.")


def _pair_rate(cluster: ClusterSpec) -> float | None:
    """Gb/s of a pair of GPUs, inside a rack where racks have their own: between them networks are oversubscribed."""
    inside = [rack.bandwidth_gbps for rack in cluster.network.racks if rack.bandwidth_gbps is not None]
    return max(inside, default=cluster.network.bandwidth_gbps)


def _device_figures(device: DeviceSpec, where: str) -> Iterator[_Figure]:
    """Figures of a device beside those of the catalog's devices of its family."""
    family = _family(device.name)
    known = [one for name, one in catalog_devices().items() if _family(name) == family and _has_number(name)]
    memory = [(one.name, one.memory_gib) for one in known]
    yield _Figure(f"{where}memory_gib", device.memory_gib, memory, "GiB of one GPU", MEMORY, DEVICE_TOLERANCE)
    traffic = [(one.name, one.memory_bandwidth_gbytes) for one in known]
    field, unit = f"{where}memory_bandwidth_gbytes", "GB/s (1e9 bytes) of one GPU"
    yield _Figure(field, device.memory_bandwidth_gbytes, traffic, unit, TRAFFIC, DEVICE_TOLERANCE)
    if device.host_link_gbytes is not None:
        links = [(one.name, one.host_link_gbytes) for one in known if one.host_link_gbytes is not None]
        field, unit = f"{where}host_link_gbytes", "GB/s (1e9 bytes) in one direction, of one GPU"
        yield _Figure(field, device.host_link_gbytes, links, unit, HOST, DEVICE_TOLERANCE)
    for precision, peak in device.peak_tflops.items():
        told = [one for one in known if precision in one.peak_tflops and precision != "fp32"]
        peaks = [(one.name, one.peak_tflops[precision]) for one in told]
        unit = "TFLOP/s of one GPU without sparsity"
        yield _Figure(f"{where}peak_tflops.{precision}", peak, peaks, unit, PEAK, DEVICE_TOLERANCE)


def _doubt(figure: _Figure) -> str | None:
    """What is suspicious of a figure, in words; None where it is near a known one, or near none in any unit."""
    stated, tolerance = figure.stated, figure.tolerance
    if any(abs(stated / usual - 1) <= tolerance for _, usual in figure.known):
        return None
    for name, usual in figure.known[:1] if figure.unit.startswith("Gb/s") else figure.known:
        for factor, other in figure.meant.items():
            if abs(stated * factor / usual - 1) <= tolerance:
                has = f"{name} has {usual:g} {figure.unit.partition(' ')[0]}"
                return f"{figure.field} is {stated:g}, which looks like {other}: {has}; expected {figure.unit}"
    return None


def _family(name: str) -> str:
    """The part of a device's name before the first hyphen, or the whole where that part has no number."""
    first = name.lower().partition("-")[0]
    return first if _has_number(first) else name.lower()


def _has_number(name: str) -> bool:
    return any(sign.isdigit() for sign in name)


@cache
def _catalog_nodes(family: str) -> list[tuple[str, NodeSpec, float | None]]:
    """Name, node and network rate of the catalog's clusters of one node with a device of the family."""
    clusters = (catalog_cluster(name) for name in catalog_section("clusters"))
    return [
        (cluster.name, cluster.nodes[0], cluster.network.bandwidth_gbps)
        for cluster in clusters
        if cluster.num_nodes == 1 and _family(cluster.nodes[0].device.name) == family
    ]
