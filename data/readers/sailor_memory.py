"""
Activation bytes that Sailor measured: ``llm_info.json``, by model, tensor degree and layer, for a micro-batch of one.

Of every layer are read ``params_floats``, by which the model's entry is found and checked, and ``act_mem_bytes``, the
memory that stays allocated after the layer's forward pass. Layers are numbered as in Sailor's profiles: embedding,
blocks, and head with or without a norm of its own.
"""

import re
from pathlib import Path
from statistics import median
from typing import NamedTuple

from taut.data.layers.layer import LayerSpec
from taut.data.read import read_json
from taut.data.spec import shorten
from taut.data.units import MOST_BYTES
from taut.errors import DataError

TOLERANCE = 0.02
"""Two shapes are told apart by more; biases that a model of ours does not count make less of a block's parameters."""

_DEGREE = re.compile(r"[1-9]\d{0,6}")


class LayerBytes(NamedTuple):
    """Bytes of activations of one sample on one rank."""

    embedding: int
    block: int
    head: int


class _Layer(NamedTuple):
    parameters: float
    kept: float
    output: float


Degrees = dict[int, list[_Layer]]


def read_sailor_info(path: Path, block: LayerSpec, num_blocks: int, name: str = "") -> dict[int, LayerBytes]:
    """
    Activation bytes by tensor degree.

    ``path``: an ``llm_info.json``; ``block``, ``num_blocks``: shape and number of the model's blocks; ``name``: the
    model's name in the file; without one, the only entry with such blocks. Returns bytes of one sample on one rank, by
    tensor degree. Raises ``DataError`` if no entry, or more than one, has such blocks, or the entry was measured at
    another sequence length.
    """
    entries = {key: _degrees(entry, f"{path}: {key}") for key, entry in read_json(path, "an llm_info.json").items()}
    if name and name not in entries:
        raise DataError(f"{path}: has no model {name!r}, expected one of {', '.join(entries)}")
    asked = {name: entries[name]} if name else entries
    fitting = [key for key, degrees in asked.items() if _fits(degrees, block, num_blocks)]
    if len(fitting) != 1:
        has = f"{', '.join(fitting)} have" if fitting else "no model has"
        seen = "" if fitting else f"; {_sizes(asked)}"
        wanted = "expected one, named where two are alike"
        raise DataError(f"{path}: {has} {num_blocks} blocks of {block.parameters()} parameters{seen}, {wanted}")
    return {
        tp: _bytes(layers, block, num_blocks, f"{path}: {fitting[0]}.{tp}") for tp, layers in asked[fitting[0]].items()
    }


def _degrees(entry: object, where: str) -> Degrees:
    if not isinstance(entry, dict) or not entry:
        raise DataError(f"{where}: is {shorten(entry)}, expected an object of tensor degrees")
    found = {}
    for tp, layers in entry.items():
        if not _DEGREE.fullmatch(tp) or not isinstance(layers, dict) or len(layers) < 3:
            raise DataError(f"{where}.{shorten(tp)}: is {shorten(layers)}, expected layers at a tensor degree")
        found[int(tp)] = [_layer(layers.get(str(i)), f"{where}.{tp}.{i}") for i in range(len(layers))]
    return found


def _layer(fields: object, where: str) -> _Layer:
    if not isinstance(fields, dict):
        raise DataError(f"{where}: is {shorten(fields)}, expected a layer's figures")
    figures = []
    for field in ("params_floats", "act_mem_bytes", "act_output_floats"):
        value = fields.get(field)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_BYTES:
            raise DataError(f"{where}.{field}: is {shorten(value)}, expected a number from 0 to {MOST_BYTES}")
        figures.append(float(value))
    return _Layer(*figures)


def _fits(degrees: Degrees, block: LayerSpec, num_blocks: int) -> bool:
    """Whether the entry has as many blocks, of as many parameters."""
    return all(
        len(layers) in (num_blocks + 2, num_blocks + 3)
        and block.splits(tp)
        and all(abs(layer.parameters / block.parameters(tp) - 1) <= TOLERANCE for layer in layers[1 : num_blocks + 1])
        for tp, layers in degrees.items()
    )


def _sizes(entries: dict[str, Degrees]) -> str:
    """The blocks of every entry in words."""
    lowest = {key: (min(degrees), degrees[min(degrees)]) for key, degrees in entries.items()}
    return "; ".join(f"{key} has {layers[1].parameters:.0f} at tp {tp}" for key, (tp, layers) in lowest.items())


def _bytes(layers: list[_Layer], block: LayerSpec, num_blocks: int, where: str) -> LayerBytes:
    if layers[0].output != block.output_elements:
        measured = layers[0].output / block.hidden
        raise DataError(
            f"{where}.0.act_output_floats: is {layers[0].output:.0f}, {measured:g} tokens of {block.hidden}, "
            f"expected {block.output_elements} for a sequence of {block.seq}"
        )
    return LayerBytes(
        embedding=round(layers[0].kept),
        block=round(median(layer.kept for layer in layers[1 : num_blocks + 1])),
        head=round(sum(layer.kept for layer in layers[num_blocks + 1 :])),
    )
