r"""
Bandwidth between the devices of one node, from the link kinds of ``nvidia-smi topo -m``.

The table has a row and a column per device. A cell names the kind of link :math:`k_{ij}`, and the rate is stated, not
measured: for a bond of m NVLinks at rate :math:`v` each, and the other kinds at their rates :math:`P_k`,

(1) :math:`B_{ij} = m v` where :math:`k_{ij}` is NVm, and :math:`B_{ij} = P_{k_{ij}}` otherwise.

Columns of network cards and affinities, rows of network cards, the legend, terminal escapes and whatever stands
before the table are ignored.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from taut.data.cluster import ClusterSpec
from taut.data.device import DeviceSpec
from taut.data.read import read_text
from taut.data.readers.single_node import one_node
from taut.errors import DataError

PCIE_GBPS = {"PIX": 252.0, "PXB": 252.0, "PHB": 210.0, "NODE": 210.0, "SYS": 176.0}
"""
Assumed Gb/s in one direction over PCI Express, :math:`P_k` in (1).

PIX, PXB (switches alone): PCI Express 4.0 x16, 16 lanes of 16 GT/s in 128b/130b code: 252. PHB, NODE (through a host
bridge): 252 / 1.2, the overhead that NCCL's ``src/graph/topo.h`` assumes for traffic between devices through an Intel
processor. SYS (between sockets): the 22 GB/s that the same file assumes for the links of Sapphire Rapids.
"""

NVLINK_GBPS = 200.0
"""One NVLink in one direction: 25 GB/s in generations 2 to 4 (NVIDIA's V100, A100 and H100); generation 5 has 400."""

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_DEVICE = re.compile(r"GPU\d+")
_NVLINKS = re.compile(r"NV([1-9]\d{0,3})")


@dataclass(frozen=True, slots=True)
class Topology:
    """The devices' names and the matrix of link kinds between them; the diagonal is X."""

    devices: tuple[str, ...]
    kinds: tuple[tuple[str, ...], ...]


def read_topology(path: Path) -> Topology:
    """
    Read the table of ``nvidia-smi topo -m``.

    ``path``: the table as text. Returns devices and the kinds of their links. Raises ``DataError`` if there is no
    table, its rows do not match its columns, or a link kind is unknown.
    """
    lines = enumerate(_ESCAPE.sub("", read_text(path, "nvidia-smi topo -m output")).splitlines(), start=1)
    table = [(number, words) for number, line in lines if (words := line.split()) and _DEVICE.fullmatch(words[0])]
    if not table:
        raise DataError(f"{path}: has no table of devices, expected nvidia-smi topo -m output")
    (_, header), *rows = table
    columns = [k for k, word in enumerate(header) if _DEVICE.fullmatch(word)]
    devices = tuple(header[k] for k in columns)
    named = tuple(words[0] for _, words in rows)
    if named != devices:
        found = ", ".join(named) or "missing"
        raise DataError(f"{path}: the rows of devices are {found}, expected {', '.join(devices)} as the columns are")
    kinds = (_kinds(words, columns, i, f"{path} line {number}") for i, (number, words) in enumerate(rows))
    return Topology(devices, tuple(kinds))


def _kinds(words: list[str], columns: list[int], own: int, where: str) -> tuple[str, ...]:
    """Link kinds of one row; its first word is its name."""
    if len(words) - 1 <= columns[-1]:
        raise DataError(f"{where}: {words[0]} has {len(words) - 1} cells, expected at least {columns[-1] + 1}")
    found = tuple(words[k + 1] for k in columns)
    for j, kind in enumerate(found):
        known = kind in PCIE_GBPS or _NVLINKS.fullmatch(kind)
        if kind != "X" if j == own else not known:
            wanted = "X" if j == own else f"one of {', '.join(PCIE_GBPS)}, or NV and a number"
            raise DataError(f"{where}: {words[0]} column {j + 1} is {kind!r}, expected {wanted}")
    return found


def cluster_from_topology(
    topology: Topology,
    *,
    name: str,
    device: DeviceSpec,
    nvlink_gbps: float = NVLINK_GBPS,
    intra_latency_us: float = 3.0,
) -> ClusterSpec:
    """
    Cluster of one node with the stated rate of every link, eq. (1).

    ``topology``: the kinds of links; ``nvlink_gbps``: Gb/s of one NVLink in one direction; ``name``, ``device``,
    ``intra_latency_us``: what the table does not say; the latency is an assumption unless the caller knows better.
    Returns one node with a device-by-device matrix. Raises ``DataError`` if there are fewer than two devices or a
    figure is out of range.
    """
    rows = [[_rate(kind, nvlink_gbps) for kind in row] for row in topology.kinds]
    used = sorted({kind for row in topology.kinds for kind in row} & PCIE_GBPS.keys())
    stated = [f"{nvlink_gbps:g} Gb/s an NVLink", *(f"{kind} {PCIE_GBPS[kind]:g} Gb/s" for kind in used)]
    source = f"nvidia-smi topo -m; rates and latency assumed, not measured: {', '.join(stated)}"
    return one_node(rows, "Gb/s", name=name, device=device, intra_latency_us=intra_latency_us, source=source)


def _rate(kind: str, nvlink_gbps: float) -> float:
    """Gb/s of a link kind, eq. (1); 0 on the diagonal."""
    bond = _NVLINKS.fullmatch(kind)
    return int(bond[1]) * nvlink_gbps if bond else PCIE_GBPS.get(kind, 0.0)
