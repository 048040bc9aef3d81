"""No bound where replicas divide the batch unevenly is above the optimum over divisions, batches and placements."""

import numpy as np
import pytest

from taut.solver.bounds.pipelines_by_type import _least
from tests.support.blocks import blocks
from tests.support.ladder import check_candidates
from tests.support.uneven import uneven_candidates, uneven_problem


@pytest.mark.proof
@pytest.mark.parametrize("block", blocks(10, first=2))
def test_no_bound_on_uneven_batches_is_above_the_optimum(block: int) -> None:
    """Five hundred candidates, fifty a block: two types and three, one stage and several, infeasible ones too."""
    checked, three, staged, seed = 0, 0, 0, 50_000 * block
    while checked < 50:
        given = uneven_problem(seed)
        if given is not None:
            chosen = check_candidates(given, uneven_candidates(given), seed, 2)
            checked, three = checked + len(chosen), three + (len(given.device_types) == 3)
            staged += sum(candidate.pp > 1 for candidate in chosen)
        seed += 1
    assert three > 0 and staged > 0


@pytest.mark.parametrize("seed", range(40))
def test_least_seconds_are_those_of_every_count(seed: int) -> None:
    """The least T of (1) is the least over all counts of micro-batches by type, of any seconds that rise with them."""
    rng = np.random.default_rng(seed)
    replicas, total = rng.integers(1, 4, size=rng.integers(2, 4)).tolist(), int(rng.integers(8, 14))
    rising = rng.integers(0, 5, size=(len(replicas), total + 8)).cumsum(axis=1) + rng.random()
    counts = np.stack(np.meshgrid(*[np.arange(1, total + 1)] * len(replicas)), axis=-1).reshape(-1, len(replicas))
    enough = counts[(counts * replicas).sum(axis=1) >= total]
    expected = rising[np.arange(len(replicas)), enough].max(axis=1).min()
    start = rng.integers(1, total, size=len(replicas)).tolist()
    found, within = _least(lambda k, n: float(rising[k, n]), replicas, total, start)
    assert found == expected
    assert sum(r * n for r, n in zip(replicas, within, strict=True)) >= total
