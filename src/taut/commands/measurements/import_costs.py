"""``taut import`` for cost tables: what other tools measured of a layer. The readers are in ``taut.data``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taut.commands.measurements.import_cluster import importer
from taut.errors import DataError

if TYPE_CHECKING:
    from taut.data.costs import CostTable
    from taut.data.device import Precision

__all__ = ["importer"]

ModelOption = Annotated[str, typer.Option(help="What was profiled: catalog name, our YAML file, or config.json.")]
DeviceOption = Annotated[str, typer.Option(help="Device type that was profiled, from the catalog.")]
SeqOption = Annotated[int | None, typer.Option(help="Sequence length that was profiled, if not the model's.")]
PrecisionOption = Annotated[str, typer.Option(help="Number format that was profiled.")]
OutOption = Annotated[Path, typer.Option(help="Cost table (CSV) to write.")]


@importer.command()
def operators(
    path: Annotated[Path, typer.Argument(help="CSV of matrix products: m, n, k, latency in milliseconds.")],
    model: Annotated[str, typer.Option(help="What is to be priced: catalog name, our YAML file, or config.json.")],
    device: Annotated[str, typer.Option(help="Device type that was measured, from the catalog.")],
    out: OutOption,
    attention: Annotated[
        Path | None,
        typer.Option(help="CSV of causal attention: batch_size, isl, num_heads, ...; default: the device's own model."),
    ] = None,
    tp: Annotated[str, typer.Option(help="Tensor degrees to price.")] = "1,2,4,8",
    micro_batch: Annotated[str, typer.Option(help="Micro-batches to price.")] = "1,2,4,8",
    seq: Annotated[int | None, typer.Option(help="Sequence length in tokens, if not the model's.")] = None,
    precision: Annotated[str, typer.Option(help="bf16 or fp16.")] = "bf16",
) -> None:
    """Build a cost table of any model from measured matrix products, in aiconfigurator's columns."""
    from taut.data.analytic.operator_costs import costs_from_operators, read_attention, read_gemms
    from taut.data.catalog.builtin import catalog_operators
    from taut.data.catalog.devices import device_named
    from taut.data.load import load_model

    table = costs_from_operators(
        read_gemms(path),
        load_model(model, seq=seq),
        device_named(device, "--device"),
        tensor_degrees=_numbers(tp, "--tp"),
        micro_batches=_numbers(micro_batch, "--micro-batch"),
        precision=_precision(precision),
        attention=catalog_operators().get(device) if attention is None else read_attention(attention),
    )
    _write_costs(table, out)


def _numbers(text: str, option: str) -> list[int]:
    """Whole numbers above 0 from ``1,2,4``."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and 0 < int(part) <= 65536 for part in parts):
        raise DataError(f"{option} {text}: expected whole numbers from 1 to 65536, such as 1,2,4")
    return [int(part) for part in parts]


@importer.command()
def sailor(
    path: Annotated[Path, typer.Argument(help="Sailor's profile.json of a model on a device.")],
    model: ModelOption,
    device: DeviceOption,
    out: OutOption,
    info: Annotated[Path | None, typer.Option(help="Sailor's llm_info.json, with measured activations.")] = None,
    info_model: Annotated[str, typer.Option(help="The model's name in it, where two have its shape.")] = "",
    seq: SeqOption = None,
    precision: PrecisionOption = "fp32",
    estimate_head: Annotated[bool, typer.Option("--estimate-head", help="Add a head that was not profiled.")] = False,
) -> None:
    """Build a cost table from a profile of Sailor."""
    from taut.data.catalog.devices import device_named
    from taut.data.load import load_model
    from taut.data.readers.sailor import read_sailor

    table = read_sailor(
        path,
        load_model(model, seq=seq),
        device_named(device, "--device"),
        info=info,
        info_model=info_model,
        precision=_precision(precision),
        estimate_head=estimate_head,
    )
    _write_costs(table, out)


@importer.command()
def galvatron(
    path: Annotated[Path, typer.Argument(help="Galvatron's computation_profiling_*.json of a model.")],
    model: ModelOption,
    device: DeviceOption,
    out: OutOption,
    memory: Annotated[Path | None, typer.Option(help="The memory_profiling_*.json, with measured activations.")] = None,
    seq: SeqOption = None,
    precision: PrecisionOption = "bf16",
) -> None:
    """Build a cost table, for tensor degree 1, from a profile of Galvatron."""
    from taut.data.catalog.devices import device_named
    from taut.data.load import load_model
    from taut.data.readers.galvatron.costs import read_galvatron

    table = read_galvatron(
        path,
        load_model(model, seq=seq),
        device_named(device, "--device"),
        memory=memory,
        precision=_precision(precision),
    )
    _write_costs(table, out)


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
