r"""
Activation bytes that Galvatron measured: ``memory_profiling_*.json``, by strategy ``PP_TP_DP``.

The suffix ``_c`` is full recomputation, ``_vtp`` a split vocabulary, ``_sp`` sequence parallelism. Under a strategy,
``layernum[n]_bszB_seqS_rankR_act`` are MiB allocated on rank R between the begin and the end of a forward pass of B
samples over all devices; older files leave ``_seqS`` out. Read are strategies of :math:`w` replicas, pp = tp = 1, where
sequence parallelism changes nothing, on rank 0. A device holds :math:`B / w` samples, so with :math:`a_n` the bytes at
n layers, :math:`p < q` the least and the greatest n, one sample keeps

(1) :math:`(a_q - a_p) / (q - p) \cdot w / B` in a layer;
(2) :math:`a_p w / B` less p times that in embedding and head.

Of several strategies, and several B, the one that keeps most in a layer is taken.
"""

import re
from pathlib import Path
from typing import NamedTuple

from taut.data.read import read_json
from taut.data.spec import shorten
from taut.data.units import MIB
from taut.errors import DataError

MOST_MIB = 1e9

_STRATEGY = re.compile(r"1_1_([1-9]\d{0,6})(_c)?(?:_sp)?")
_KEY = re.compile(r"layernum\[([1-9]\d{0,3})\]_bsz([1-9]\d{0,6})(?:_seq([1-9]\d{0,7}))?_rank0_act")


class Kept(NamedTuple):
    """Bytes that one sample keeps in a layer, and in embedding and head together."""

    layer: float
    rest: float


def read_galvatron_memory(path: Path, seq: int) -> dict[str, Kept]:
    """
    Bytes of activations under ``none`` and, where the file has it, ``full`` recomputation.

    ``seq``: tokens of a sample; figures without tokens in their key are taken as measured at this length. Returns bytes
    of one sample by recompute. Raises ``DataError`` if the file is no such profile, or has no figures of one replica a
    device without recomputation.
    """
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
        match = _KEY.fullmatch(key)
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
