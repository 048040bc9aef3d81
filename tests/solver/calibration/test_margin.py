"""The margin of a memory model: a stated rank of its own excesses, and pooled with other stacks' where runs are few."""

import numpy as np
import pytest

from taut.solver.calibration.margin import conformal_margin, moderated_spreads, pooled_margin


@pytest.mark.parametrize(
    ("count", "level", "rank", "borne"),
    # ceil(20 x 0.95) = 19 of 19; ceil(41 x 0.95) = 39 of 40; ceil(11 x 0.95) = 11 of 10 is none: the largest, 1 / 11.
    [(19, 0.05, 19, 0.05), (40, 0.05, 39, 0.05), (10, 0.05, 10, 1 / 11), (9, 0.2, 8, 0.2)],
)
def test_margin_is_the_conformal_rank(count: int, level: float, rank: int, borne: float) -> None:
    """The margin is the stated order statistic of the excesses, and says which level it bears out."""
    excesses = np.random.default_rng(count).permutation(np.arange(1.0, count + 1))
    assert conformal_margin(excesses, level) == pytest.approx((float(rank), borne))


def test_margin_is_never_negative() -> None:
    """Where every prediction is too high nothing need stay free."""
    assert conformal_margin(-np.arange(1.0, 41.0), 0.05)[0] == 0.0


def test_without_other_stacks_the_margin_is_its_own() -> None:
    """Nothing to pool with leaves the rank of the stack's own excesses."""
    excesses = np.arange(1.0, 41.0)
    assert pooled_margin(excesses, [], 0.05) == conformal_margin(excesses, 0.05)


def test_equal_spreads_are_pooled_into_one() -> None:
    """Stacks whose mean squares hardly differ get the mean square of all, and the quantile of all."""
    first, second, third = (np.array([1.0, -1.0] * 10) for _ in range(3))
    assert moderated_spreads([first, second, third]) == pytest.approx([1.0] * 3, rel=0.05)
    assert pooled_margin(first, [second, third], 0.05)[0] == pytest.approx(1.0)


def test_many_runs_keep_their_own_spread() -> None:
    """Where spreads differ a thousandfold those of many runs stay what they are."""
    rng = np.random.default_rng(0)
    stacks = [scale * rng.normal(size=500) for scale in (1.0, 1e3)]
    found = moderated_spreads(stacks)
    assert found == pytest.approx([np.sqrt(np.mean(stack**2)) for stack in stacks], rel=0.01)


def test_a_margin_scales_with_its_unit() -> None:
    """Excesses of all stacks in MiB give a margin in MiB."""
    rng = np.random.default_rng(1)
    stacks = [scale * rng.normal(size=count) for scale, count in ((1.0, 8), (2.0, 30), (0.5, 20))]
    small, large = (pooled_margin(unit * stacks[0], [unit * one for one in stacks[1:]], 0.05)[0] for unit in (1, 1024))
    assert large == pytest.approx(1024 * small)


def test_pooled_margins_of_few_runs_hold_what_they_say() -> None:
    """Of six runs the largest excess is exceeded by a seventh of new ones, a margin pooled with others by about 5 %."""
    rng, own, pooled = np.random.default_rng(2), [], []
    for _ in range(300):
        scales = np.exp(rng.normal(0.0, 0.4, 4))
        few, *others = (scale * rng.normal(size=count) for scale, count in zip(scales, (6, 60, 16, 20), strict=True))
        new = scales[0] * rng.normal(size=200)
        own.append((new > conformal_margin(few, 0.05)[0]).mean())
        pooled.append((new > pooled_margin(few, others, 0.05)[0]).mean())
    assert np.mean(own) > 0.12
    assert np.mean(pooled) < 0.07
