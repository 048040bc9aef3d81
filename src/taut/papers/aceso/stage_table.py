r"""
Options of all pieces by run, and the least seconds that every kind of stage recomputes under the memory limit.

Pieces are parts of a layer. For every run :math:`P` the options with runs of at most P stand here, without those that
another one equals or betters in seconds and saved bytes, and

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

A stage is of a kind: how it begins (with a layer, inside one at operator x, or
with the head), k whole layers, and the piece that ends it; or a single piece. With :math:`j` stages behind it,
:math:`w` its weights, :math:`u` what the allocator holds, :math:`A` all its activations and :math:`M` the limit,
(5) of ``taut.papers.aceso.formula`` asks that the saved bytes be at least

(2) :math:`D(P) = A - (M - 8 w - \max(u, w) - P) / (j + 1)`

for a largest run :math:`P`. So the least seconds are, over :math:`P` and options :math:`p, q` of the first and the last
piece with runs of at most :math:`P`, the minimum of

(3) :math:`c_p + c_q + F_k(D(P) - s_p - s_q)`

with :math:`F_k` of (1). By *cautious* lists a plan whose kinds fit the table fits
the formula. By the others no plan that fits recomputes for fewer seconds than the table says: they bound the formula
from below.

The choice behind a figure of a cautious table is traced back: one stage is solved in the same way, and the options of
its pieces and whole layers give its operators. It fits by the formula, as cautious lists save no more than they say.

Aceso's own rule is another (EuroSys 2024, section 4.3, as its program has it). Operators of one kind form a group.
While the stage is above the memory limit, the group with the largest activations that is not done yet is recomputed,
from its first member on and with no more members than the excess needs, each with the operator behind it; the group of
that operator counts as done too. The embedding, the output layer and the norm that opens a layer are never chosen.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.units import MIB
from taut.formulations.compiled import jit, jit_inside
from taut.papers.aceso.formula import BYTES_OF_WEIGHTS, stage_bytes
from taut.papers.aceso.operators import NEVER_CHOSEN, Operators


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


class Local(NamedTuple):
    """Number of operators in a layer; of the head, a layer and the tail in this order inputs, weights and so on."""

    layer: int
    inputs: Floats
    weights: Floats
    activations: Floats
    reserved_forward: Floats
    reserved_backward: Floats


def local_figures(operators: Operators) -> Local:
    """The figures of operators that the memory depends on."""
    return Local(
        operators.layer,
        operators.inputs,
        operators.weights,
        operators.activations,
        operators.reserved_forward,
        operators.reserved_backward,
    )


@jit
def needs(local: Local, begins: int, layers: int, first: int, end: int, limit: float) -> tuple[float, float]:
    """A and M - 8 w - max(u, w) of a stage of some begin, whole ``layers`` and the piece [first, end) at its end."""
    sums = np.zeros(4)
    opens = 1 + first
    if begins == local.layer:
        _add(local, sums, 0, 1, 1)
        opens = 0
    elif begins > 0:
        _add(local, sums, 1 + begins, 1 + local.layer, 1)
        opens = 1 + begins
    if layers > 0:
        _add(local, sums, 1, 1 + local.layer, layers)
    _add(local, sums, 1 + first, end, 1)
    weights = sums[0] + local.weights[end]
    held = sums[1] + local.activations[end] + local.inputs[opens]
    return held, limit - BYTES_OF_WEIGHTS * weights - max(sums[2] + sums[3], weights)


@jit_inside
def _add(local: Local, sums: Floats, start: int, stop: int, times: int) -> None:
    """Add weights and activations of operators, so many times, and raise what the allocator holds."""
    for place in range(start, stop):
        sums[0] += times * local.weights[place]
        sums[1] += times * local.activations[place]
        sums[2] = max(sums[2], local.reserved_forward[place])
        sums[3] = max(sums[3], local.reserved_backward[place])


@dataclass(frozen=True, slots=True)
class StageTable:
    """
    Seconds of recomputation, infinite where a kind does not fit.

    ``spans[j, x, y, k]``: with j stages behind, from operator x of a layer (0: from its start; h, the number of
    operators in a layer: from the head), k whole layers, and the piece [0, y). ``singles[j, x, y]``: the piece [x, y)
    alone. ``head[j]``: the head alone.
    """

    spans: Floats
    singles: Floats
    head: Floats


def stage_table(operators: Operators, limit: float, behind: int, layers: int, *, cautious: bool) -> StageTable:
    """The table for up to so many stages behind one and whole layers; what fits a cautious one fits the formula."""
    lists = option_lists(operators, cautious=cautious)
    return StageTable(*_fill(local_figures(operators), lists, limit, (behind, layers)))


@jit
def least_recomputation(
    lists: OptionLists,
    cluster: int,
    whole: Floats,
    offsets: Ints,
    parts: tuple[int, int, int],
    need: tuple[float, float],
    copies: int,
    known: float,
) -> tuple[float, int, int, int, int, int]:
    """Minimum of (3) over a cluster's runs, or ``known`` with options, units saved, and whether ends are recomputed."""
    begins, layers, ends = parts
    best, found = known, (-1, -1, 0, 0, 0)
    most = offsets[layers + 1] - offsets[layers] - 1
    free = need[1] - lists.runs[cluster] + lists.slack
    if free < 0.0:
        return best, *found
    pieces = layers + (2 if begins >= 0 else 1)
    asked = need[0] - free / copies - pieces * lists.loss
    units = 0 if asked <= 0.0 else int(np.ceil(asked / lists.unit - 1e-9))
    for follows in range(2):
        for last in range(lists.start[cluster, ends + follows], lists.start[cluster, ends + follows + 1]):
            if lists.seconds[last] >= best:
                break
            for opens in range(2):
                if layers == 0 and opens != follows:
                    continue
                first, end = 0, 1
                if begins >= 0:
                    first, end = lists.start[cluster, begins + opens], lists.start[cluster, begins + opens + 1]
                for place in range(first, end):
                    seconds, missing = lists.seconds[last], units - lists.units[last]
                    if begins >= 0:
                        seconds += lists.seconds[place]
                        missing -= lists.units[place]
                    if seconds >= best:
                        break
                    missing = max(missing, 0)
                    if missing <= most:
                        seconds += whole[follows, opens, offsets[layers] + missing]
                        if seconds < best:
                            best, found = seconds, (place, last, missing, follows, opens)
    return best, *found


@jit
def _fill(local: Local, lists: OptionLists, limit: float, shape: tuple[int, int]) -> tuple[Floats, Floats, Floats]:
    """Spans, singles and heads of the table; ``shape`` has the most stages behind and whole layers."""
    behind, layers = shape
    layer, most = local.layer, len(local.inputs) - 1
    spans = np.full((behind + 1, layer + 1, most + 1, layers + 1), np.inf)
    singles = np.full((behind + 1, most, most + 1), np.inf)
    head = np.full(behind + 1, np.inf)
    for j in range(behind + 1):
        alone = (local.inputs[0] + local.activations[0]) * (j + 1)
        if (BYTES_OF_WEIGHTS + 1.0) * local.weights[0] + alone <= limit + lists.slack:
            head[j] = 0.0
    for cluster in range(len(lists.runs)):
        offsets = layer_offsets(lists, cluster, layers)
        whole = whole_layers(lists, cluster, offsets)
        for x in range(most):
            for y in range(x + 1, most + 1):
                ends = end_piece(layer, most, x, y, 0)
                if x > 0:
                    need, parts = needs(local, 0, 0, x, y, limit), (-1, 0, ends)
                    _improve(singles[:, x, y], lists, cluster, whole, offsets, parts, need)
                    continue
                for begins in range(layer + 1):
                    front = rest_piece(begins, 0) if 0 < begins < layer else -1
                    for k in range(layers + 1):
                        need, parts = needs(local, begins, k, 0, y, limit), (front, k, ends)
                        _improve(spans[:, begins, y, k], lists, cluster, whole, offsets, parts, need)
    return spans, singles, head


@jit_inside
def _improve(
    figures: Floats,
    lists: OptionLists,
    cluster: int,
    whole: Floats,
    offsets: Ints,
    parts: tuple[int, int, int],
    need: tuple[float, float],
) -> None:
    """Lower the figures of a kind of stage, by stages behind, to the minimum over the runs of a cluster."""
    for behind in range(len(figures)):
        found = least_recomputation(lists, cluster, whole, offsets, parts, need, behind + 1, figures[behind])
        figures[behind] = found[0]


def recomputed_at_best(operators: Operators, layers: int, where: tuple[int, int, int], limit: float) -> Flags:
    """Operators that the stage ``where`` (first, end, stages behind) recomputes; none where nothing makes it fit."""
    first, end, behind = where
    begins, whole, x, y = kind_of_stage(operators.layer, layers, first, end)
    if y == 0:
        return np.zeros(1, dtype=bool)
    need = needs(local_figures(operators), begins, whole, x, y, limit)
    lists = option_lists(operators, cautious=True)
    front = rest_piece(begins, 0) if 0 < begins < operators.layer else -1
    parts = front, whole, end_piece(operators.layer, operators.layer + operators.tail, x, y, 0)
    best: tuple[float, list[bool]] = (np.inf, [False] * (end - first))
    for cluster in range(len(lists.runs)):
        offsets = layer_offsets(lists, cluster, whole)
        saved = whole_layers(lists, cluster, offsets)
        found = least_recomputation(lists, cluster, saved, offsets, parts, need, behind + 1, best[0])
        seconds, chosen, last, missing, follows, opens = found
        if last >= 0:
            bits = _bits(lists.bits[chosen], operators.layer - begins) if front >= 0 else []
            bits += [False] * (begins == operators.layer)
            for choice in _layer_choices(lists, saved[follows], offsets, cluster, (whole, missing, opens)):
                bits += _bits(lists.bits[choice], operators.layer)
            best = seconds, bits + _bits(lists.bits[last], y - x)
    return np.array(best[1])


def kind_of_stage(layer: int, layers: int, first: int, end: int) -> tuple[int, int, int, int]:
    """How the stage [first, end) begins (0, x, or operators of a layer at the head), whole layers, and end [x, y)."""
    if end == 1:
        return layer, 0, 0, 0
    last_layer = min((end - 2) // layer, layers - 1)
    y = end - 1 - last_layer * layer
    if first == 0:
        return layer, last_layer, 0, y
    first_layer = min((first - 1) // layer, layers - 1)
    x = first - 1 - first_layer * layer
    if x == 0:
        return 0, last_layer - first_layer, 0, y
    if first_layer == last_layer:
        return 0, 0, x, y
    return x, last_layer - first_layer - 1, 0, y


def _layer_choices(
    lists: OptionLists, saved: Floats, offsets: Ints, cluster: int, state: tuple[int, int, int]
) -> list[int]:
    """Options of so many whole layers that together save the units, the first opening as told, in the least seconds."""
    layers, missing, opens = state
    choices = []
    for k in range(layers, 0, -1):
        options = []
        for follows in range(2):
            for place in range(*lists.start[cluster, 2 * opens + follows : 2 * opens + follows + 2]):
                left = max(0, missing - int(lists.units[place]))
                if left < offsets[k] - offsets[k - 1]:
                    took = float(lists.seconds[place] + saved[follows, offsets[k - 1] + left])
                    options.append((took, place, left, follows))
        _, place, missing, opens = min(options)
        choices.append(place)
    return choices


def _bits(pattern: int, count: int) -> list[bool]:
    return [bool(pattern >> place & 1) for place in range(count)]


def recomputed_by_rule(operators: Operators, kinds: Ints, behind: int, limit: float) -> Flags:
    """Operators that the rule recomputes; of a stage above the limit even so, all that it can."""
    flags = np.zeros(len(kinds), dtype=bool)
    done: set[int] = set()
    while (excess := stage_bytes(operators, kinds, flags, behind) - limit) > 0:
        chosen = _largest_group(operators, kinds, done)
        if chosen is None:
            break
        members = np.flatnonzero(kinds == chosen)
        done.add(chosen)
        if members[0] + 1 >= len(kinds):
            break
        done.add(int(kinds[members[0] + 1]))
        sizes = (behind + 1) * operators.measured_activations[chosen] * np.arange(1, len(members) + 1)
        needed = len(members) if sizes[-1] < excess else int(np.searchsorted(sizes, excess, side="right")) + 1
        flags[members[:needed]] = True
        flags[np.minimum(members[:needed] + 1, len(kinds) - 1)] = True
    return flags


def _largest_group(operators: Operators, kinds: Ints, done: set[int]) -> int | None:
    """The kind with the largest activations in the stage, in the order of the stage where several have them."""
    best, size = None, 0.0
    for kind in dict.fromkeys(kinds.tolist()):
        total = float(operators.measured_activations[kind] * (kinds == kind).sum())
        if kind not in done and operators.names[kind] not in NEVER_CHOSEN and total > size:
            best, size = kind, total
    return best
