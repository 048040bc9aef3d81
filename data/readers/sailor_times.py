"""
What Sailor measured of a model's layers: ``profile[micro_batch][tp][layer] = [forward, backward, update]`` in seconds.

Sailor (eth-easl/sailor, SOSP 2025) trains a cut-down model, embedding, two blocks and head, with Megatron-DeepSpeed,
without recomputation, and writes: layer 0, the embedding; layer 1, the first block; layers 2 to L, copies of the second
block; then, for Llama alone, the final norm; last, head and loss. Beside each stands the optimizer's step for the whole
of what was profiled. A run has the median over the blocks, and the sum of what follows them as its head.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from taut.data.model import ModelSpec
from taut.data.read import read_json
from taut.data.readers.measured_layer import Pass
from taut.data.spec import shorten
from taut.errors import DataError

MOST_SECONDS = 1e6
LARGEST_RATIO = 2.0
"""Blocks of one shape that differ by more from their median were not measured under equal conditions."""

_DEGREE = re.compile(r"[1-9]\d{0,6}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SailorRun:
    """
    Seconds at one micro-batch and tensor degree, and the place in the file.

    ``spread`` is the range of the blocks relative to their median, the larger of the two passes.
    """

    where: str
    embedding: Pass
    block: Pass
    head: Pass
    update: float
    spread: float


Runs = dict[int, dict[int, SailorRun]]
"""Runs by micro-batch and tensor degree, both ascending."""


def read_sailor_runs(path: Path, model: ModelSpec) -> Runs:
    """
    Read a ``profile.json`` of a model.

    Returns runs by micro-batch and tensor degree, both ascending. Raises ``DataError`` if the file is not such a
    profile, has another number of layers, or its blocks are not alike.
    """
    found: Runs = {}
    for batch, by_tp in _children(read_json(path, "a profile.json of Sailor"), str(path), "micro-batches"):
        for tp, layers in _children(by_tp, f"{path}: {batch}", "tensor degrees"):
            found.setdefault(batch, {})[tp] = _run(layers, f"{path}: {batch}.{tp}", model, tp)
    return {batch: dict(sorted(by_tp.items())) for batch, by_tp in sorted(found.items())}


def _children(values: object, where: str, what: str) -> list[tuple[int, object]]:
    """Entries of an object whose keys are whole numbers."""
    if not isinstance(values, dict) or not values:
        raise DataError(f"{where} is {shorten(values)}, expected an object of {what}")
    for key in values:
        if not _DEGREE.fullmatch(key):
            raise DataError(f"{where} has the key {shorten(key)}, expected {what}, whole numbers from 1 on")
    return [(int(key), value) for key, value in values.items()]


def _run(layers: object, where: str, model: ModelSpec, tp: int) -> SailorRun:
    blocks = len(model.blocks)
    if not model.splits(tp):
        raise DataError(f"{where}: tensor degree {tp} does not divide a layer of {model.name}, expected one that does")
    if not isinstance(layers, dict) or len(layers) not in (blocks + 2, blocks + 3):
        has = f"has {len(layers)} layers" if isinstance(layers, dict) else f"is {shorten(layers)}"
        wanted = f"{blocks + 2}, or {blocks + 3} with a final norm, for the {blocks} blocks of {model.name}"
        raise DataError(f"{where}: {has}, expected {wanted}")
    seconds = [_seconds(layers, str(number), where) for number in range(len(layers))]
    updates = {update for *_, update in seconds}
    if len(updates) != 1:
        raise DataError(f"{where}: update is {shorten(sorted(updates))}, expected one step's, the same for all layers")
    block, spread = _median(seconds[1 : blocks + 1], where)
    last = seconds[blocks + 1 :]
    return SailorRun(
        where=where,
        embedding=seconds[0][:2],
        block=block,
        head=(sum(layer[0] for layer in last), sum(layer[1] for layer in last)),
        update=updates.pop(),
        spread=spread,
    )


def _seconds(layers: dict[str, object], key: str, where: str) -> tuple[float, float, float]:
    figures = layers.get(key)
    if not isinstance(figures, list) or len(figures) != 3:
        raise DataError(f"{where}.{key}: is {shorten(figures)}, expected [forward, backward, update] in seconds")
    for figure in figures:
        if isinstance(figure, bool) or not isinstance(figure, int | float) or not 0 <= figure <= MOST_SECONDS:
            raise DataError(f"{where}.{key}: holds {shorten(figure)}, expected seconds from 0 to {MOST_SECONDS:g}")
    return float(figures[0]), float(figures[1]), float(figures[2])


def _median(blocks: list[tuple[float, float, float]], where: str) -> tuple[Pass, float]:
    """Median pass over the blocks, and their spread."""
    middle = (median(block[0] for block in blocks), median(block[1] for block in blocks))
    spread = 0.0
    for at, name in enumerate(("forward", "backward")):
        usual, least, most = middle[at], min(block[at] for block in blocks), max(block[at] for block in blocks)
        if usual <= 0 or most > LARGEST_RATIO * usual or usual > LARGEST_RATIO * least:
            raise DataError(
                f"{where}: {name} of the blocks is {least:g} to {most:g} s with median {usual:g}, "
                f"expected equal blocks, above 0 and within a factor {LARGEST_RATIO:g}"
            )
        spread = max(spread, (most - least) / usual)
    return middle, spread
