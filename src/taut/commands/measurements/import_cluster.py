"""``taut import``: cluster files from what other tools print. One command a tool; the readers are in ``taut.data``."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from taut.data.cluster import ClusterSpec

importer = typer.Typer(help="Build a cluster file or a cost table from another tool's output.", no_args_is_help=True)

DeviceOption = Annotated[str, typer.Option(help="Device type of every node: of the catalog, or a YAML file of one.")]
OutOption = Annotated[Path, typer.Option(help="Cluster file to write.")]
NameOption = Annotated[str, typer.Option(help="Name of the cluster; default: the file's.")]


@importer.command()
def mpigraph(
    path: Annotated[Path, typer.Argument(help="mpiGraph's text, or a CSV matrix in MB/s (row sends to column).")],
    device: DeviceOption,
    gpus_per_node: Annotated[int, typer.Option(help="Devices of every node.")],
    intra_bandwidth_gbps: Annotated[float, typer.Option(help="Gb/s (1e9 bits) of one device to another, one way.")],
    out: OutOption,
    intra_latency_us: Annotated[float, typer.Option(help="Latency inside a node (assumed).")] = 3.0,
    latency_us: Annotated[float, typer.Option(help="Latency between nodes (assumed).")] = 5.0,
    name: NameOption = "",
) -> None:
    """Build a cluster from mpiGraph output."""
    from taut.data.load import load_device
    from taut.data.readers.mpigraph import cluster_from_mpigraph, read_mpigraph

    cluster = cluster_from_mpigraph(
        read_mpigraph(path),
        name=name or path.stem,
        device=load_device(device, "--device"),
        gpus_per_node=gpus_per_node,
        intra_bandwidth_gbps=intra_bandwidth_gbps,
        intra_latency_us=intra_latency_us,
        latency_us=latency_us,
    )
    _write_cluster(cluster, out)


@importer.command(name="nccl-tests")
def nccl_tests(
    path: Annotated[Path, typer.Argument(help="What an nccl-tests program printed, or its JSON (-J).")],
    device: DeviceOption,
    out: OutOption,
    nodes: Annotated[
        int | None, typer.Option(help="Nodes of the cluster; default: the run's hosts. 1: all in one NVLink domain.")
    ] = None,
    gpus_per_node: Annotated[int | None, typer.Option(help="Devices of every node; default: a host's ranks.")] = None,
    intra_bandwidth_gbps: Annotated[
        float | None, typer.Option(help="Gb/s of one device to another of its node, one way, if not the run's.")
    ] = None,
    intra_latency_us: Annotated[
        float | None, typer.Option(help="Latency inside a node, if not the run's; 3 where not measured.")
    ] = None,
    bandwidth_gbps: Annotated[
        float | None, typer.Option(help="Gb/s of one pair of devices between nodes, one way, if not the run's.")
    ] = None,
    latency_us: Annotated[
        float | None, typer.Option(help="Latency between nodes, if not the run's; 5 where not measured.")
    ] = None,
    nic_bandwidth_gbps: Annotated[
        float | None, typer.Option(help="Gb/s of all network cards of a node, one way, if not the run's.")
    ] = None,
    collective: Annotated[str, typer.Option(help="Such as all_reduce, where an old version does not say.")] = "",
    name: NameOption = "",
) -> None:
    """Build a cluster from an all_reduce, all_gather, reduce_scatter or sendrecv run of nccl-tests."""
    from taut.data.load import load_device
    from taut.data.readers.nccl_tests import cluster_from_nccltests, latency_assumed, read_nccltests

    run = read_nccltests(path, collective)
    if words := latency_assumed(run):
        warnings.warn(f"{path}: {words}", UserWarning, stacklevel=2)
    cluster = cluster_from_nccltests(
        run,
        name=name or path.stem,
        device=load_device(device, "--device"),
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        intra_bandwidth_gbps=intra_bandwidth_gbps,
        intra_latency_us=intra_latency_us,
        bandwidth_gbps=bandwidth_gbps,
        latency_us=latency_us,
        nic_bandwidth_gbps=nic_bandwidth_gbps,
    )
    _write_cluster(cluster, out)


@importer.command()
def nvbandwidth(
    path: Annotated[Path, typer.Argument(help="What nvbandwidth printed on one node, as text or JSON (-j).")],
    device: DeviceOption,
    out: OutOption,
    test: Annotated[str, typer.Option(help="Test to read; default: device_to_device_memcpy_read_ce or its like.")] = "",
    intra_latency_us: Annotated[float, typer.Option(help="Latency inside the node (assumed).")] = 3.0,
    name: NameOption = "",
) -> None:
    """Build a cluster of one node from nvbandwidth's matrix between its devices."""
    from taut.data.load import load_device
    from taut.data.readers.nvbandwidth import cluster_from_nvbandwidth, read_nvbandwidth

    cluster = cluster_from_nvbandwidth(
        read_nvbandwidth(path, test),
        name=name or path.stem,
        device=load_device(device, "--device"),
        intra_latency_us=intra_latency_us,
    )
    _write_cluster(cluster, out)


@importer.command()
def topo(
    path: Annotated[
        Path, typer.Argument(help="What nvidia-smi topo -m or rocm-smi --showtopo printed, or NCCL's XML.")
    ],
    device: DeviceOption,
    out: OutOption,
    nvlink_gbps: Annotated[
        float | None, typer.Option(help="Gb/s of one link, one way; default: NVLink 200, Blackwell's 400, AMD's 512.")
    ] = None,
    intra_latency_us: Annotated[float, typer.Option(help="Latency inside the node (assumed).")] = 3.0,
    name: NameOption = "",
) -> None:
    """Build a cluster of one node from its link kinds, at stated rates."""
    from taut.data.load import load_device
    from taut.data.readers.nvidia_topo import cluster_from_topology, read_topology

    cluster = cluster_from_topology(
        read_topology(path),
        name=name or path.stem,
        device=load_device(device, "--device"),
        nvlink_gbps=nvlink_gbps,
        intra_latency_us=intra_latency_us,
    )
    _write_cluster(cluster, out)


@importer.command()
def ibstat(
    path: Annotated[Path, typer.Argument(help="What ibstat printed on one node.")],
    device: DeviceOption,
    gpus_per_node: Annotated[int, typer.Option(help="Devices of every node.")],
    intra_bandwidth_gbps: Annotated[float, typer.Option(help="Gb/s of one device to another of its node, one way.")],
    out: OutOption,
    nodes: Annotated[int, typer.Option(help="Nodes with such cards.")] = 1,
    link_layer: Annotated[str, typer.Option(help="InfiniBand or Ethernet; default: the first that is up.")] = "",
    intra_latency_us: Annotated[float, typer.Option(help="Latency inside a node (assumed).")] = 3.0,
    latency_us: Annotated[float, typer.Option(help="Latency between nodes (assumed).")] = 5.0,
    name: NameOption = "",
) -> None:
    """Build a cluster from the network cards that ibstat lists on one of its nodes."""
    from taut.data.load import load_device
    from taut.data.readers.ibstat import cluster_from_ibstat, read_ibstat

    cluster = cluster_from_ibstat(
        read_ibstat(path),
        name=name or path.stem,
        device=load_device(device, "--device"),
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        intra_bandwidth_gbps=intra_bandwidth_gbps,
        link_layer=link_layer,
        intra_latency_us=intra_latency_us,
        latency_us=latency_us,
    )
    _write_cluster(cluster, out)


@importer.command()
def slurm(
    path: Annotated[Path, typer.Argument(help="Slurm's topology.conf or topology.yaml, a tree or blocks.")],
    device: DeviceOption,
    gpus_per_node: Annotated[int, typer.Option(help="Devices of every node.")],
    intra_bandwidth_gbps: Annotated[float, typer.Option(help="Gb/s of one device to another of its node, one way.")],
    bandwidth_gbps: Annotated[float, typer.Option(help="Gb/s of one pair of devices between racks, one way.")],
    out: OutOption,
    rack_bandwidth_gbps: Annotated[
        float | None, typer.Option(help="The same behind one leaf switch or in one block; default: as between racks.")
    ] = None,
    nic_bandwidth_gbps: Annotated[float | None, typer.Option(help="Gb/s of all network cards of a node.")] = None,
    intra_latency_us: Annotated[float, typer.Option(help="Latency inside a node (assumed).")] = 3.0,
    latency_us: Annotated[float, typer.Option(help="Latency between nodes (assumed).")] = 5.0,
    name: NameOption = "",
) -> None:
    """Build a cluster of racks from Slurm's topology, at stated rates."""
    from taut.data.load import load_device
    from taut.data.readers.slurm_topology import cluster_from_slurm, read_slurm_topology

    cluster = cluster_from_slurm(
        read_slurm_topology(path),
        name=name or path.stem,
        device=load_device(device, "--device"),
        gpus_per_node=gpus_per_node,
        intra_bandwidth_gbps=intra_bandwidth_gbps,
        bandwidth_gbps=bandwidth_gbps,
        rack_bandwidth_gbps=rack_bandwidth_gbps,
        nic_bandwidth_gbps=nic_bandwidth_gbps,
        intra_latency_us=intra_latency_us,
        latency_us=latency_us,
    )
    _write_cluster(cluster, out)


def _write_cluster(cluster: "ClusterSpec", out: Path) -> None:
    from taut.data.known_hardware import warn_of_units
    from taut.files import write_atomically
    from taut.reports.catalog import cluster_yaml

    warn_of_units(cluster, str(out))
    write_atomically(out, cluster_yaml(cluster))
    typer.echo(f"{out}: {cluster.num_nodes} nodes, {cluster.num_devices} devices", err=True)
