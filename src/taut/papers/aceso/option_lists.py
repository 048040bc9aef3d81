r"""
Options of all pieces by run, and the least seconds of whole layers.

Pieces are parts of a layer. For every run :math:`P` the options with
runs of at most P stand here, without those that another one equals or betters in seconds and saved bytes, and

(1) :math:`F_k(s) = \min_o c_o + F_{k-1}(s - s_o),\quad F_0(s) = 0` for :math:`s \le 0`, else :math:`\infty`

is the least seconds in which k whole layers save at least s, kept apart by whether the first operator of the first
layer is recomputed, and that of what follows the last. Saved bytes are counted in whole units, which divide the
activations of nearly all operators, and runs in clusters, as the largest one by *cautious* lists and as the least by
others. ``loss`` is the most that an option saves beyond its units, which lists that are not cautious allow every piece,
with ``slack`` bytes of rounding in the whole.

Operators are counted from the start of a layer, and those behind the last layer go on counting: a *piece*
:math:`[x, y)` is a part of a layer, of the last one with what follows it. Every stage is the head or nothing, at most
one piece that begins inside a layer and ends with it, whole layers, and one piece that ends the stage. As nothing is
saved where a layer opens, seconds and saved bytes of ``taut.papers.aceso.formula`` (1), (3) are sums over pieces
and the largest run is the largest of theirs; the head is never worth recomputing.

Only one thing crosses from a piece to the next: if the last operator of a layer is recomputed and the first of the next
layer too, the last one's activations lengthen the run. So options are listed by whether their first operator is
recomputed and whether what follows them begins with one that is.

An option of a piece is a set of operators; those stay that no other one equals or betters in seconds, saved bytes and
run together. An operator recomputed without its neighbours saves nothing and is in none.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.units import MIB
from taut.formulations.compiled import jit
from taut.papers.aceso.operators import Operators


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a piece by seconds ascending: seconds, saved bytes, bytes of the run, and a bit for each operator."""

    seconds: Floats
    saved: Floats
    run: Floats
    bits: Ints


def piece_options(operators: Operators, first: int, end: int, *, opens: bool | None, follows: bool | None) -> Options:
    """Options of a piece; ``opens``, ``follows``: whether its and the next layer's first operator are recomputed."""
    kinds = np.arange(first, end) + operators.head
    arrays = operators.forward[kinds], operators.activations[kinds], operators.shares[kinds]
    seconds, saved, run, bits = _patterns(*arrays, -1 if opens is None else int(opens), follows is None, bool(follows))
    order = np.lexsort((run, -saved, seconds))
    kept = _undominated(saved[order], run[order])
    return Options(seconds[order][kept], saved[order][kept], run[order][kept], bits[order][kept])


@jit
def _patterns(
    forward: Floats, held: Floats, shares: Flags, opens: int, ends: bool, follows: bool
) -> tuple[Floats, Floats, Floats, Ints]:
    """Seconds, saved bytes and run of every set without isolated operators: with the first, without, or (-1) both."""
    count = len(forward)
    seconds, saved = np.empty(1 << count), np.empty(1 << count)
    run, bits = np.empty(1 << count), np.empty(1 << count, np.int64)
    found = 0
    for pattern in range(1 << count):
        if (opens >= 0 and pattern & 1 != opens) or pattern & ~((pattern << 1) | (pattern >> 1)):
            continue
        took = kept_away = longest = length = 0.0
        for place in range(count):
            if pattern >> place & 1:
                took += forward[place]
            if place + 1 == count:
                break
            if (pattern >> place & 3) == 3:
                kept_away += held[place]
                length += held[place]
                if ends and not shares[place] and place + 2 == count:
                    longest = max(longest, length)
                    length = 0.0
            else:
                longest = max(longest, length)
                length = 0.0
        if not ends:
            if follows and pattern >> (count - 1) & 1:
                length += held[count - 1]
            longest = max(longest, length)
        seconds[found], saved[found], run[found], bits[found] = took, kept_away, longest, pattern
        found += 1
    return seconds[:found], saved[:found], run[:found], bits[:found]


@jit
def _undominated(saved: Floats, run: Floats) -> Ints:
    """Places, in a list by ascending seconds, of what no earlier place equals or betters in both."""
    kept = np.empty(len(saved), np.int64)
    count = 0
    for place in range(len(saved)):
        good = True
        for other in range(count):
            if saved[kept[other]] >= saved[place] and run[kept[other]] <= run[place]:
                good = False
                break
        if good:
            kept[count] = place
            count += 1
    return kept[:count]


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
    """F of (1) for runs of a cluster, by what follows, what opens and saved units; k layers begin at ``offsets[k]``."""
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
