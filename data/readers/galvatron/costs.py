r"""
Cost table from Galvatron's profiles, ``computation_profiling_*.json``.

``layernum[n]_bszB_seqS`` are the milliseconds of a forward pass of a model cut down to n layers, with a micro-batch of
B samples of S tokens; older files leave ``_seqS`` out. Galvatron (PKU-DAIR/Hetu-Galvatron) times the forward pass alone
(``profile_forward``), on one GPU, so at tensor degree 1 only, without recomputation. With :math:`t_n` the seconds at n
layers, :math:`p < q` the least and the greatest n:

(1) a layer takes :math:`(t_q - t_p) / (q - p)` forward, and what is left, :math:`t_p - p (t_q - t_p) / (q - p)`, is
    embedding and head: the embedding reads and writes its rows at the device's memory rate, the rest is head. More than
    two n give a spread, the range of the slopes between neighbours over (1);
(2) every backward pass takes twice its forward pass, as Galvatron's cost model has it (``bct_fct_coe = 2``), and is
    split by the FLOP of its parts (``taut.data.readers.measured_layer``);
(3) activations that stay are measured if a memory profile is given, for full recomputation too; otherwise by formula.

``layertype_*`` entries repeat (1) and are not read. There is no figure of the optimizer.

A memory profile, ``memory_profiling_*.json``, has activations by strategy ``PP_TP_DP``. The suffix ``_c`` is
full recomputation, ``_vtp`` a split vocabulary, ``_sp`` sequence parallelism. Under a strategy,
``layernum[n]_bszB_seqS_rankR_act`` are MiB allocated on rank R between the begin and the end of a forward pass of B
samples over all devices; older files leave ``_seqS`` out. Read are strategies of :math:`w` replicas, pp = tp = 1, where
sequence parallelism changes nothing, on rank 0. A device holds :math:`B / w` samples, so with :math:`a_n` the bytes at
n layers, :math:`p < q` the least and the greatest n, one sample keeps

(4) :math:`(a_q - a_p) / (q - p) \cdot w / B` in a layer;
(5) :math:`a_p w / B` less p times that in embedding and head.

Of several strategies, and several B, the one that keeps most in a layer is taken.
"""

import re
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from taut.data.costs import RECOMPUTE, CostRow, CostTable, Recompute
from taut.data.device import DeviceSpec, Precision
from taut.data.layers.layer import EMBEDDING, HEAD
from taut.data.model import ModelSpec
from taut.data.read import read_json
from taut.data.readers.measured_layer import Pass, Profiled
from taut.data.spec import name_of_file, shorten
from taut.data.units import MIB, MILLISECOND
from taut.errors import DataError

MOST_MIB = 1e9

_STRATEGY = re.compile(r"1_1_([1-9]\d{0,6})(_c)?(?:_sp)?")
_MEMORY_KEY = re.compile(r"layernum\[([1-9]\d{0,3})\]_bsz([1-9]\d{0,6})(?:_seq([1-9]\d{0,7}))?_rank0_act")


class Kept(NamedTuple):
    """Bytes that one sample keeps in a layer, and in embedding and head together."""

    layer: float
    rest: float


def read_galvatron_memory(path: Path, seq: int) -> dict[str, Kept]:
    """Bytes of a sample's activations by recompute; ``DataError`` if no figures are of one replica a device."""
    found: dict[str, Kept] = {}
    for strategy, figures in read_json(path, "a memory profile of Galvatron").items():
        match = _STRATEGY.fullmatch(strategy)
        if not match:
            continue
        recompute = "full" if match[2] else "none"
        for kept in _kept(figures, int(match[1]), seq, f"{path}: {strategy}"):
            found[recompute] = max(found.get(recompute, kept), kept)
    if "none" not in found:
        raise DataError(f"{path}: has no 1_1_DP with act at two numbers of layers and seq {seq}, expected one")
    return found


def _kept(figures: object, replicas: int, seq: int, where: str) -> list[Kept]:
    """One entry for every batch size with two numbers of layers."""
    if not isinstance(figures, dict):
        raise DataError(f"{where}: is {shorten(figures)}, expected an object of figures")
    by_batch: dict[int, dict[int, float]] = {}
    for key, value in figures.items():
        match = _MEMORY_KEY.fullmatch(key)
        if match and (match[3] is None or int(match[3]) == seq):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MOST_MIB:
                raise DataError(f"{where}.{key}: is {shorten(value)}, expected MiB above 0, up to {MOST_MIB:g}")
            if by_batch.setdefault(int(match[2]), {}).setdefault(int(match[1]), value * MIB) != value * MIB:
                raise DataError(f"{where}.{key}: stands there with and without its tokens, expected once")
    return [
        _of_one_sample(act, batch / replicas, f"{where} at bsz {batch}")
        for batch, act in by_batch.items()
        if len(act) > 1
    ]


def _of_one_sample(act: dict[int, float], samples: float, where: str) -> Kept:
    few, many = min(act), max(act)
    layer = (act[many] - act[few]) / (many - few) / samples
    rest = act[few] / samples - few * layer
    if not (layer > 0 and rest >= 0):
        shown = f"{act[few] / MIB:g} MiB for {few} layers and {act[many] / MIB:g} for {many}"
        raise DataError(f"{where}: act is {shown}, expected more for more layers, and not less for embedding and head")
    return Kept(layer, rest)


BACKWARD_OVER_FORWARD = 2.0
MOST_MS = 1e9

_KEY = re.compile(r"layernum\[([1-9]\d{0,3})\]_bsz([1-9]\d{0,6})(?:_seq([1-9]\d{0,7}))?")

Times = dict[int, dict[int, float]]
"""Seconds by micro-batch and number of layers, both ascending."""


def read_galvatron(
    path: Path,
    model: ModelSpec,
    device: DeviceSpec,
    *,
    memory: Path | None = None,
    precision: Precision = "bf16",
    fused_attention: bool = True,
) -> CostTable:
    """Rows at tensor degree 1 of a ``computation_profiling_*.json``, and the memory profile beside it."""
    profiled = Profiled(model=model, device=device, precision=precision, fused_attention=fused_attention)
    times = _times(path, profiled.block.seq)
    used = {batch: by_layers for batch, by_layers in times.items() if len(by_layers) > 1}
    if not used:
        raise DataError(f"{path}: has one number of layers at every bsz, expected two at least, to tell layers apart")
    kept = {} if memory is None else read_galvatron_memory(memory, profiled.block.seq)
    rows = [row for batch, by_layers in used.items() for row in _rows(profiled, batch, by_layers, kept, path)]
    lines = [
        f"Galvatron {path.name}: {model.name} on {device.name}, forward measured in {precision} at tp 1 alone",
        "backward taken as twice the forward pass and split by FLOP; head is what layers and embedding leave",
        "activation bytes by formula" if memory is None else f"activation bytes of {memory.name}",
    ]
    left = sorted(times.keys() - used.keys())
    lines += [f"left out, with one number of layers: bsz {', '.join(map(str, left))}"] if left else []
    return CostTable(name=name_of_file(path.stem), basis=";\n".join(lines), rows=rows)


def _times(path: Path, seq: int) -> Times:
    """Seconds at a sequence length."""
    found: Times = {}
    others = set()
    for key, value in read_json(path, "a computation profile of Galvatron").items():
        if key.startswith("layertype_"):
            continue
        match = _KEY.fullmatch(key)
        if not match:
            expected = "layernum[LAYERS]_bszSAMPLES_seqTOKENS, of whole layers of one kind"
            raise DataError(f"{path}: has the key {shorten(key)}, expected {expected}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MOST_MS:
            raise DataError(f"{path}: {key}: is {shorten(value)}, expected milliseconds above 0, up to {MOST_MS:g}")
        layers, batch = int(match[1]), int(match[2])
        if match[3] is not None and int(match[3]) != seq:
            others.add(int(match[3]))
        elif found.setdefault(batch, {}).setdefault(layers, value * MILLISECOND) != value * MILLISECOND:
            raise DataError(f"{path}: {key}: stands there with and without its tokens, expected once")
    if not found:
        has = f"has seq {', '.join(map(str, sorted(others)))}" if others else "has no times"
        raise DataError(f"{path}: {has}, expected times at seq {seq}")
    return {batch: dict(sorted(by_layers.items())) for batch, by_layers in sorted(found.items())}


def _rows(
    profiled: Profiled, batch: int, by_layers: dict[int, float], kept: dict[str, Kept], path: Path
) -> list[CostRow]:
    """Rows of embedding, block and head at one micro-batch."""
    where, kind = f"{path}: bsz {batch}", profiled.block.kind
    layer, rest, spread = _layer_and_rest(by_layers, where)
    bandwidth = profiled.device.memory_efficiency * profiled.device.memory_bandwidth
    embedding = min(2 * batch * profiled.output_bytes / bandwidth, max(rest, 0.0))
    in_embedding, in_head = _shared(profiled, batch, kept.get("none"))
    blocks = [
        profiled.row(
            kind, 1, batch, _passes(layer), f"{where}: layer", kept=in_layer, recompute=recompute, spread=spread
        )
        for recompute, in_layer in _in_layer(batch, kept)
    ]
    return [
        profiled.row(EMBEDDING, 1, batch, _passes(embedding), f"{where}: embedding", kept=in_embedding),
        *blocks,
        profiled.row(HEAD, 1, batch, _passes(rest - embedding), f"{where}: head, what is left,", kept=in_head),
    ]


def _layer_and_rest(by_layers: dict[int, float], where: str) -> tuple[float, float, float | None]:
    """Forward seconds of a layer and of embedding and head together, and the spread if there is any, (1)."""
    slopes = []
    for (fewer, least), (more, most) in pairwise(by_layers.items()):
        if not most > least:
            given = f"{least / MILLISECOND:g} ms for {fewer} layers and {most / MILLISECOND:g} for {more}"
            raise DataError(f"{where}: {given}, expected more for more layers")
        slopes.append((most - least) / (more - fewer))
    few, many = min(by_layers), max(by_layers)
    layer = (by_layers[many] - by_layers[few]) / (many - few)
    spread = (max(slopes) - min(slopes)) / layer if len(slopes) > 1 else None
    return layer, by_layers[few] - few * layer, spread


def _passes(forward: float) -> Pass:
    """Both passes, (2)."""
    return forward, BACKWARD_OVER_FORWARD * forward


def _in_layer(batch: int, kept: dict[str, Kept]) -> list[tuple[Recompute, int | None]]:
    """Bytes of a layer by recomputation; by formula without a memory profile."""
    if not kept:
        return [("none", None)]
    return [(recompute, round(batch * kept[recompute].layer)) for recompute in RECOMPUTE if recompute in kept]


def _shared(profiled: Profiled, batch: int, kept: Kept | None) -> tuple[int | None, int | None]:
    """Bytes of embedding and head: what is measured of both, in the proportion of the formulas."""
    if kept is None:
        return None, None
    embedding, head = (profiled.kept_bytes(kind, 1, batch) for kind in (EMBEDDING, HEAD))
    measured = batch * kept.rest
    return round(measured * embedding / (embedding + head)), round(measured * head / (embedding + head))
