r"""
Cost table from Sailor's profiles and its measured memory.

Sailor measures in fp32, without recomputation. Of its seconds

(1) the backward pass is split by the FLOP of its parts (``taut.data.readers.measured_layer``); that of the embedding is
    not there: its hook sees a few microseconds;
(2) a block's at :math:`t > 1` hold two all-reduces in each pass, which a cost table must not. The embedding's forward
    pass, of :math:`e_t` seconds, holds one of the same :math:`M` bytes and a lookup under a mask, so
    :math:`A_t = \max(0, e_t - e_1 - 8 M / W)` with :math:`W` the memory bandwidth, and a pass of :math:`x_t` seconds
    counts as :math:`\max(x_t - 2 A_t, y_s s / t)`, with :math:`y_s` that of the next lower degree :math:`s`: no split
    is better than even. Where tp 1 was not measured, its seconds are those of the largest smaller micro-batch in
    proportion, or none. Embedding and head keep their one all-reduce, as a plan adds none to them;
(3) the optimizer's, for embedding, two blocks and head together, are divided by their parameters; the median over the
    file is its price;
(4) the head's are not there at all where the model that was run has none (Sailor's GPT-Neo ends in a norm). On demand
    the head is estimated: what stands there, and its FLOP at the rate of the blocks.

With the 8 of (2) the links of Sailor's A100 and GH200 machines come out at 197 to 253 and at 124 GB/s where its own
network measurements have 243 to 249 and 125.

Activation bytes are those of ``llm_info.json``, by model, tensor degree and layer, for a micro-batch of one. Of every
layer are read ``params_floats``, by which the model's entry is found and checked, and ``act_mem_bytes``, the
memory that stays allocated after the layer's forward pass. Layers are numbered as in Sailor's profiles: embedding,
blocks, and head with or without a norm of its own.

What Sailor measured of a model's layers: ``profile[micro_batch][tp][layer] = [forward, backward, update]`` in seconds.

Sailor (eth-easl/sailor, SOSP 2025) trains a cut-down model, embedding, two blocks and head, with Megatron-DeepSpeed,
without recomputation, and writes: layer 0, the embedding; layer 1, the first block; layers 2 to L, copies of the second
block; then, for Llama alone, the final norm; last, head and loss. Beside each stands the optimizer's step for the whole
of what was profiled. A run has the median over the blocks, and the sum of what follows them as its head.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

from taut.data.costs import CostRow, CostTable
from taut.data.device import DeviceSpec, Precision
from taut.data.layers.layer import EMBEDDING, HEAD, LayerSpec
from taut.data.model import ModelSpec
from taut.data.read import read_json
from taut.data.readers.measured_layer import Pass, Profiled
from taut.data.spec import name_of_file, shorten
from taut.data.units import MOST_BYTES
from taut.errors import DataError

_DEGREE = re.compile(r"[1-9]\d{0,6}")
MOST_SECONDS = 1e6
LARGEST_RATIO = 2.0
"""Blocks of one shape that differ by more from their median were not measured under equal conditions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SailorRun:
    """Seconds at one micro-batch and tensor degree, place in the file, and range of blocks over their median."""

    where: str
    embedding: Pass
    block: Pass
    head: Pass
    update: float
    spread: float


Runs = dict[int, dict[int, SailorRun]]
"""Runs by micro-batch and tensor degree, both ascending."""


def read_sailor_runs(path: Path, model: ModelSpec) -> Runs:
    """Runs of a model's ``profile.json`` by micro-batch and tensor degree; ``DataError`` if blocks are unlike."""
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


TOLERANCE = 0.02
"""Two shapes are told apart by more; biases that a model of ours does not count make less of a block's parameters."""


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
    """Activation bytes of a sample by tensor degree, of the named or only fitting entry of ``llm_info.json``."""
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


PROFILED_BLOCKS = 2
MASKED_LOOKUP = 8
"""Bytes that the lookup of a split vocabulary moves beside a plain one, in units of its output, (2)."""


def read_sailor(
    path: Path,
    model: ModelSpec,
    device: DeviceSpec,
    *,
    info: Path | None = None,
    info_model: str = "",
    precision: Precision = "fp32",
    estimate_head: bool = False,
) -> CostTable:
    """Cost table of a profile, and the optimizer's seconds a parameter; ``info`` has bytes, (4) estimates a head."""
    profiled = Profiled(model=model, device=device, precision=precision, fused_attention=False)
    runs = read_sailor_runs(path, model)
    kept = {} if info is None else read_sailor_info(info, profiled.block, len(model.blocks), info_model)
    blocks = _blocks(runs, profiled)
    rows = [
        row
        for batch, by_tp in runs.items()
        for tp, run in by_tp.items()
        for row in _rows(profiled, tp, batch, run, blocks[batch][tp], kept.get(tp), estimate_head)
    ]
    return CostTable(
        name=name_of_file(path.stem),
        basis=_basis(path, profiled, rows, info, kept.keys(), estimate_head),
        rows=rows,
        optimizer_s_per_parameter=_optimizer(runs, profiled, estimate_head),
    )


def _blocks(runs: Runs, profiled: Profiled) -> dict[int, dict[int, Pass]]:
    """Seconds of a block without communication, by micro-batch and tensor degree, (2)."""
    lookup = MASKED_LOOKUP * profiled.output_bytes / profiled.device.memory_bandwidth
    embedding, block = 0.0, (0.0, 0.0)
    found = {}
    for batch, by_tp in runs.items():
        if 1 in by_tp:
            alone = by_tp[1]
            embedding, block = alone.embedding[0] / batch, (alone.block[0] / batch, alone.block[1] / batch)
        least = (batch * block[0], batch * block[1])
        found[batch] = _without_communication(by_tp, batch * (embedding + lookup), least)
    return found


def _without_communication(by_tp: dict[int, SailorRun], lookup: float, whole: Pass) -> dict[int, Pass]:
    """Seconds of a block by degree, given the seconds of a masked lookup and of a block that is not split, (2)."""
    clean: dict[int, Pass] = {}
    lower, least = 1, whole
    for tp, run in by_tp.items():
        reduce = 0.0 if tp == 1 else max(run.embedding[0] - lookup, 0.0)
        forward, backward = (
            max(part - 2 * reduce, floor * lower / tp) for part, floor in zip(run.block, least, strict=True)
        )
        if not (forward > 0 and backward > 0):
            raise DataError(
                f"{run.where}: two all-reduces of {reduce:.3g} s, as the embedding has one, leave nothing of a "
                f"block's {min(run.block):g} s, expected a smaller tensor degree too"
            )
        clean[tp] = least = (forward, backward)
        lower = tp
    return clean


def _rows(
    profiled: Profiled,
    tp: int,
    micro_batch: int,
    run: SailorRun,
    block: Pass,
    kept: LayerBytes | None,
    estimate_head: bool,
) -> list[CostRow]:
    """Rows of embedding, block and head."""
    embedding_bytes, block_bytes, head_bytes = (None,) * 3 if kept is None else (micro_batch * part for part in kept)
    if profiled.reachable(HEAD, tp, micro_batch, run.head) == estimate_head:
        fault = "is long enough for" if estimate_head else "is too short for"
        expected = "no --estimate-head" if estimate_head else "--estimate-head for a profile without a head"
        raise DataError(f"{run.where}: {run.head[0]:.3g} s {fault} a head's forward pass, expected {expected}")
    head = _estimated(profiled, tp, micro_batch, run.head, block) if estimate_head else run.head
    head_bytes = None if estimate_head else head_bytes
    kind = profiled.block.kind
    return [
        profiled.row(EMBEDDING, tp, micro_batch, run.embedding, f"{run.where}: embedding", kept=embedding_bytes),
        profiled.row(kind, tp, micro_batch, block, f"{run.where}: block", kept=block_bytes, spread=run.spread),
        profiled.row(HEAD, tp, micro_batch, head, f"{run.where}: head", kept=head_bytes),
    ]


def _estimated(profiled: Profiled, tp: int, micro_batch: int, rest: Pass, block: Pass) -> Pass:
    """The head's passes at the rate of the blocks, (4)."""
    own, head = (profiled.flop(kind, tp, micro_batch).total for kind in (profiled.block.kind, HEAD))
    return rest[0] + block[0] * head / own, rest[1] + block[1] * head / own


def _optimizer(runs: Runs, profiled: Profiled, no_head: bool) -> dict[str, float]:
    """Seconds per parameter, (3); nothing where every step was rounded to zero."""
    model, rates = profiled.model, []
    for by_tp in runs.values():
        for tp, run in by_tp.items():
            head = 0 if no_head else model.head_parameters(tp)
            held = PROFILED_BLOCKS * profiled.block.parameters(tp) + model.embedding_parameters(tp) + head
            rates += [run.update / held] if run.update > 0 else []
    return {profiled.device.name: median(rates)} if rates else {}


def _basis(
    path: Path, profiled: Profiled, rows: list[CostRow], info: Path | None, kept: Collection[int], estimate_head: bool
) -> str:
    """Where the figures come from, a line each."""
    how = profiled.precision + (", products above its peak rate, so in TF32" if profiled.above_own_peak(rows) else "")
    lines = [
        f"Sailor {path.name}: {profiled.model.name} on {profiled.device.name}, measured in {how}",
        "backward split by FLOP; tensor-parallel all-reduces taken out of the blocks by those of the embedding",
    ]
    if info is None:
        lines.append("activation bytes by formula")
    else:
        formulas = sorted({row.tp for row in rows}.difference(kept))
        but = f", at tp {', '.join(map(str, formulas))} by formula" if formulas else ""
        lines.append(f"activation bytes of {info.name}{but}")
    if estimate_head:
        lines.append("head estimated at the rate of the blocks, as the profile has none")
    return ";\n".join(lines)
