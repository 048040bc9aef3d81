"""The routes of largest dual value are those of enumeration."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from taut.data.arrays import Flags, Ints, Ints32
from taut.solver.placement.path_cover.pricing import UNREACHED, PricingData, price_routes

pytestmark = pytest.mark.proof

Segments = tuple[tuple[int, int], ...]


def test_best_routes_are_those_of_enumeration() -> None:
    """The largest dual value by last node is that of all feasible routes of small instances, with crossings."""
    found = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        n, pp, limit = int(rng.integers(2, 5)), int(rng.integers(2, 6)), int(rng.integers(1, 12))
        capacity = rng.integers(1, 4, n) if seed % 2 else np.ones(n, dtype=np.int64)
        use = rng.integers(0, 5, (n, n)).astype(np.int32)
        first, later = rng.integers(-9, 30, (2, n, int(capacity.max()) + 1)).astype(np.int32)
        starts, hops = rng.random(n) < 0.7, rng.integers(0, 9, (n, n)) * (seed % 3)
        places, crossings = rng.integers(0, 3, n) if seed % 4 == 2 else np.arange(n), int(rng.integers(0, 3))
        data = PricingData(use, hops, first, later, capacity, places, crossings * (capacity.max() == 1))
        best, routes = price_routes(data, starts, pp, limit)
        expected = np.full(n, UNREACHED)
        dual_values = {}
        for segments in _routes(use, capacity, starts, pp, limit):
            nodes = places[[v for v, _ in segments]]
            if data.crossings and (nodes[1:] == nodes[:-1])[: data.crossings].any():
                continue
            dual = _dual_value(segments, hops, first, later)
            dual_values[tuple(np.repeat(*np.array(segments).T).tolist())] = dual
            expected[segments[-1][0]] = max(expected[segments[-1][0]], dual)
        assert best.tolist() == expected.tolist(), seed
        for dual, route in zip(best[best > UNREACHED].tolist(), routes[best > UNREACHED].tolist(), strict=True):
            assert dual_values[tuple(route)] == dual, seed
            found += 1
    assert found > 150


def _routes(use: Ints32, capacity: Ints, starts: Flags, pp: int, limit: int) -> Iterator[Segments]:
    """All routes of pp slots within the limit that do not return at once to a node that they filled."""

    def longer(segments: Segments, left: int, spent: int) -> Iterator[Segments]:
        if spent >= limit:
            return
        if left == 0:
            yield segments
        last = segments[-1][0] if segments else -1
        banned = segments[-2][0] if len(segments) > 1 and segments[-2][1] == capacity[segments[-2][0]] else -1
        for v in range(len(capacity)):
            if v in (last, banned) or not (segments or starts[v]):
                continue
            hop = use[last, v] if segments else 0
            for length in range(1, min(capacity[v], left) + 1):
                yield from longer((*segments, (v, length)), left - length, spent + hop + (length - 1) * use[v, v])

    return longer((), pp, 0)


def _dual_value(segments: Segments, hops: Ints, first: Ints32, later: Ints32) -> int:
    entered = sum(hops[one[0], other[0]] for one, other in pairwise(segments))
    return int(first[segments[0]] + sum(later[segment] for segment in segments[1:]) + entered)
