r"""
Least seconds that every kind of stage recomputes under the memory limit.

By ``taut.formulations.aceso.pieces`` a stage is of a kind: how it begins (with a layer, inside one at operator x, or
with the head), k whole layers, and the piece that ends it; or a single piece. With :math:`j` stages behind it,
:math:`w` its weights, :math:`u` what the allocator holds, :math:`A` all its activations and :math:`M` the limit,
(4) of ``taut.formulations.aceso.formula`` asks that the saved bytes be at least

(1) :math:`D(P) = A - (M - 8 w - \max(u, w) - P) / (j + 1)`

for a largest run :math:`P`. So the least seconds are, over :math:`P` and options :math:`p, q` of the first and the last
piece with runs of at most :math:`P`, the minimum of

(2) :math:`c_p + c_q + F_k(D(P) - s_p - s_q)`

with :math:`F_k` of ``taut.formulations.aceso.option_lists``. By *cautious* lists a plan whose kinds fit the table fits
the formula. By the others no plan that fits recomputes for fewer seconds than the table says: they bound the formula
from below.
"""

from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.readers.aceso.operators import Operators
from taut.formulations.aceso.formula import BYTES_OF_WEIGHTS
from taut.formulations.aceso.option_lists import OptionLists, option_lists, unit_bytes, whole_layers
from taut.formulations.aceso.stage_needs import Local, local_figures, needs
from taut.formulations.compiled import jit

TOLERANCE = 1.0
"""Bytes by which sums of the same figures may differ."""


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

    Parameters
    ----------
    operators
        At the stage's micro-batch and tensor degree.
    limit
        Bytes that a device may have.
    behind
        The most stages behind one.
    layers
        The most whole layers before the last piece.
    cautious
        Whether to round so that what fits by the table fits by the formula; else so that nothing takes less.
    """
    unit = unit_bytes(operators, layers)
    lists = option_lists(operators, unit, cautious=cautious)
    whole, offsets = whole_layers(lists, layers)
    share = np.array([1.0, unit, TOLERANCE if cautious else -TOLERANCE])
    return StageTable(*_fill(local_figures(operators), lists, whole, offsets, limit, (behind, layers), share))


@jit
def least_recomputation(
    lists: OptionLists,
    whole: Floats,
    offsets: Ints,
    parts: tuple[int, int, int],
    need: tuple[float, float],
    share: Floats,
) -> tuple[float, int, int, int, int]:
    """
    Minimum of (2), with its cluster, the options of the first and the last piece, and the units that layers save.

    Parameters
    ----------
    lists, whole, offsets
        Options and F.
    parts
        The piece that begins the stage or -1, the number of whole layers, the piece that ends it.
    need
        Bytes of activations, and bytes for them and the run.
    share
        Number of their copies, bytes of a unit, tolerance.
    """
    begins, layers, ends = parts
    best, found = np.inf, (0, -1, -1, 0)
    most = offsets[layers + 1] - offsets[layers] - 1
    for cluster in range(len(lists.runs)):
        if need[1] < lists.runs[cluster] + share[2]:
            break
        asked = need[0] - (need[1] - lists.runs[cluster]) / share[0] + share[2]
        units = 0 if asked <= 0.0 else int(np.ceil(asked / share[1] - 1e-9))
        for last in range(lists.start[cluster, ends], lists.start[cluster, ends + 1]):
            if lists.seconds[last] >= best:
                break
            first, end = (lists.start[cluster, begins], lists.start[cluster, begins + 1]) if begins >= 0 else (0, 1)
            for place in range(first, end):
                seconds, missing = lists.seconds[last], units - lists.units[last]
                if begins >= 0:
                    seconds += lists.seconds[place]
                    missing -= lists.units[place]
                if seconds >= best:
                    break
                missing = max(missing, 0)
                if missing <= most and seconds + whole[cluster, offsets[layers] + missing] < best:
                    best = seconds + whole[cluster, offsets[layers] + missing]
                    found = cluster, place, last, missing
    return best, *found


@jit
def _fill(
    local: Local, lists: OptionLists, whole: Floats, offsets: Ints, limit: float, shape: tuple[int, int], share: Floats
) -> tuple[Floats, Floats, Floats]:
    """Spans, singles and heads of the table; ``shape`` has the most stages behind and whole layers."""
    behind, layers = shape
    layer, most = local.layer, len(local.inputs) - 1
    spans = np.full((behind + 1, layer + 1, most + 1, layers + 1), np.inf)
    singles = np.full((behind + 1, most, most + 1), np.inf)
    head = np.full(behind + 1, np.inf)
    for j in range(behind + 1):
        share[0] = j + 1.0
        alone = local.inputs[0] + local.activations[0] + share[2]
        if (BYTES_OF_WEIGHTS + 1.0) * local.weights[0] + alone * (j + 1) <= limit:
            head[j] = 0.0
        for x in range(1, most):
            for y in range(x + 1, most + 1):
                need = needs(local, 0, 0, x, y, limit)
                parts = -1, 0, layer + most * x + y - 1
                singles[j, x, y] = least_recomputation(lists, whole, offsets, parts, need, share)[0]
        for x in range(layer + 1):
            for y in range(1, most + 1):
                for k in range(layers + 1):
                    need = needs(local, x, k, 0, y, limit)
                    parts = x if 0 < x < layer else -1, k, layer + y - 1
                    spans[j, x, y, k] = least_recomputation(lists, whole, offsets, parts, need, share)[0]
    return spans, singles, head
