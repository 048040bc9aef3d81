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
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit, jit_inside
from taut.papers.aceso.formula import BYTES_OF_WEIGHTS
from taut.papers.aceso.operators import Operators
from taut.papers.aceso.option_lists import (
    OptionLists,
    end_piece,
    layer_offsets,
    option_lists,
    rest_piece,
    whole_layers,
)


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
    """
    A and M - 8 w - max(u, w) of a stage that ends with the piece [first, end).

    Before it stand the head if ``begins`` is the number of operators in a layer, the rest of a layer from ``begins`` on
    if that is above 0, and then whole ``layers``.
    """
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
    """
    The table for a micro-batch and a tensor degree.

    ``operators``: at the stage's micro-batch and tensor degree; ``limit``: bytes that a device may have; ``behind``:
    the most stages behind one; ``layers``: the most whole layers before the last piece; ``cautious``: whether to round
    so that what fits by the table fits by the formula; else so that nothing takes less.
    """
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
    """
    Minimum of (2) over the runs of a cluster, or what is known if that is less.

    ``lists``, ``cluster``, ``whole``, ``offsets``: options, the cluster, and F for it; ``parts``: the piece that begins
    the stage or -1, the number of whole layers, the piece that ends it, if its first operator is not recomputed;
    ``need``: bytes of activations, and bytes for them and the run; ``copies``: number of copies of what stays, j + 1;
    ``known``: seconds of what is known. Returns the minimum. Options of the first and the last piece, units that layers
    save, whether the last piece and the first layer open with an operator that is recomputed; the options are -1 where
    nothing is better than what is known.
    """
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
