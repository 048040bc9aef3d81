"""Divisions of one or two pipelines on two classes of device against enumeration of the classes of all blocks."""

from collections.abc import Callable

import numpy as np
import pytest

from taut.data.arrays import Flags, Ints
from taut.formulations.partition import Crossing, LaterStages, PartitionProblem
from taut.solver.layer_division import divide
from taut.solver.layer_division.divide import Beside, Partition, Passed, pipeline_cases, solve_pair, solve_partition
from taut.solver.layer_division.labels import MIXED_SLOW, two_classes
from tests.support.blocks import blocks
from tests.support.two_classes import TwoClasses, least_of_classes, random_classes

pytestmark = pytest.mark.proof

TOLERANCE = 1 + 1e-12


def solved(given: TwoClasses, passed: Passed | None = None, limit: float = np.inf) -> Partition:
    """The partition of all pipelines, or of one."""
    later, crossing = given.later, given.crossing
    return solve_partition(
        given.stages, given.edge, given.tail, later=later, crossing=crossing, passed=passed, limit=limit
    )


def of_every_case(given: TwoClasses, limit: float = np.inf) -> dict[Passed | Beside, float]:
    """Bounds of all cases, at most the limit."""
    return {case: _of_case(given, case, limit) for case in pipeline_cases(given.stages)}


def _of_case(given: TwoClasses, case: Passed | Beside, limit: float) -> float:
    if isinstance(case, Passed):
        return min(solved(given, case, limit).seconds, limit)
    stages, edge, tail = given.stages, given.edge, given.tail
    return solve_pair(stages, edge, tail, case, later=given.later, crossing=given.crossing, limit=limit)


@pytest.mark.parametrize("block", blocks(20))
def test_no_division_of_classes_is_quicker_than_the_bounds(block: int) -> None:
    """Two thousand instances, a hundred a block, infeasible ones included: no classes of blocks take less."""
    attained, finite = 0, 0
    for seed in range(block * 100, block * 100 + 100):
        given = random_classes(seed)
        least, every = least_of_classes(given), solved(given)
        assert every.seconds <= least * TOLERANCE, seed
        bound = min(of_every_case(given).values())
        assert bound <= least * TOLERANCE, seed
        if not np.isfinite(least):
            continue
        finite, attained = finite + 1, attained + (max(bound, every.seconds) >= least / TOLERANCE)
        for limit in (0.5 * least, 0.98 * bound, 1.1 * least):
            limited = min(of_every_case(given, limit).values())
            assert min(limit, bound) / TOLERANCE <= limited <= min(limit, least) * TOLERANCE, seed
    assert finite > 20 and attained > finite / 4


def where(case: Passed | Beside, pp: int, exact: bool) -> Callable[[Ints], Flags]:
    """Whether a case holds by the fast blocks of every pipeline (choices, dp)."""

    def holds(fast: Ints) -> Flags:
        slow = (fast == 0).any(axis=1)
        if isinstance(case, Beside):
            return np.asarray(slow & (_fewest_of_both(fast, pp) == case.fast))
        if case.patterns == (MIXED_SLOW,):
            return np.asarray(slow & np.isin(fast, (0, pp)).all(axis=1))
        return np.asarray(~slow | (not exact))

    return holds


def _fewest_of_both(fast: Ints, pp: int) -> Ints:
    """Fast blocks of the pipeline of both classes that has the fewest, (choices,); pp where there is none."""
    return np.asarray(np.where((fast == 0) | (fast == pp), pp, fast).min(axis=1))


@pytest.mark.parametrize("block", blocks(10))
def test_no_division_of_a_case_is_quicker_than_its_bound(block: int) -> None:
    """The same case by case: every choice of classes is in one, and none in it takes less than its bound."""
    kinds, attained, finite = set(), 0, 0
    for seed in range(block * 100, block * 100 + 100):
        given = random_classes(seed)
        stages, pp = given.stages, given.stages.pp
        exact = not stages.more_slow_groups and stages.slow_groups < pp * stages.dp
        found, leasts = of_every_case(given), []
        for case, bound in found.items():
            least = least_of_classes(given, where(case, pp, exact))
            assert bound <= least * TOLERANCE, (seed, case)
            leasts.append(least)
            if np.isfinite(least):
                kinds.add((type(case), getattr(case, "patterns", ())))
                finite, attained = finite + 1, attained + (bound >= least / TOLERANCE)
        assert min(leasts) == least_of_classes(given), seed
    assert len(kinds) == 3 and attained > finite / 4


def test_a_mixed_stage_that_slow_devices_pass_quicker_may_follow_the_hop() -> None:
    """Three layers, the second quicker on slow devices: the pipeline that waits for it on a fast one hops before it."""
    given = slow_mixed_fast()
    found, least = solved(given), least_of_classes(given)
    assert found.patterns == (1, 2, 0)
    # 9 further passes of 3 s; 1 + 3 + 1 s, the hop without its way back, and the ring of the second stage.
    assert least == pytest.approx(27 + 5 + 2 + 100)
    # The slow seconds, 2 in the place of 3, are what (5) counts in the sum.
    assert found.seconds == pytest.approx(least - 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            divide, "two_classes", lambda *args, **kinds: two_classes(*args, **kinds | {"hidden": args[3][1] <= 1})
        )
        always = solved(given)
    assert always.seconds == pytest.approx(found.seconds + 6) and always.seconds > least


def slow_mixed_fast() -> TwoClasses:
    """Two pipelines of three stages and layers, three slow blocks; slow devices are for the first layer."""
    each = np.array([[50.0, 3.0, 1.0], [1.0, 2.0, 50.0]])
    sums = np.concatenate([np.zeros((2, 1)), each.cumsum(axis=1)], axis=1)
    seconds = np.maximum(sums[:, None, :] - sums[:, :, None], 0.0)[:, None]
    size = np.maximum(np.arange(4)[None, :] - np.arange(4)[:, None], 0.0)
    none = np.zeros((1, 4, 4), dtype=np.int64)
    stages = PartitionProblem(
        pp=3,
        dp=2,
        micro_batches=10,
        low=np.concatenate([seconds, seconds.min(axis=0)[None]]),
        high=np.concatenate([seconds, seconds.max(axis=0)[None]]),
        fixed=none,
        activation=none,
        in_flight=np.array([3, 2, 1]),
        budget=np.ones(3, dtype=np.int64),
        gradients=size,
        slow_groups=3,
        forward=np.concatenate([seconds, seconds.min(axis=0)[None]])[:, 0],
    )
    later = LaterStages(
        edge=np.zeros(4),
        ring=np.array([0.0, 100.0, 0.0]),
        exchanged=size,
        unhidden=size,
        overlap=False,
        others=0.0,
        parameters=size,
        optimizer=0.0,
    )
    return TwoClasses(stages, np.zeros(4), np.zeros(4), Crossing(8.0, 2.0), later)
