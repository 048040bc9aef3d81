r"""
Options of all pieces by run, and the least seconds of whole layers.

``taut.formulations.aceso.pieces`` lists what is worth recomputing in a piece. For every run :math:`P` the options with
runs of at most P stand here, without those that another one equals or betters in seconds and saved bytes, and

(1) :math:`F_k(s) = \min_o c_o + F_{k-1}(s - s_o),\quad F_0(s) = 0` for :math:`s \le 0`, else :math:`\infty`

is the least seconds in which k whole layers save at least s. Saved bytes are counted in units and runs in clusters.
*Cautious* lists round what is saved down and runs up to the largest of the cluster, the others the opposite ways.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.readers.aceso.operators import Operators
from taut.formulations.aceso.pieces import Options, piece_options
from taut.formulations.compiled import jit

UNITS = 30_000
"""Units of the saved bytes of all whole layers of a stage, unless a layer has too few or too many."""
CLUSTERS = 1000
"""Runs are in one cluster if they differ by at most this part of all activations of the list."""


class OptionLists(NamedTuple):
    """
    Options by run and piece: those of piece n among runs up to ``runs[c]`` begin at ``start[c, n]``.

    Piece x < h is the rest of a layer from x on, and piece h + e x + y - 1 what ends a stage as [x, y), where a layer
    with what follows the last one has e operators.
    """

    runs: Floats
    start: Ints
    seconds: Floats
    units: Ints
    bits: Ints


def unit_bytes(operators: Operators, layers: int) -> float:
    """Bytes of a unit, where a stage has at most so many whole layers: 250 to 2,000 units a layer."""
    layer = slice(operators.head, operators.head + operators.layer)
    return max(float(operators.activations[layer].sum()) / min(max(UNITS // (layers + 1), 250), 2000), 1.0)


def option_lists(operators: Operators, unit: float, *, cautious: bool) -> OptionLists:
    """Options of every piece, once for every cluster of runs, with saved bytes in these units."""
    pieces = _pieces(operators, cautious)
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
                lists.append(_staircase(pieces[number], top, unit, cautious))
                count += len(lists[-1][0])
        start[cluster, numbers] = count
    seconds, units, bits = (np.concatenate(parts) for parts in zip(*lists, strict=True))
    return OptionLists(largest if cautious else least, start, seconds, units, bits)


def _pieces(operators: Operators, cautious: bool) -> dict[int, Options]:
    """Options of every piece by its number."""
    layer, most = operators.layer, operators.layer + operators.tail
    rests = {x: piece_options(operators, x, layer, ends=False, cautious=cautious) for x in range(layer)}
    ends = {
        layer + most * x + y - 1: piece_options(operators, x, y, ends=True, cautious=cautious)
        for x in range(most)
        for y in range(x + 1, most + 1)
    }
    return rests | ends


def _clusters(runs: Floats, width: float) -> tuple[Floats, Floats]:
    """Least and largest run of every cluster, ascending; the first is 0 alone."""
    ends: list[tuple[float, float]] = [(0.0, 0.0)]
    for run in np.unique(runs[runs > 0]).tolist():
        if len(ends) > 1 and run - ends[-1][0] <= width:
            ends[-1] = ends[-1][0], run
        else:
            ends.append((run, run))
    return np.array([least for least, _ in ends]), np.array([largest for _, largest in ends])


def _staircase(options: Options, top: float, unit: float, cautious: bool) -> tuple[Floats, Ints, Ints]:
    """Options with runs up to the top: seconds and saved units, both ascending, and their operators."""
    fits = options.run <= top
    share = options.saved[fits] / unit
    units = (np.floor(share + 1e-9) if cautious else np.ceil(share - 1e-9)).astype(np.int64)
    better = units > np.concatenate([[-1], np.maximum.accumulate(units)[:-1]])
    return options.seconds[fits][better], units[better], options.bits[fits][better]


@jit
def whole_layers(lists: OptionLists, layers: int) -> tuple[Floats, Ints]:
    """F of (1) by cluster, and where the part of k layers begins; saved units from 0 to k times the most of a layer."""
    clusters = len(lists.runs)
    most = 0
    for cluster in range(clusters):
        for place in range(lists.start[cluster, 0], lists.start[cluster, 1]):
            most = max(most, lists.units[place])
    offsets = np.zeros(layers + 2, np.int64)
    for k in range(layers + 1):
        offsets[k + 1] = offsets[k] + k * most + 1
    found = np.full((clusters, offsets[layers + 1]), np.inf)
    for cluster in range(clusters):
        found[cluster, 0] = 0.0
        for k in range(1, layers + 1):
            before, here = offsets[k - 1], offsets[k]
            for place in range(lists.start[cluster, 0], lists.start[cluster, 1]):
                took, saved = lists.seconds[place], lists.units[place]
                for units in range(min(k * most, (k - 1) * most + saved) + 1):
                    seconds = took + found[cluster, before + max(0, units - saved)]
                    if seconds < found[cluster, here + units]:
                        found[cluster, here + units] = seconds
    return found, offsets
