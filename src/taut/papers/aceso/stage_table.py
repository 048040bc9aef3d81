r"""
Least seconds that every kind of stage recomputes under the memory limit.

By ``taut.papers.aceso.option_lists`` a stage is of a kind: how it begins (with a layer, inside one at operator x, or
with the head), k whole layers, and the piece that ends it; or a single piece. With :math:`j` stages behind it,
:math:`w` its weights, :math:`u` what the allocator holds, :math:`A` all its activations and :math:`M` the limit,
(4) of ``taut.papers.aceso.formula`` asks that the saved bytes be at least

(1) :math:`D(P) = A - (M - 8 w - \max(u, w) - P) / (j + 1)`

for a largest run :math:`P`. So the least seconds are, over :math:`P` and options :math:`p, q` of the first and the last
piece with runs of at most :math:`P`, the minimum of

(2) :math:`c_p + c_q + F_k(D(P) - s_p - s_q)`

with :math:`F_k` of ``taut.papers.aceso.option_lists``. By *cautious* lists a plan whose kinds fit the table fits
the formula. By the others no plan that fits recomputes for fewer seconds than the table says: they bound the formula
from below.

The choice behind a figure of a cautious table is traced back: one stage is solved in the same way, and the options of
its pieces and whole layers give its operators. It fits by the formula, as cautious lists save no more than they say.

Aceso's own rule is another (EuroSys 2024, section 4.3, as its program has it). Operators of one kind form a group.
While the stage is above the memory limit, the group with the largest activations that is not done yet is recomputed,
from its first member on and with no more members than the excess needs, each with the operator behind it; the group of
that operator counts as done too. The embedding, the output layer and the norm that opens a layer are never chosen.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.compiled import jit, jit_inside
from taut.papers.aceso.formula import BYTES_OF_WEIGHTS, stage_bytes
from taut.papers.aceso.operators import NEVER_CHOSEN, Operators
from taut.papers.aceso.option_lists import OptionLists, end_piece, layer_offsets, option_lists, rest_piece, whole_layers


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
    """Minimum of (2) over a cluster's runs, or ``known`` with options, units saved, and whether ends are recomputed."""
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
