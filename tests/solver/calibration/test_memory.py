"""
Fitting a memory model: exact data is recovered, the fullest stage counts, the margin holds what it says.

The margin of a memory model: a stated rank of its own excesses, and pooled with other stacks' where runs are few.
"""

import numpy as np
import pytest

from taut.data.memory import MEMORY_TERMS
from taut.data.units import GIB
from taut.errors import FormulationError
from taut.solver.calibration.memory import (
    PRIOR,
    conformal_margin,
    cross_validated_errors,
    fit_memory,
    memory_coefficients,
    moderated_spreads,
    pooled_margin,
    predicted,
    weights_of,
)


def samples(seed: int, noise: float, count: int = 80) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random terms of two stages, the coefficients behind them, and bytes with relative noise."""
    rng = np.random.default_rng(seed)
    true = PRIOR * rng.uniform(0.8, 1.3, len(PRIOR))
    terms = rng.lognormal(1, 0.8, (count, 2, len(MEMORY_TERMS) + 1)) * GIB
    return terms, true, predicted(terms, true) * np.exp(rng.normal(0, noise, count))


def test_exact_samples_are_reproduced() -> None:
    """Without noise and with a weak pull every sample is predicted to one per cent."""
    terms, _, measured = samples(0, 0.0)
    assert predicted(terms, memory_coefficients(terms, measured, 0.01)) == pytest.approx(measured, rel=1e-2)


def test_without_evidence_the_formulas_hold() -> None:
    """A term that no sample has keeps the analytic model's coefficient."""
    terms, _, measured = samples(1, 0.02)
    terms[:, :, 3] = 0.0
    assert memory_coefficients(terms, measured, 0.1)[3] == pytest.approx(1.0)


def test_the_fullest_stage_counts() -> None:
    """Hand value: stages of 10 and 6 GiB of weights and 1 GiB of overhead need 11 GiB."""
    terms = np.zeros((1, 2, len(MEMORY_TERMS) + 1))
    terms[0, :, 0] = [10 * GIB, 6 * GIB]
    coefficients = np.array([1.0] * len(MEMORY_TERMS) + [2.0, 1.0 * GIB])
    assert predicted(terms, coefficients)[0] == 11 * GIB
    # Several stages and several replicas hold 2 GiB each.
    terms[0, :, -1] = 2 * GIB
    assert predicted(terms, coefficients)[0] == 15 * GIB


def test_unseen_samples_exceed_the_margin_at_most_at_the_level() -> None:
    """Of fresh samples like the fitted ones about one in twenty exceeds prediction and margin."""
    shares = []
    for seed in range(20):
        terms, _, measured = samples(seed, 0.08, 120)
        model = fit_memory(terms[:60], measured[:60], {"name": "m"})
        shares.append((measured[60:] > predicted(terms[60:], weights_of(model)) + model.margin_gib * GIB).mean())
    assert np.mean(shares) < 0.07


def test_few_samples_lean_on_the_formulas() -> None:
    """Cross-validation picks the pull, and the model says how many samples it has and what their level is."""
    terms, _, measured = samples(3, 0.1, 8)
    model = fit_memory(terms, measured, {"name": "m"})
    assert model.samples == 8
    assert model.level == pytest.approx(1 / 9)
    errors = cross_validated_errors(terms, measured, 0.4)
    assert model.mape is not None and model.mape <= np.abs(errors).mean() + 1e-12


@pytest.mark.parametrize("count", [0, 3])
def test_too_few_samples_are_refused(count: int) -> None:
    """Cross-validation needs at least four samples."""
    terms, _, measured = samples(4, 0.0)
    with pytest.raises(FormulationError, match=f"{count} samples, expected at least 4"):
        fit_memory(terms[:count], measured[:count], {"name": "m"})


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
