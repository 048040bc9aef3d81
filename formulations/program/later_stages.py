r"""
What the strategy program adds where a step waits for all stages, ``taut.formulations.partition`` (1').

Data
    In nanoseconds, rounded down, for stage x of candidate c on layers [i, j) with recompute r and pattern q:
    behind, ``low`` with ``edge`` at j; ahead, ``forward`` with the ``edge`` of later stages at j; R, the stage's
    reduction; o, its optimizer. b is what all stages wait for besides (``others``).

Variables
    :math:`Z \ge 0`, when the last stage has reduced its gradients; :math:`O \ge 0`, the longest optimizer.

Objective
    .. math:: \min \sum_m (m - 1) M_m + Z + O

    in the place of the sum of prices p of such candidates.

Constraints, of every such candidate
    (1) :math:`Z \ge \sum p \, a`;
    (2) :math:`Z \ge \sum_{y < x} ahead \, a + \sum_{y \ge x} behind \, a + \sum_{y = x} R \, a + b u_c` for each x;
    (3) :math:`O \ge \sum o \, a` over stage x, for each x.

Only the chosen candidate has columns that are not 0, so one Z and one O serve all of them.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.units import NANOSECONDS_PER_SECOND
from taut.formulations.partition import LaterStages, PartitionProblem


class Waits(NamedTuple):
    """Nanoseconds of ranges that are stages: ahead, behind, reduction and optimizer, each (A,)."""

    ahead: Ints
    behind: Ints
    reduction: Ints
    optimizer: Ints


def nanoseconds(seconds: Floats) -> Ints:
    """Finite seconds as integer nanoseconds, rounded down."""
    return np.asarray(np.floor(seconds * NANOSECONDS_PER_SECOND), dtype=np.int64)


def waits(
    problem: PartitionProblem, later: LaterStages, edge: Floats, stage: Ints, ranges: tuple[Ints, Ints, Ints, Ints]
) -> Waits:
    """
    What stages on ranges add to the ends of the step.

    ``problem``, ``later``, ``edge``: data of a candidate; ``stage``: number of every stage (A,); ``ranges``: pattern,
    recompute, first and end layer, each (A,).
    """
    pattern, _, first, end = ranges
    assert problem.forward is not None
    low, forward, inner = problem.low[ranges], problem.forward[pattern, first, end], stage < problem.pp - 1
    ring = np.maximum(later.ring[stage], later.class_ring[np.minimum(pattern, len(later.class_ring) - 1)])
    reduction = ring * later.exchanged[first, end]
    if later.overlap:
        reduction = np.maximum(ring * later.unhidden[first, end], reduction - (low - forward))
    reduction = reduction + np.broadcast_to(later.each, problem.pp)[stage]
    return Waits(
        ahead=nanoseconds(forward) + nanoseconds(np.where(inner, later.edge[end], 0.0)),
        behind=nanoseconds(low) + nanoseconds(np.where(inner, edge[end], 0.0)),
        reduction=nanoseconds(reduction),
        optimizer=nanoseconds(later.optimizer * later.parameters[first, end]),
    )


def others(later: LaterStages) -> int:
    """Nanoseconds b that every stage waits for besides."""
    return int(nanoseconds(np.array(later.others)))


def latest(each: Waits, price: int, later: LaterStages) -> int:
    """Nanoseconds Z + O of stages in order, of which ``price`` is the sum of p."""
    before = np.cumsum(each.ahead) - each.ahead
    after = np.cumsum(each.behind[::-1])[::-1]
    last = int((before + after + each.reduction).max()) + others(later)
    return max(price, last) + int(each.optimizer.max())


def ends_of(each: Waits, stage: Ints, pp: int) -> Iterator[tuple[Ints, Ints]]:
    """Coefficients of (2) and of (3) for the columns of a candidate, stage by stage, each (A,)."""
    for x in range(pp):
        here = stage == x
        yield np.where(stage < x, each.ahead, each.behind) + np.where(here, each.reduction, 0), each.optimizer * here
