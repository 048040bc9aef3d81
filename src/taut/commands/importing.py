"""``taut import``: cluster, model files and cost tables from what other tools print, one command a tool."""

import warnings
from collections.abc import Callable
from importlib import import_module
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taut.commands.options import KEYWORD, MUST, parameter, whole_numbers, with_signature
from taut.errors import DataError

if TYPE_CHECKING:
    from taut.data.cluster import ClusterSpec
    from taut.data.costs import CostTable
    from taut.data.device import Precision


importer = typer.Typer(help="Build a cluster, model or cost file from another tool's output.", no_args_is_help=True)

Options = dict[str, tuple[Any, str, Any]]
"""Type, help and default of an option by name."""
OPTIONS: Options = {
    "device": (str, "Device type of every node: of the catalog, or a YAML file of one.", MUST),
    "gpus_per_node": (int, "Devices of every node.", MUST),
    "intra_bandwidth_gbps": (float, "Gb/s (1e9 bits) of one device to another of its node, one way.", MUST),
    "bandwidth_gbps": (float, "Gb/s of one pair of devices between racks, one way.", MUST),
    "out": (Path, "Cluster file to write.", MUST),
    "nodes": (int, "Nodes with such cards, however many hosts the file names.", 1),
    "test": (str, "Test to read; default: device_to_device_memcpy_read_ce or its like.", ""),
    "nvlink_gbps": (float | None, "Gb/s of one link, one way; default: NVLink 200, Blackwell's 400, AMD's 512.", None),
    "link_layer": (str, "InfiniBand or Ethernet; default: the first that is up.", ""),
    "rack_bandwidth_gbps": (float | None, "The same behind a leaf switch, in one block; default: between racks.", None),
    "nic_bandwidth_gbps": (float | None, "Gb/s of all network cards of a node.", None),
    "intra_latency_us": (float, "Latency inside a node (assumed).", 3.0),
    "latency_us": (float, "Latency between nodes (assumed).", 5.0),
    "name": (str, "Name of the cluster; default: the file's.", ""),
}
OF_A_RUN: Options = {
    "nodes": (int | None, "Nodes of the cluster; default: the run's hosts. 1: all in one NVLink domain.", None),
    "gpus_per_node": (int | None, "Devices of every node; default: a host's ranks.", None),
    "intra_bandwidth_gbps": (float | None, "Gb/s of one device to another of its node, if not the run's.", None),
    "intra_latency_us": (float | None, "Latency inside a node, if not the run's; 3 where not measured.", None),
    "bandwidth_gbps": (float | None, "Gb/s of one pair of devices between nodes, one way, if not the run's.", None),
    "latency_us": (float | None, "Latency between nodes, if not the run's; 5 where not measured.", None),
    "nic_bandwidth_gbps": (float | None, "Gb/s of all network cards of a node, one way, if not the run's.", None),
    "collective": (str, "Such as all_reduce, where an old version does not say.", ""),
}
"""What a run of nccl-tests says itself unless it is given."""
READ = "test", "collective"
"""Options of the reader; the others but ``out`` are figures of the cluster."""


def _add(home: str, what: str, says: str, options: str, known: Options, tool: str = "") -> None:
    """
    Add a command that ``says`` what it does, and reads ``what`` by the function of a module that ``home`` names.

    What it reads is a cost table, or figures from which a second function makes a cluster.
    """
    module, read, *build = home.split()

    def run(path: Path, **given: Any) -> None:
        from taut.data.load import load_device

        readers = import_module(f"taut.data.readers.{module}")
        if not build:
            _import_costs(path, getattr(readers, read), **given)
            return
        out = given.pop("out")
        measured = getattr(readers, read)(path, *(given.pop(name) for name in READ if name in given))
        if hasattr(readers, "latency_assumed") and (words := readers.latency_assumed(measured)):
            warnings.warn(f"{path}: {words}", UserWarning, stacklevel=2)
        given |= {"name": given["name"] or path.stem, "device": load_device(given["device"], "--device")}
        _write_cluster(getattr(readers, *build)(measured, **given), out)

    parameters = [Parameter("path", KEYWORD, annotation=Annotated[Path, typer.Argument(help=what)])]
    parameters += [parameter(name, *known[name]) for name in options.split()]
    importer.command(tool or module.partition(".")[0])(with_signature(run, says, parameters))


_add(
    "mpigraph read_mpigraph cluster_from_mpigraph",
    "mpiGraph's text, or a CSV matrix in MB/s (row sends to column).",
    "Build a cluster from mpiGraph output.",
    "device gpus_per_node intra_bandwidth_gbps out intra_latency_us latency_us name",
    OPTIONS,
)
_add(
    "nccl_tests read_nccltests cluster_from_nccltests",
    "What an nccl-tests program printed, or its JSON (-J).",
    "Build a cluster from an all_reduce, all_gather, reduce_scatter or sendrecv run of nccl-tests.",
    f"device out {' '.join(OF_A_RUN)} name",
    OPTIONS | OF_A_RUN,
    "nccl-tests",
)
_add(
    "nvbandwidth read_nvbandwidth cluster_from_nvbandwidth",
    "What nvbandwidth printed on one node, as text or JSON (-j).",
    "Build a cluster of one node from nvbandwidth's matrix between its devices.",
    "device out test intra_latency_us name",
    OPTIONS,
)
_add(
    "nvidia_topo read_topology cluster_from_topology",
    "What nvidia-smi topo -m, rocm-smi --showtopo or amd-smi topology printed, or NCCL's XML.",
    "Build a cluster of one node from its link kinds, at stated rates.",
    "device out nvlink_gbps intra_latency_us name",
    OPTIONS,
    "topo",
)
_add(
    "ibstat read_ibstat cluster_from_ibstat",
    "What ibstat printed on one node, or on several alike.",
    "Build a cluster from the network cards that ibstat lists on one of its nodes.",
    "device gpus_per_node intra_bandwidth_gbps out nodes link_layer intra_latency_us latency_us name",
    OPTIONS,
)
_add(
    "slurm_topology read_slurm_topology cluster_from_slurm",
    "Slurm's topology.conf or topology.yaml, a tree or blocks.",
    "Build a cluster of racks from Slurm's topology, at stated rates.",
    "device gpus_per_node intra_bandwidth_gbps bandwidth_gbps out rack_bandwidth_gbps nic_bandwidth_gbps "
    "intra_latency_us latency_us name",
    OPTIONS,
    "slurm",
)


@importer.command()
def images(
    path: Annotated[Path, typer.Argument(help="config.json of Qwen2.5-VL, Qwen3-VL, InternVL, Gemma 3 or Llama 4.")],
    images: Annotated[
        str,
        typer.Option("--images", help="Images or tiles of a sample: the mean, or shares by number, as 1:0.5,4:0.5."),
    ],
    out: Annotated[Path, typer.Option(help="Model file to write.")],
    most_images: Annotated[
        int | None, typer.Option(help="The most images of a sample, which memory counts; default: of --images.")
    ] = None,
    image_size: Annotated[
        str | None, typer.Option(help="Pixels of an image, as 1008x1008, for encoders that take any size.")
    ] = None,
    trained: Annotated[str, typer.Option(help="What of the encoder is trained: all, projector or none.")] = "all",
    recompute: Annotated[bool, typer.Option("--recompute", help="Recompute every layer of the encoder.")] = False,
    tensor_parallel: Annotated[
        bool | None,
        typer.Option(help="Whether tensor ranks share the encoder; default: as Megatron-Bridge has the model."),
    ] = None,
    seq: Annotated[int | None, typer.Option(help="Tokens of a sequence, those of images included.")] = None,
) -> None:
    """Build a model file with an encoder of images from a multimodal config.json."""
    import yaml

    from taut.data.readers.config_encoders import read_multimodal
    from taut.files import write_atomically

    facts = {"trained": trained, "recompute": recompute, "tensor_parallel": tensor_parallel}
    model = read_multimodal(path, images, most=most_images, size=image_size, seq=seq, **facts)
    write_atomically(out, yaml.safe_dump(model.model_dump(exclude_defaults=True), sort_keys=False))
    if encoder := model.encoder:
        size = f"{model.parameters():,} parameters, {encoder.parameters():,} of the encoder"
        typer.echo(f"{out}: {size}, {encoder.image_tokens} tokens an image", err=True)


def _write_cluster(cluster: "ClusterSpec", out: Path) -> None:
    from taut.data.known_hardware import warn_of_units
    from taut.files import write_atomically
    from taut.reports.catalog import cluster_yaml

    warn_of_units(cluster, str(out))
    write_atomically(out, cluster_yaml(cluster))
    typer.echo(f"{out}: {cluster.num_nodes} nodes, {cluster.num_devices} devices", err=True)


UP_TO, MOST = "from 1 to 65536", 65536
"""What degrees and micro-batches of a table may be, in words and as a number."""


@importer.command()
def operators(
    path: Annotated[Path, typer.Argument(help="CSV of matrix products: m, n, k, latency in milliseconds.")],
    model: Annotated[str, typer.Option(help="What is to be priced: catalog name, our YAML file, or config.json.")],
    device: Annotated[str, typer.Option(help="Device type that was measured, from the catalog.")],
    out: Annotated[Path, typer.Option(help="Cost table (CSV) to write.")],
    attention: Annotated[
        Path | None,
        typer.Option(help="CSV of causal attention: batch_size, isl, num_heads, ...; default: the device's own model."),
    ] = None,
    tp: Annotated[
        str | None, typer.Option(help="Tensor degrees to price; default: 1, 2, 4, 8 that divide the layers.")
    ] = None,
    micro_batch: Annotated[str, typer.Option(help="Micro-batches to price.")] = "1,2,4,8",
    seq: Annotated[int | None, typer.Option(help="Sequence length in tokens, if not the model's.")] = None,
    precision: Annotated[str, typer.Option(help="bf16 or fp16.")] = "bf16",
) -> None:
    """Build a cost table of any model from measured matrix products, in aiconfigurator's columns."""
    from taut.data.analytic.operator_costs import costs_from_operators, read_attention, read_gemms
    from taut.data.catalog.builtin import catalog_operators
    from taut.data.catalog.devices import device_named
    from taut.data.load import load_model

    spec = load_model(model, seq=seq)
    usual = [each for each in (1, 2, 4, 8) if all(layer.splits(each) for layer in spec.kinds.values())]
    table = costs_from_operators(
        read_gemms(path),
        spec,
        device_named(device, "--device"),
        tensor_degrees=usual if tp is None else whole_numbers("--tp", tp, UP_TO, MOST),
        micro_batches=whole_numbers("--micro-batch", micro_batch, UP_TO, MOST),
        precision=_precision(precision),
        attention=catalog_operators().get(device) if attention is None else read_attention(attention),
    )
    _write_costs(table, out)


OF_A_PROFILE: Options = {
    "model": (str, "What was profiled: catalog name, our YAML file, or config.json.", MUST),
    "device": (str, "Device type that was profiled, from the catalog.", MUST),
    "out": (Path, "Cost table (CSV) to write.", MUST),
    "info": (Path | None, "Sailor's llm_info.json, with measured activations.", None),
    "info_model": (str, "The model's name in it, where two have its shape.", ""),
    "memory": (Path | None, "The memory_profiling_*.json, with measured activations.", None),
    "seq": (int | None, "Sequence length that was profiled, if not the model's.", None),
    "precision": (str, "Number format that was profiled.", "bf16"),
    "estimate_head": (bool, "Add a head that was not profiled.", False),
}
_add(
    "sailor read_sailor",
    "Sailor's profile.json of a model on a device.",
    "Build a cost table from a profile of Sailor.",
    "model device out info info_model seq precision estimate_head",
    OF_A_PROFILE | {"precision": (*OF_A_PROFILE["precision"][:2], "fp32")},
)
_add(
    "galvatron.costs read_galvatron",
    "Galvatron's computation_profiling_*.json of a model.",
    "Build a cost table, for tensor degree 1, from a profile of Galvatron.",
    "model device out memory seq precision",
    OF_A_PROFILE,
)


def _import_costs(
    path: Path, read: Callable[..., "CostTable"], *, model: str, device: str, out: Path, seq: int | None, **given: Any
) -> None:
    from taut.data.catalog.devices import device_named
    from taut.data.load import load_model

    if given.get("info_model") and given["info"] is None:
        raise DataError(f"--info-model {given['info_model']}: expected --info with it, whose models it names")
    profiled = load_model(model, seq=seq), device_named(device, "--device")
    _write_costs(read(path, *profiled, **given | {"precision": _precision(given["precision"])}), out)


def _precision(text: str) -> "Precision":
    from taut.data.analytic.device_rates import ELEMENT_BYTES

    for known in ELEMENT_BYTES:
        if text == known:
            return known
    raise DataError(f"--precision {text}: expected one of {', '.join(ELEMENT_BYTES)}")


def _write_costs(table: "CostTable", out: Path) -> None:
    from taut.data.costs import costs_csv
    from taut.files import write_atomically

    write_atomically(out, costs_csv(table))
    typer.echo(f"{out}: {len(table.rows)} rows", err=True)
