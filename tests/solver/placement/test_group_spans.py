"""Spans of groups over leaf switches: the bound against every placement, and CP-SAT's placements."""

from itertools import permutations

import numpy as np
import pytest

from taut.solver.placement.group_spans import least_spans, place_by_spans, spans_of

pytestmark = pytest.mark.proof


@pytest.mark.parametrize("room", [(2, 4), (3, 3), (1, 2, 3), (2, 2, 2), (4, 4), (1, 3, 4)])
@pytest.mark.parametrize("weight", [0.2, 0.5, 0.9])
def test_no_placement_is_below_the_bound(room: tuple[int, ...], weight: float) -> None:
    """All placements of 6 or 8 blocks in every grid: none is below the bound, and CP-SAT finds the best."""
    leaves = np.repeat(np.arange(len(room)), room)
    count = len(leaves)
    for pp in (each for each in range(1, count + 1) if count % each == 0):
        shape = pp, count // pp
        every = (spans_of(np.array(each).reshape(shape)) for each in set(permutations(leaves.tolist())))
        best = min(weight * a + (1 - weight) * b for a, b in every)
        found = place_by_spans(*shape, np.array(room), weight, time_limit=10.0)
        assert least_spans(*shape, np.array(room), weight) == found.lower_bound <= best + 1e-9
        assert found.objective == pytest.approx(best)
        assert (found.replicas, found.stages) == spans_of(found.leaf)
        assert np.bincount(found.leaf.ravel()).tolist() == list(room)


def test_squares_share_leaves() -> None:
    """Sixteen blocks on four leaves: 2 and 2 by squares, where rank order has 1 and 4."""
    found = place_by_spans(4, 4, np.array([4] * 4), 0.5, time_limit=10.0)
    assert found.objective == found.lower_bound == 2.0
    by_rank = place_by_spans(4, 4, np.array([4] * 4), 0.9, time_limit=10.0)
    assert (by_rank.replicas, by_rank.stages) == (1, 4)
