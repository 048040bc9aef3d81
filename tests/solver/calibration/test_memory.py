"""Fitting a memory model: exact data is recovered, the fullest stage counts, the margin holds what it says."""

import numpy as np
import pytest

from taut.data.memory import MEMORY_TERMS
from taut.data.units import GIB
from taut.errors import FormulationError
from taut.solver.calibration.memory import (
    PRIOR,
    cross_validated_errors,
    fit_memory,
    memory_coefficients,
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
