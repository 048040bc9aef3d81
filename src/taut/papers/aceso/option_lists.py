r"""
Options of all pieces by run, and the least seconds of whole layers.

``taut.papers.aceso.pieces`` lists what is worth recomputing in a piece. For every run :math:`P` the options with
runs of at most P stand here, without those that another one equals or betters in seconds and saved bytes, and

(1) :math:`F_k(s) = \min_o c_o + F_{k-1}(s - s_o),\quad F_0(s) = 0` for :math:`s \le 0`, else :math:`\infty`

is the least seconds in which k whole layers save at least s, kept apart by whether the first operator of the first
layer is recomputed, and that of what follows the last. Saved bytes are counted in whole units, which divide the
activations of nearly all operators, and runs in clusters, as the largest one by *cautious* lists and as the least by
others. ``loss`` is the most that an option saves beyond its units, which lists that are not cautious allow every piece,
with ``slack`` bytes of rounding in the whole.
"""

import math
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.units import MIB
from taut.formulations.compiled import jit
from taut.papers.aceso.operators import Operators
from taut.papers.aceso.pieces import Options, piece_options

UNITS = 2000
"""The most units of the saved bytes of a layer."""
TOLERANCE = 1.0
"""Bytes by which sums of the same figures may differ."""
CLUSTERS = 1000
"""Runs are in one cluster if they differ by at most this part of all activations of the list."""


class OptionLists(NamedTuple):
    """
    Options by run and piece: those of piece n among runs up to ``runs[c]`` begin at ``start[c, n]``.

    With f = 1 if a piece's first operator is recomputed, else 0, and c likewise for the next layer, a whole layer is
    piece 2 f + c; ``rest_piece`` and ``end_piece`` number the others.
    """

    runs: Floats
    start: Ints
    seconds: Floats
    units: Ints
    bits: Ints
    unit: float
    loss: float
    slack: float


def unit_bytes(operators: Operators) -> float:
    """The largest number of half MiB that divides the activations of all operators, rounded down to half MiB."""
    halves = np.floor(2 * operators.activations[operators.head :] / MIB + 1e-9).astype(np.int64)
    layer = float(operators.activations[operators.head : operators.head + operators.layer].sum())
    return max(math.gcd(*halves.tolist()) * MIB / 2, layer / UNITS, 1.0)


def option_lists(operators: Operators, *, cautious: bool) -> OptionLists:
    """Options of every piece, once for every cluster of runs."""
    unit = unit_bytes(operators)
    pieces = _pieces(operators)
    width = float(operators.activations.sum()) / CLUSTERS
    least, largest = _clusters(np.concatenate([each.run for each in pieces.values()]), width)
    numbers = max(pieces) + 1
    start = np.zeros((len(least), numbers + 1), dtype=np.int64)
    lists: list[tuple[Floats, Ints, Ints]] = []
    count = 0
    for cluster, top in enumerate(largest):
        for number in range(numbers):
            start[cluster, number] = count
            if number in pieces:
                lists.append(_staircase(pieces[number], top, unit))
                count += len(lists[-1][0])
        start[cluster, numbers] = count
    seconds, units, bits = (np.concatenate(parts) for parts in zip(*lists, strict=True))
    if cautious:
        return OptionLists(largest, start, seconds, units, bits, unit, 0.0, 0.0)
    loss = max(float((each.saved - _units(each.saved, unit) * unit).max(initial=0.0)) for each in pieces.values())
    return OptionLists(least, start, seconds, units, bits, unit, loss, TOLERANCE)


@jit
def rest_piece(first: int, follows: int) -> int:
    """Number of the rest of a layer from an operator on, which is not the first, before another layer."""
    return 2 + 2 * first + follows


@jit
def end_piece(layer: int, most: int, first: int, end: int, opens: int) -> int:
    """Number of what ends a stage as [first, end), by the operators of a layer, and with what follows the last one."""
    return 2 + 2 * layer + 2 * (most * first + end - 1) + opens


def _pieces(operators: Operators) -> dict[int, Options]:
    """Options of every piece by its number."""
    layer, most = operators.layer, operators.layer + operators.tail
    found: dict[int, Options] = {}
    for follows in (False, True):
        for opens in (False, True):
            found[2 * opens + follows] = piece_options(operators, 0, layer, opens=opens, follows=follows)
        for x in range(1, layer):
            found[rest_piece(x, follows)] = piece_options(operators, x, layer, opens=None, follows=follows)
    for y in range(1, most + 1):
        for opens in (False, True):
            found[end_piece(layer, most, 0, y, opens)] = piece_options(operators, 0, y, opens=opens, follows=None)
        for x in range(1, y):
            found[end_piece(layer, most, x, y, 0)] = piece_options(operators, x, y, opens=None, follows=None)
    return found


def _clusters(runs: Floats, width: float) -> tuple[Floats, Floats]:
    """Least and largest run of every cluster, ascending; the first is 0 alone."""
    ends: list[tuple[float, float]] = [(0.0, 0.0)]
    for run in np.unique(runs[runs > 0]).tolist():
        if len(ends) > 1 and run - ends[-1][0] <= width:
            ends[-1] = ends[-1][0], run
        else:
            ends.append((run, run))
    return np.array([least for least, _ in ends]), np.array([largest for _, largest in ends])


def _units(saved: Floats, unit: float) -> Ints:
    return np.floor(saved / unit + 1e-9).astype(np.int64)


def _staircase(options: Options, top: float, unit: float) -> tuple[Floats, Ints, Ints]:
    """Options with runs up to the top: seconds and saved units, both ascending, and their operators."""
    fits = options.run <= top
    units = _units(options.saved[fits], unit)
    better = units > np.concatenate([[-1], np.maximum.accumulate(units)[:-1]])
    return options.seconds[fits][better], units[better], options.bits[fits][better]


@jit
def layer_offsets(lists: OptionLists, cluster: int, layers: int) -> Ints:
    """Where the part of k layers begins in ``whole_layers``: 0 to k times the most units that a layer saves."""
    most = 0
    for place in range(lists.start[cluster, 0], lists.start[cluster, 4]):
        most = max(most, lists.units[place])
    offsets = np.zeros(layers + 2, np.int64)
    for k in range(layers + 1):
        offsets[k + 1] = offsets[k] + k * most + 1
    return offsets


@jit
def whole_layers(lists: OptionLists, cluster: int, offsets: Ints) -> Floats:
    """
    F of (1) for runs of a cluster, by whether what follows and what begins the layers is recomputed, and saved units.

    The units of k layers begin at ``offsets[k]``.
    """
    layers = len(offsets) - 2
    found = np.full((2, 2, offsets[layers + 1]), np.inf)
    for follows in range(2):
        found[follows, follows, 0] = 0.0
        for k in range(1, layers + 1):
            before, here = offsets[k - 1], offsets[k]
            reach, most = offsets[k] - offsets[k - 1], offsets[k + 1] - offsets[k]
            for piece in range(4):
                opens, behind = piece // 2, piece % 2
                for place in range(lists.start[cluster, piece], lists.start[cluster, piece + 1]):
                    took, saved = lists.seconds[place], lists.units[place]
                    for units in range(min(most, reach + saved)):
                        seconds = took + found[follows, behind, before + max(0, units - saved)]
                        if seconds < found[follows, opens, here + units]:
                            found[follows, opens, here + units] = seconds
    return found
