r"""
On what is trained: nodes of devices and the links between any two of them.

Devices are numbered node by node in file order. The bandwidth from device i to device j (bytes per second, alone on
the link) and the latency (seconds) are given in one of two ways:

(1) levels: inside a node, between nodes of one rack, between racks;
(2) a measured matrix of either, node by node or device by device, which may be asymmetric: row sends to column, the
    diagonal is ignored. A node-by-node matrix keeps the node's own figure inside it.

A node may state ``nic_bandwidth_gbps``, the sum of its network cards: ``taut.formulations.links`` shares it among
the transfers that leave the node at the same time. ``host_memory_gbytes`` is the rate of its hosts' memory, which its
GPUs share where they offload optimizer states, and of which updates reach the share ``host_memory_efficiency``;
``host_memory_gib`` is its size, which bounds activations there (``taut.formulations.mechanisms.offload``).
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from taut.data.device import DeviceSpec, Fraction
from taut.data.spec import LATER, GrownSpec, NotNegative, Positive, Spec
from taut.data.suggest import one_of
from taut.data.units import GIGABIT, GIGABYTE, MEGABYTE, MICROSECOND
from taut.errors import DataError

if TYPE_CHECKING:
    from networkx import DiGraph

NodeCount = Annotated[int, Field(gt=0, strict=True)]
MOST_NODES = 16_384
"""Nodes of a cluster: 12,500 were planned, see the results of the documentation."""
UNIT_BYTES = {"B/s": 1.0, "MB/s": MEGABYTE, "GB/s": GIGABYTE, "Gb/s": GIGABIT}
Unit = Literal["B/s", "MB/s", "GB/s", "Gb/s"]


class NodeSpec(GrownSpec):
    """
    ``count`` equal nodes: devices of one type (described, or a catalog name) and the links inside.

    A node is what NVLink or a PCIe switch spans. It is one machine, unless ``gpus_per_machine`` says that it is
    several: 4 GPUs are in each of the 18 machines of an NVL72. Processes are started machine by machine.

    Rates are Gb/s (1e9 bits per second) in one direction: an eighth of the figure is GB/s, and data sheets often state
    both directions together.
    """

    count: NodeCount = 1
    device: DeviceSpec
    gpus_per_node: Annotated[int, Field(gt=0, le=1024, strict=True)]
    gpus_per_machine: Annotated[
        int | None,
        Field(gt=0, le=1024, strict=True, description="GPUs of one machine of a node that spans several"),
        LATER,
    ] = None
    intra_bandwidth_gbps: Annotated[
        Positive,
        Field(description="Gb/s in one direction from one GPU of the node to another; 2400 for an A100's NVLink"),
    ]
    intra_latency_us: Annotated[NotNegative, Field(description="Microseconds of a message inside the node")] = 0.0
    nic_bandwidth_gbps: Annotated[
        Positive | None,
        Field(description="Gb/s in one direction of all network cards of a node together, not of one card"),
    ] = None
    host_memory_gbytes: Annotated[
        Positive | None,
        Field(description="GB/s (1e9 bytes) of the memory of all processors of a node together"),
        LATER,
    ] = None
    host_memory_efficiency: Annotated[Fraction, LATER] = 0.24
    host_memory_gib: Annotated[
        Positive | None,
        Field(description="GiB of the memory of all processors of a node together"),
        LATER,
    ] = None

    @model_validator(mode="after")
    def _whole_machines(self) -> "NodeSpec":
        if self.gpus_per_node % self.machine_size:
            raise ValueError(
                f"gpus_per_machine: is {self.machine_size}, expected a divisor of gpus_per_node = {self.gpus_per_node}"
            )
        return self

    @property
    def machine_size(self) -> int:
        """GPUs of a machine: of the whole node unless it spans several."""
        return self.gpus_per_machine or self.gpus_per_node

    @property
    def machines(self) -> int:
        """Machines of a node."""
        return self.gpus_per_node // self.machine_size

    @property
    def host_update(self) -> float | None:
        """Bytes per second of host memory that updates of one GPU's parameters reach; None where it is not stated."""
        rate = self.host_memory_gbytes
        return None if rate is None else self.host_memory_efficiency * rate * GIGABYTE / self.gpus_per_node

    @field_validator("device", mode="before")
    @classmethod
    def _from_catalog(cls, device: Any) -> Any:
        # The catalog is read with these specs, so it is imported when one is wanted.
        from taut.data.catalog.devices import catalog_device, catalog_section

        if not isinstance(device, str):
            return device
        if device not in catalog_section("devices"):
            raise ValueError(f"is {device!r}, expected {one_of(device, catalog_section('devices'))}")
        return catalog_device(device)


class RackSpec(Spec):
    """
    Nodes that share a switch, and the rate between any two of them where it differs.

    ``nodes`` is a list of numbers, or a range such as ``0-7``.
    """

    nodes: list[Annotated[int, Field(ge=0, strict=True)]]
    bandwidth_gbps: Positive | None = None
    latency_us: NotNegative | None = None

    @field_validator("nodes", mode="before")
    @classmethod
    def _range(cls, nodes: Any) -> Any:
        if not isinstance(nodes, str):
            return nodes
        first, dash, last = nodes.partition("-")
        numbers = [int(part) for part in (first, last) if part.isdecimal() and len(part) < 6]
        if not (dash and len(numbers) == 2 and numbers[0] <= numbers[1]):
            raise ValueError(f"is {nodes!r}, expected a list of node numbers or a range such as '0-7'")
        return list(range(numbers[0], numbers[1] + 1))


class NetworkSpec(Spec):
    """
    Links between nodes.

    ``bandwidth_gbps`` and ``latency_us`` hold between any two nodes. With ``racks`` they hold between racks, and a rack
    may state its own figures. A rate is the rate of one pair of devices when nothing else sends, as a rule the rate of
    one network card.
    """

    bandwidth_gbps: Annotated[
        Positive | None,
        Field(description="Gb/s in one direction from one GPU of a node to one of another, alone: as a rule one card"),
    ] = None
    latency_us: Annotated[NotNegative, Field(description="Microseconds of a message between nodes")] = 0.0
    racks: list[RackSpec] = []

    @field_validator("racks", mode="before")
    @classmethod
    def _short_racks(cls, racks: Any) -> Any:
        if not isinstance(racks, list):
            return racks
        return [{"nodes": rack} if isinstance(rack, list) else rack for rack in racks]


class MatrixSpec(Spec):
    """A measured bandwidth matrix: one row per node or per device, row sends to column, in ``unit``."""

    unit: Unit
    rows: list[list[float]]

    @field_validator("rows")
    @classmethod
    def _positive(cls, rows: list[list[float]]) -> list[list[float]]:
        return _square(rows, lambda entry: entry > 0, "a bandwidth > 0")


class LatencySpec(Spec):
    """A measured latency matrix: one row per node or per device, row to column, in microseconds."""

    rows_us: list[list[float]]

    @field_validator("rows_us")
    @classmethod
    def _not_negative(cls, rows: list[list[float]]) -> list[list[float]]:
        return _square(rows, lambda entry: entry >= 0, "a latency of at least 0")


def _square(rows: list[list[float]], is_right: Callable[[float], bool], expected: str) -> list[list[float]]:
    """The rows of a square matrix, whose entries off the diagonal are right."""
    for i, row in enumerate(rows):
        if len(row) != len(rows):
            raise ValueError(f"row {i} has {len(row)} entries, expected {len(rows)} as there are rows")
        for j, entry in enumerate(row):
            if i != j and not (math.isfinite(entry) and is_right(entry)):
                raise ValueError(f"row {i} column {j} is {entry}, expected {expected}")
    return rows


class ClusterSpec(Spec):
    """A cluster: its nodes in order, and the network between them."""

    name: str
    nodes: list[NodeSpec]
    network: NetworkSpec = NetworkSpec()
    bandwidth_matrix: MatrixSpec | None = None
    latency_matrix: LatencySpec | None = None
    source: str = ""

    @model_validator(mode="after")
    def _consistent(self) -> "ClusterSpec":
        if not self.nodes:
            raise ValueError("nodes: is an empty list, expected at least one node")
        if self.num_nodes > MOST_NODES:
            raise ValueError(f"nodes: {self.num_nodes} in all, expected at most {MOST_NODES}")
        if self.bandwidth_matrix is None and self.num_nodes > 1 and self.network.bandwidth_gbps is None:
            raise ValueError("network.bandwidth_gbps: missing, expected with more than one node")
        for name, size in self._measured_sizes.items():
            if size not in (self.num_nodes, self.num_devices):
                expected = f"{self.num_nodes} (one per node) or {self.num_devices} (one per device)"
                raise ValueError(f"{name}: has {size} rows, expected {expected}")
        self._check_racks()
        self._check_device_names()
        return self

    def _check_racks(self) -> None:
        seen: set[int] = set()
        for index, rack in enumerate(self.network.racks):
            for node in rack.nodes:
                if node >= self.num_nodes or node in seen:
                    fault = "named twice" if node in seen else f"expected below {self.num_nodes}"
                    raise ValueError(f"network.racks.{index}: node {node}, {fault}")
                seen.add(node)

    def _check_device_names(self) -> None:
        named: dict[str, DeviceSpec] = {}
        for group in self.nodes:
            if named.setdefault(group.device.name, group.device) != group.device:
                raise ValueError(f"nodes: device {group.device.name!r} is described in two ways")

    @property
    def num_nodes(self) -> int:
        """Nodes in the cluster."""
        return sum(group.count for group in self.nodes)

    @property
    def num_devices(self) -> int:
        """Devices in the cluster."""
        return sum(group.count * group.gpus_per_node for group in self.nodes)

    @property
    def machine_list(self) -> list[NodeSpec]:
        """The group of every machine, in the order of its devices."""
        return [group for group in self.node_list for _ in range(group.machines)]

    @property
    def is_uniform(self) -> bool:
        """Whether all nodes and all links between them are alike."""
        measured = self.bandwidth_matrix is not None or self.latency_matrix is not None
        racks = self.network is not None and bool(self.network.racks)
        return len(self.nodes) == 1 and not measured and not racks

    @property
    def node_list(self) -> list[NodeSpec]:
        """The group of every node, in node order."""
        return [group for group in self.nodes for _ in range(group.count)]

    @property
    def devices(self) -> dict[str, DeviceSpec]:
        """The device types by name, in order of first use."""
        return {group.device.name: group.device for group in self.nodes}

    @property
    def _measured_sizes(self) -> dict[str, int]:
        """Rows of the matrices that were measured, by field."""
        rates, latencies = self.bandwidth_matrix, self.latency_matrix
        sizes = {"bandwidth_matrix": len(rates.rows)} if rates is not None else {}
        return sizes | ({"latency_matrix": len(latencies.rows_us)} if latencies is not None else {})

    @property
    def measured_by_device(self) -> bool:
        """Whether a matrix has one row per device rather than per node."""
        return any(size != self.num_nodes for size in self._measured_sizes.values())

    def to_networkx(self) -> "DiGraph[int]":
        """
        The links as a directed graph of networkx, to look into and to hand to other tools.

        A graph node is a node of the cluster, or a device where links were measured device by device; an edge a -> b
        carries what a sends to b: ``bandwidth`` in bytes per second of one pair of devices alone, ``latency`` in
        seconds. Attributes of a graph node: ``node``, ``device`` (its type), ``devices`` (their numbers), ``rack``
        (None outside of racks), and of the node ``intra_bandwidth``, ``intra_latency`` and ``nic_bandwidth`` (all cards
        together; None where it is not stated).

        Examples
        --------
        >>> from taut.data.load import load_cluster
        >>> graph = load_cluster("dgx-a100:2").to_networkx()
        >>> graph.nodes[1]["devices"], graph.edges[0, 1]["bandwidth"]
        ([8, 9, 10, 11, 12, 13, 14, 15], 25000000000.0)
        """
        return _graph(self)

    def scaled(self, factor: int) -> "ClusterSpec":
        """The cluster with so many times the nodes, at the slowest stated network rate, without matrices and racks."""
        slowest = self.network.bandwidth_gbps or min(group.intra_bandwidth_gbps for group in self.nodes)
        groups = [group.model_copy(update={"count": group.count * factor}) for group in self.nodes]
        network = NetworkSpec(bandwidth_gbps=slowest, latency_us=self.network.latency_us)
        return ClusterSpec(name=f"{self.name} x{factor}", nodes=groups, network=network)


def _graph(cluster: ClusterSpec) -> "DiGraph[int]":
    """The graph of ``ClusterSpec.to_networkx``."""
    from networkx import DiGraph

    graph: DiGraph[int] = DiGraph(name=cluster.name)
    sites = list(_sites(cluster))
    graph.add_nodes_from(enumerate(sites))
    for a, one in enumerate(sites):
        for b, other in enumerate(sites):
            if a != b:
                graph.add_edge(a, b, bandwidth=_bandwidth(cluster, one, other), latency=_latency(cluster, one, other))
    return graph


def _sites(cluster: ClusterSpec) -> list[dict[str, Any]]:
    """Attributes of every graph node."""
    rack_of = {node: number for number, rack in enumerate(cluster.network.racks) for node in rack.nodes}
    sites, first = [], 0
    for number, group in enumerate(cluster.node_list):
        cards = group.nic_bandwidth_gbps
        about = {
            "node": number,
            "device": group.device.name,
            "rack": rack_of.get(number),
            "intra_bandwidth": group.intra_bandwidth_gbps * GIGABIT,
            "intra_latency": group.intra_latency_us * MICROSECOND,
            "nic_bandwidth": None if cards is None else cards * GIGABIT,
        }
        devices = list(range(first, first + group.gpus_per_node))
        shares = [[device] for device in devices] if cluster.measured_by_device else [devices]
        sites += [{**about, "devices": share} for share in shares]
        first += group.gpus_per_node
    return sites


def _bandwidth(cluster: ClusterSpec, one: dict[str, Any], other: dict[str, Any]) -> float:
    """Bytes per second from one site to another."""
    matrix = cluster.bandwidth_matrix
    rows, unit = (None, GIGABIT) if matrix is None else (matrix.rows, UNIT_BYTES[matrix.unit])
    return _between(cluster, rows, unit, ("intra_bandwidth", "bandwidth_gbps"), (one, other))


def _latency(cluster: ClusterSpec, one: dict[str, Any], other: dict[str, Any]) -> float:
    """Seconds of a message from one site to another."""
    rows = None if cluster.latency_matrix is None else cluster.latency_matrix.rows_us
    return _between(cluster, rows, MICROSECOND, ("intra_latency", "latency_us"), (one, other))


def _between(
    cluster: ClusterSpec,
    rows: list[list[float]] | None,
    unit: float,
    fields: tuple[str, str],
    sites: tuple[dict[str, Any], dict[str, Any]],
) -> float:
    """A figure between two sites: measured, inside a node, by rack, or the network's."""
    one, other = sites
    if rows is not None and len(rows) == cluster.num_devices:
        return float(rows[one["devices"][0]][other["devices"][0]] * unit)
    if one["node"] == other["node"]:
        return float(one[fields[0]])
    return float((_level(cluster, fields[1], *sites) if rows is None else rows[one["node"]][other["node"]]) * unit)


def _level(cluster: ClusterSpec, field: str, one: dict[str, Any], other: dict[str, Any]) -> float:
    """The rack's own figure where both nodes are in it and it states one, else the network's."""
    figure = getattr(cluster.network, field)
    if one["rack"] is not None and one["rack"] == other["rack"]:
        own = getattr(cluster.network.racks[one["rack"]], field)
        figure = figure if own is None else own
    return float(figure)


def one_node(
    rows: Sequence[Sequence[float]],
    unit: Unit,
    *,
    name: str,
    device: DeviceSpec,
    intra_latency_us: float,
    source: str,
    nic_bandwidth_gbps: float | None = None,
) -> ClusterSpec:
    """Cluster of one node with a device-by-device matrix of bandwidths; ``DataError`` of fewer than two devices."""
    if len(rows) < 2:
        raise DataError(f"{name}: has {len(rows)} devices, expected at least two, with a link between them")
    slowest = min(rate for i, row in enumerate(rows) for j, rate in enumerate(row) if i != j)
    node = {
        "device": device,
        "gpus_per_node": len(rows),
        "intra_bandwidth_gbps": slowest * UNIT_BYTES[unit] / GIGABIT,
        "intra_latency_us": intra_latency_us,
        "nic_bandwidth_gbps": nic_bandwidth_gbps,
    }
    matrix = {"unit": unit, "rows": [list(row) for row in rows]}
    return ClusterSpec.parse({"name": name, "nodes": [node], "bandwidth_matrix": matrix, "source": source}, name)
