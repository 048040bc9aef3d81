"""The walks that gain most are those of enumeration."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from taut.data.arrays import Flags, Ints, Ints32
from taut.solver.placement.path_cover.pricing import NEVER, dearest_walks

pytestmark = pytest.mark.proof

Runs = tuple[tuple[int, int], ...]


def test_dearest_walks_are_those_of_enumeration() -> None:
    """Every allowed walk of small instances, run by run: the most that any gains by its last node."""
    found = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        n, pp, most = int(rng.integers(2, 5)), int(rng.integers(2, 6)), int(rng.integers(1, 12))
        capacity = rng.integers(1, 4, n) if seed % 2 else np.ones(n, dtype=np.int64)
        levels = rng.integers(0, 5, (n, n)).astype(np.int32)
        first, later = rng.integers(-9, 30, (2, n, int(capacity.max()) + 1)).astype(np.int32)
        starts, hops = rng.random(n) < 0.7, rng.integers(0, 9, (n, n)) * (seed % 3)
        best, walks = dearest_walks(levels, hops, first, later, capacity, starts, pp, most)
        expected = np.full(n, NEVER)
        gained = {}
        for runs in _walks(levels, capacity, starts, pp, most):
            gain = _gain(runs, hops, first, later)
            gained[tuple(np.repeat(*np.array(runs).T).tolist())] = gain
            expected[runs[-1][0]] = max(expected[runs[-1][0]], gain)
        assert best.tolist() == expected.tolist(), seed
        for gain, walk in zip(best[best > NEVER].tolist(), walks[best > NEVER].tolist(), strict=True):
            assert gained[tuple(walk)] == gain, seed
            found += 1
    assert found > 150


def _walks(levels: Ints32, capacity: Ints, starts: Flags, pp: int, most: int) -> Iterator[Runs]:
    """All walks of pp slots and fewer levels that do not return at once to a node that they filled."""

    def longer(runs: Runs, left: int, spent: int) -> Iterator[Runs]:
        if spent >= most:
            return
        if left == 0:
            yield runs
        last = runs[-1][0] if runs else -1
        banned = runs[-2][0] if len(runs) > 1 and runs[-2][1] == capacity[runs[-2][0]] else -1
        for v in range(len(capacity)):
            if v in (last, banned) or not (runs or starts[v]):
                continue
            hop = levels[last, v] if runs else 0
            for run in range(1, min(capacity[v], left) + 1):
                yield from longer((*runs, (v, run)), left - run, spent + hop + (run - 1) * levels[v, v])

    return longer((), pp, 0)


def _gain(runs: Runs, hops: Ints, first: Ints32, later: Ints32) -> int:
    entered = sum(hops[one[0], other[0]] for one, other in pairwise(runs))
    return int(first[runs[0]] + sum(later[run] for run in runs[1:]) + entered)
