"""``taut profile``: the command line of the measurements. PyTorch is imported when there is something to measure."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taut.commands.options import QuietFlag, check_file, whole_numbers
from taut.errors import DataError

if TYPE_CHECKING:
    import torch

    from taut.data.device import Precision
    from taut.data.model import ModelSpec
    from taut.profiling.layers import Collected, Sweep

DEVICES = ("cuda", "cpu")
TENSOR_DEGREES = MICRO_BATCHES = "1,2,4,8"
REPEATS, WARM_UP = 20, 5
COUNTS = {"--repeats": REPEATS, "--warm-up": WARM_UP}
CPU_PROCESSES = 2
INSTALL = "pip install 'taut[learn]'"


def profile_command(
    out: Annotated[Path, typer.Option(help="File to write: a CSV cost table, or a cluster with --network.")],
    model: Annotated[
        str | None, typer.Argument(help="Catalog name, our YAML file, or a Hugging Face config.json.")
    ] = None,
    device: Annotated[str, typer.Option(help="cuda or cpu.")] = "cuda",
    gpu: Annotated[
        str | None, typer.Option(help="Device type that the rows carry; default: the catalog's, by PyTorch's name.")
    ] = None,
    tp: Annotated[
        str | None, typer.Option(help=f"Tensor degrees; default: those of {TENSOR_DEGREES} that split the model.")
    ] = None,
    micro_batch: Annotated[str | None, typer.Option(help=f"Micro-batches; default: {MICRO_BATCHES}.")] = None,
    seq: Annotated[
        int | None,
        typer.Option(help="Sequence length in tokens; default: the model's, of a config.json its longest up to 8192."),
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="bf16, fp16 or fp32; default: fp32 on a CPU, bf16 on a GPU that has it.")
    ] = None,
    repeats: Annotated[int | None, typer.Option(help=f"Repeats, of which the median is taken: {REPEATS}.")] = None,
    warm_up: Annotated[int | None, typer.Option(help=f"Repeats before, that are not counted: {WARM_UP}.")] = None,
    kernels: Annotated[Path | None, typer.Option(help="CSV to write: the kernels of every operator.")] = None,
    network: Annotated[bool, typer.Option("--network", help="Measure the links between devices instead.")] = False,
    processes: Annotated[
        int | None, typer.Option(help="--network: processes to start; default: one a GPU, 2 on a CPU.")
    ] = None,
    gpus_per_node: Annotated[
        int | None, typer.Option(help="--network: devices of every node; default: a host's processes.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="--network: name of the cluster; default: the file's.")] = None,
    quiet: QuietFlag = False,
) -> None:
    """Measure layer costs with PyTorch, or links with --network. Ctrl-C keeps what was measured so far."""
    of_layers: dict[str, Any] = {"MODEL": model, "--tp": tp, "--micro-batch": micro_batch, "--seq": seq}
    of_layers |= {"--precision": precision, "--repeats": repeats, "--warm-up": warm_up, "--kernels": kernels}
    of_links: dict[str, object] = {"--processes": processes, "--gpus-per-node": gpus_per_node, "--name": name}
    for option, value in (of_layers if network else of_links).items():
        if value is not None:
            raise DataError(f"{option} {value}: expected only {'without' if network else 'with'} --network")
    check_file(out, kernels)
    if network:
        from taut.profiling.network import profile_network

        found = _device(device)
        profile_network(
            out=out,
            device=device,
            gpu=gpu or _named(found),
            processes=_processes(device) if processes is None else processes,
            gpus_per_node=gpus_per_node,
            name=name or "",
            quiet=quiet,
        )
        return
    if model is None:
        raise DataError("MODEL: missing, expected a model, or --network for the links between devices")
    _layers(_sweep(of_layers, device, gpu), out, kernels, quiet)


def _processes(device: str) -> int:
    """Processes to start: one a GPU, or a pair on a CPU."""
    from torch.cuda import device_count

    return device_count() if device == "cuda" else CPU_PROCESSES


def _sweep(given: dict[str, Any], device: str, gpu: str | None) -> "Sweep":
    """What the options of layers by name ask for."""
    from taut.data.load import load_model

    counts = {name: usual if given[name] is None else given[name] for name, usual in COUNTS.items()}
    for option, least in {"--repeats": 1, "--warm-up": 0}.items():
        if counts[option] < least:
            raise DataError(f"{option} {counts[option]}: expected at least {least}")
    micro_batches = sorted({*whole_numbers("--micro-batch", given["--micro-batch"] or MICRO_BATCHES)})
    read = load_model(given["MODEL"], seq=given["--seq"])
    if read.encoder:
        raise DataError(
            f"{given['MODEL']}: has an encoder of images, which is not measured, expected the language model alone"
        )
    degrees = _degrees(read, given["--tp"])
    found = _device(device)
    from taut.profiling.layers import Sweep

    name = gpu or _named(found)
    return Sweep(
        model=read,
        gpu=name,
        device=found,
        precision=_precision(given["--precision"], device, name),
        tensor_degrees=degrees,
        micro_batches=micro_batches,
        warm_up=counts["--warm-up"],
        repeats=counts["--repeats"],
    )


def _layers(sweep: "Sweep", out: Path, kernels: Path | None, quiet: bool) -> None:
    """Measure the layers and write the tables."""
    from taut.commands.progress import live_lines
    from taut.data.costs import costs_csv
    from taut.files import write_atomically
    from taut.profiling.layers import collect, cost_table, kernels_csv, remarks

    with live_lines(quiet) as say:
        found = collect(sweep, kernels=kernels is not None, say=say)
    write_atomically(out, costs_csv(cost_table(sweep, found)))
    if kernels is not None:
        write_atomically(kernels, kernels_csv(found.kernels, "\n".join(remarks(sweep, found))))
    _say(sweep, found, out, quiet)


def _say(sweep: "Sweep", found: "Collected", out: Path, quiet: bool) -> None:
    """What was written, and on any terms what is missing from it."""
    if found.left_out:
        points = ", ".join(map(str, found.left_out))
        typer.echo(f"taut: warning: left out, as the device's memory does not suffice: {points}", err=True)
    if found.interrupted:
        typer.echo(f"taut: warning: interrupted after {found.done} of {len(sweep.points)} points", err=True)
    if not quiet:
        typer.echo(f"{out}: {len(found.rows)} rows for {sweep.gpu}", err=True)


def _device(device: str) -> "torch.device":
    if device not in DEVICES:
        raise DataError(f"--device {device}: expected one of {', '.join(DEVICES)}")
    try:
        import torch
    except ImportError:
        raise DataError(f"torch: not installed, expected it to measure with ({INSTALL})") from None
    if device == "cuda" and not torch.cuda.is_available():
        raise DataError("--device cuda: PyTorch finds no CUDA device, expected one, or --device cpu")
    return torch.device(device)


def _named(device: "torch.device") -> str:
    from taut.data.catalog.devices import catalog_devices
    from taut.profiling.layers import device_name

    return device_name(device, catalog_devices())


def _precision(asked: str | None, device: str, gpu: str) -> "Precision":
    """The asked precision; else fp32 on a CPU, bf16 on a GPU, or fp16 where the catalog's device has no bf16."""
    from taut.data.catalog.devices import catalog_devices
    from taut.profiling.layers import DTYPES

    known = catalog_devices().get(gpu)
    usual: Precision = "fp16" if known is not None and "bf16" not in known.peak_tflops else "bf16"
    for precision in DTYPES:
        if precision == (asked or ("fp32" if device == "cpu" else usual)):
            return precision
    raise DataError(f"--precision {asked}: expected one of {', '.join(DTYPES)}")


def _degrees(model: "ModelSpec", asked: str | None) -> list[int]:
    degrees = sorted({*whole_numbers("--tp", asked or TENSOR_DEGREES)})
    for degree in degrees if asked else ():
        if not model.splits(degree):
            raise DataError(f"--tp {degree}: does not divide the heads and ffn of {model.name}, expected a divisor")
    return [degree for degree in degrees if model.splits(degree)]
