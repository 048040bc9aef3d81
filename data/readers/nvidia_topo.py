r"""
Bandwidth between the devices of one node, from the kinds of its links.

``nvidia-smi topo -m``, ``rocm-smi --showtopo``, ``amd-smi topology`` and NCCL's XML (``NCCL_TOPO_DUMP_FILE``) state
them.

The table has a row and a column per device. A cell names the kind of link :math:`k_{ij}`, and the rate is stated, not
measured: for a bond of m NVLinks at rate :math:`v` each, and the other kinds at their rates :math:`P_k`,

(1) :math:`B_{ij} = m v` where :math:`k_{ij}` is NVm, and :math:`B_{ij} = P_{k_{ij}}` otherwise.

Columns of network cards and affinities, rows of network cards, the legend, terminal escapes and whatever stands
before the table are ignored. ``nvidia-smi topo -mp`` names no NVLink, and a line says so where its legend tells.

The XML is a tree of processors, bridges of PCI Express and devices, and names where the NVLinks of a device end. Links
to a switch reach every device that has some: m are the fewer of both ends'. Without NVLink, devices behind one bridge
are PIX, at one processor PHB, and else SYS. A node's network are its fastest ports of InfiniBand or RoCE in NCCL's
graph, as a search for channels takes the fastest first. What else stands there is left out in one line: interfaces of
sockets, whose speed TCP does not reach, unless they reach the devices' memory (GPUDirect over TCP), and what states no
speed, for which NCCL assumes 10 Gb/s. Source: NVIDIA/nccl, src/graph/topo.cc, search.cc and xml.cc, src/transport.
"""

import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from taut.data.cluster import ClusterSpec, one_node
from taut.data.device import DeviceSpec
from taut.data.read import plain_lines, read_text
from taut.data.spec import shorten
from taut.data.units import GIGABIT, GIGABYTE
from taut.errors import DataError

PCIE_GBPS = {"PIX": 252.0, "PXB": 252.0, "PHB": 210.0, "NODE": 210.0, "SYS": 176.0, "PCIE": 210.0}
"""
Assumed Gb/s in one direction over PCI Express, :math:`P_k` in (1).

PIX, PXB (switches alone): PCI Express 4.0 x16, 16 lanes of 16 GT/s in 128b/130b code: 252. PHB, NODE (through a host
bridge): 252 / 1.2, the overhead that NCCL's ``src/graph/topo.h`` assumes for traffic between devices through an Intel
processor. SYS (between sockets): the 22 GB/s that the same file assumes for the links of Sapphire Rapids. PCIE: what
ROCm's tools call any of these. Cards of another generation have its rate, 126 of PCI Express 3.0 and 504 of 5.0, by the
device's link to its host.
"""

NVLINK_GBPS = 200.0
"""One NVLink in one direction: 25 GB/s in generations 2 to 4 (NVIDIA's V100, A100 and H100); generation 5 has 400."""
BRIDGE_GBPS = 112.5
"""One NVLink of GA102 (RTX A6000, A40, RTX 3090): NVIDIA states 112.5 GB/s of four links in both directions."""

PCIE_4, PCIE_5 = 31.5, 63.0
"""GB/s of 16 lanes of PCI Express in one direction, where a device states no link to its host, and at most."""
XGMI_GBPS = 512.0
"""One link of AMD's Infinity Fabric in one direction: 64 GB/s (MI300X)."""

SLOWEST_PORT, FASTEST_PORT = 10_000, 2_400_000
"""Mb/s of ports with RDMA: four lanes of SDR, or 10 Gb/s Ethernet, to twelve lanes of XDR, the most that NCCL knows."""
_INTERFACE = re.compile(r"(eth|em|ib|bond|team|br|docker|veth|virbr|wlan|lo)\d*|(en|wl)[opsxP]\w+")
"""How Linux names interfaces of networks; those of RDMA are mlx5_0, rocep1s0, bnxt_re0 and the like."""

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_LINK_TYPES = {"rocm-smi --showtopo": "Link Type between two GPUs", "amd-smi topology": "LINK TYPE TABLE"}
"""What stands above the table of link types, by AMD's tools."""
_AMD = re.compile(r"GPU\d+|[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d", re.IGNORECASE)
"""Names of devices in these tables."""
_DEVICE = re.compile(r"GPU\d+")
_NVLINKS = re.compile(r"NV([1-9]\d{0,3})")


_SWITCH = "0x0680"
"""How the class of a switch of NVLinks begins."""


@dataclass(frozen=True, slots=True)
class Topology:
    """Names of devices, the matrix of link kinds (diagonal X), ``nic_gbps`` one way (None: unstated), and the tool."""

    devices: tuple[str, ...]
    kinds: tuple[tuple[str, ...], ...]
    nic_gbps: float | None = None
    tool: str = "nvidia-smi topo -m"


def read_topology(path: Path) -> Topology:
    """Devices and kinds of links of a table of NVIDIA's or AMD's tools, or NCCL's XML; ``DataError`` if it is none."""
    text = _ESCAPE.sub("", read_text(path, "nvidia-smi topo -m output"))
    for tool, above in _LINK_TYPES.items():
        if above in text:
            return _of_amd(text.partition(above)[2], tool, path)
    if text.lstrip().startswith("<"):
        return _of_nccl(text, path)
    lines = enumerate(plain_lines(text), start=1)
    table = [(number, words) for number, line in lines if (words := line.split()) and _DEVICE.fullmatch(words[0])]
    if not table:
        raise DataError(f"{path}: has no table of devices, expected nvidia-smi topo -m output, or that of AMD's tools")
    (_, header), *rows = table
    columns = [k for k, word in enumerate(header) if _DEVICE.fullmatch(word)]
    devices = tuple(header[k] for k in columns)
    named = tuple(words[0] for _, words in rows)
    if named != devices:
        found = ", ".join(named) or "missing"
        raise DataError(f"{path}: the rows of devices are {found}, expected {', '.join(devices)} as the columns are")
    kinds = (_kinds(words, columns, i, f"{path} line {number}") for i, (number, words) in enumerate(rows))
    if "Legend:" in text and "NV#" not in text:
        said = "the legend has no NVLink, which nvidia-smi topo -mp leaves out of its cells; -m prints it"
        warnings.warn(f"{path}: {said}", UserWarning, stacklevel=2)
    return Topology(devices, tuple(kinds))


def _of_amd(text: str, tool: str, path: Path) -> Topology:
    """The table of link types of AMD's tools, whose diagonal is 0 or SELF."""
    table = []
    for line in text.splitlines()[1:]:
        words = line.split()
        if words and not _AMD.fullmatch(words[0]):
            break
        table += [words] if words else []
    header, rows = (table[0], table[1:]) if table else ([], [])
    if not rows or [row[0] for row in rows] != header or any(len(row) != len(header) + 1 for row in rows):
        raise DataError(f"{path}: has no square table of link types, expected {tool} output")
    kinds = tuple(tuple("X" if i == j else kind for j, kind in enumerate(row[1:])) for i, row in enumerate(rows))
    if unknown := {kind for row in kinds for kind in row} - {"X", "XGMI", "PCIE"}:
        raise DataError(f"{path}: has a link of type {min(unknown)!r}, expected XGMI or PCIE")
    return Topology(tuple(header), kinds, tool=tool)


@dataclass(frozen=True, slots=True)
class _Device:
    """A device of NCCL's XML: its bus, the processor and bridges above it, and its NVLinks by the bus they end at."""

    number: int
    bus: str
    above: tuple[str, ...]
    links: Counter[str]
    switched: int


def _of_nccl(text: str, path: Path) -> Topology:
    """Devices and links of NCCL's XML, one host's."""
    expected = "the XML that NCCL writes to NCCL_TOPO_DUMP_FILE"
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise DataError(f"{path}: {error}, expected {expected}") from None
    if root.tag != "system":
        raise DataError(f"{path}: begins with <{root.tag}>, expected {expected}")
    if len(hosts := {cpu.get("host_hash") for cpu in root.iter("cpu")}) > 1:
        raise DataError(f"{path}: has processors of {len(hosts)} hosts, expected one")
    devices = sorted(_devices(root, (), f"{path}"), key=lambda device: device.number)
    if not devices:
        raise DataError(f"{path}: names no device (<gpu>), expected {expected}")
    rows = [[_kind(one, other) for other in devices] for one in devices]
    return Topology(
        tuple(f"GPU{device.number}" for device in devices),
        tuple(map(tuple, rows)),
        _network_gbps(root, path),
        "NCCL's XML",
    )


def _network_gbps(root: ElementTree.Element, path: Path) -> float | None:
    """Gb/s of the ports of a node that are its network, None without one; a warning names what was left out."""
    ports: dict[tuple[str, ...], tuple[str, int]] = {}
    left: dict[str, list[str]] = {}
    for net in root.iter("net"):
        name, guid, port = (net.get(field, "") for field in ("name", "guid", "port"))
        speed = 0 if (net.get("speed") or "-").startswith("-") else _number(net, "speed", f"{path}")
        if why := _unused(net, name, port, speed):
            left.setdefault(why, []).append(name)
        else:
            ports[(guid, port) if guid.strip("0x") else (name,)] = name, speed
    fastest = max((speed for _, speed in ports.values()), default=0)
    if slower := [name for name, speed in ports.values() if speed < fastest]:
        left["slower than others"] = slower
    if left:
        said = "; ".join(f"{shorten(names)} ({why})" for why, names in left.items())
        warnings.warn(f"{path}: the node's network leaves out {said}", UserWarning, stacklevel=4)
    return sum(speed for _, speed in ports.values() if speed == fastest) / 1000 or None


def _unused(net: ElementTree.Element, name: str, port: str, speed: int) -> str:
    """Why NCCL's graph has no network over this port, in words; empty where it has."""
    if not (name and net.get("dev")) or net.get("net") == "0":
        return "no name or number of a device of the network"
    if net.get("gdr") != "1" and (port == "0" or _INTERFACE.fullmatch(name)):
        return "sockets"
    if not SLOWEST_PORT <= speed <= FASTEST_PORT:
        return f"no speed of a port from {SLOWEST_PORT} to {FASTEST_PORT} Mb/s"
    return ""


def _devices(element: ElementTree.Element, above: tuple[str, ...], where: str) -> Iterator[_Device]:
    """Devices below an element, whose own path is ``above``."""
    for child in element:
        if child.tag == "gpu":
            links = Counter[str]()
            switched = 0
            for link in (*child.iter("nvlink"), *child.iter("xgmi")):
                count = _number(link, "count", where)
                if (link.get("tclass") or "").startswith(_SWITCH):
                    switched += count
                else:
                    links[str(link.get("target"))] += count
            yield _Device(_number(child, "dev", where), above[-1] if above else "", above[:-1], links, switched)
        elif child.tag in ("cpu", "pci"):
            name = f"cpu {child.get('numaid')}" if child.tag == "cpu" else str(child.get("busid"))
            yield from _devices(child, (*above, name), where)


def _number(element: ElementTree.Element, name: str, where: str) -> int:
    """A whole number that an attribute states."""
    text = element.get(name) or ""
    if not text.isdecimal():
        raise DataError(f"{where}: <{element.tag}> has {name} {text!r}, expected a whole number")
    return int(text)


def _kind(one: _Device, other: _Device) -> str:
    """The kind of link between two devices of NCCL's XML."""
    if one is other:
        return "X"
    if links := one.links[other.bus] or other.links[one.bus] or min(one.switched, other.switched):
        return f"NV{links}"
    shared = sum(above == below for above, below in zip(one.above, other.above, strict=False))
    return "PIX" if shared > 1 else "PHB" if shared else "SYS"


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
    nvlink_gbps: float | None = None,
    intra_latency_us: float = 3.0,
) -> ClusterSpec:
    """Cluster of one node with a device-by-device matrix, eq. (1), by default at the device's rate of a link."""
    nvlink_gbps = link_gbps(device) if nvlink_gbps is None else nvlink_gbps
    pcie = pcie_rates(device)
    rows = [[_rate(kind, nvlink_gbps, pcie) for kind in row] for row in topology.kinds]
    used = sorted({kind for row in topology.kinds for kind in row} & PCIE_GBPS.keys())
    stated = [f"{nvlink_gbps:g} Gb/s a link", *(f"{kind} {pcie[kind]:g} Gb/s" for kind in used)]
    source = f"{topology.tool}; rates and latency assumed, not measured: {', '.join(stated)}"
    return one_node(
        rows,
        "Gb/s",
        name=name,
        device=device,
        intra_latency_us=intra_latency_us,
        source=source,
        nic_bandwidth_gbps=topology.nic_gbps,
    )


def pcie_rates(device: DeviceSpec) -> dict[str, float]:
    """Gb/s of every kind of link over PCI Express, by the generation of a card."""
    whole = min(device.host_link_gbytes or PCIE_4, PCIE_5) * GIGABYTE / GIGABIT
    bridge = whole / 1.2
    sockets = min(PCIE_GBPS["SYS"], bridge)
    return {"PIX": whole, "PXB": whole, "PHB": bridge, "NODE": bridge, "SYS": sockets, "PCIE": bridge}


def link_gbps(device: DeviceSpec) -> float:
    """Gb/s of one NVLink, or of one link of AMD's, in one direction."""
    name = device.name.lower()
    if name.startswith(("b100", "b200", "b300", "gb200", "gb300")):
        return 2 * NVLINK_GBPS
    if re.search(r"(^|[^a-z0-9])(a40|a4500|a5000|a5500|a6000|3090)([^0-9]|$)", name):
        return BRIDGE_GBPS
    return XGMI_GBPS if name.startswith("mi") else NVLINK_GBPS


def _rate(kind: str, nvlink_gbps: float, pcie: Mapping[str, float]) -> float:
    """Gb/s of a link kind, eq. (1); 0 on the diagonal."""
    bond = _NVLINKS.fullmatch(kind)
    return int(bond[1]) * nvlink_gbps if bond else nvlink_gbps if kind == "XGMI" else pcie.get(kind, 0.0)
