"""Divisions over stages with devices of their own, against all divisions."""

from itertools import combinations

import numpy as np
import pytest

from taut.solver.layer_division.known_devices import divide


@pytest.mark.parametrize("seed", range(30))
def test_division_is_the_least_of_all(seed: int) -> None:
    """Random stages of unlike speed: the sum, the transfers and (m - 1) times the longest are least over all cuts."""
    rng = np.random.default_rng(seed)
    pp, layers, m = int(rng.integers(1, 5)), int(rng.integers(5, 9)), int(rng.integers(1, 9))
    total = np.concatenate([np.zeros((pp, 1)), np.cumsum(rng.uniform(0.1, 1.0, (pp, layers)), axis=1)], axis=1)
    seconds = total[:, None, :] - total[:, :, None]
    transfers = rng.uniform(0.0, 0.5, (pp - 1, layers + 1))

    def cost(ends: tuple[int, ...]) -> float:
        first = (0, *ends[:-1])
        each = [seconds[x, i, j] for x, (i, j) in enumerate(zip(first, ends, strict=True))]
        return float(sum(each) + sum(transfers[x, ends[x]] for x in range(pp - 1)) + (m - 1) * max(each))

    least = min(cost((*inner, layers)) for inner in combinations(range(1, layers), pp - 1))
    ends = divide(seconds, transfers, m)
    assert ends is not None
    assert cost(tuple(ends.tolist())) == pytest.approx(least)
    seconds[0] = np.inf
    assert divide(seconds, transfers, m) is None
