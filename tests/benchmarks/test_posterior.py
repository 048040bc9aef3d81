"""Posteriors of several campaigns: what data say, what is shared, and what is not known."""

import numpy as np
import pytest

from benchmarks.posterior import (
    CampaignRuns,
    Prior,
    fit_posteriors,
    prior_covariance,
    spread_of,
)
from taut.data.arrays import Floats

PRIOR = Prior(np.array([1.2, 1.0, 1.5]), np.array([0.2, 0.4, 0.3]), np.array([1.0, 0.2, 0.7]))


def made(coefficients: Floats, count: int, *, software: str = "own", noise: float = 0.0, seed: int = 0) -> CampaignRuns:
    """Runs whose terms are drawn, measured at some coefficients."""
    rng = np.random.default_rng(seed)
    terms = rng.uniform(0.1, 1.0, (count, len(coefficients)))
    seconds = terms @ coefficients * np.exp(noise * rng.standard_normal(count))
    return CampaignRuns("one", seconds, lambda _: terms, np.zeros(count, dtype=int), software)


def test_runs_decide_where_there_are_many() -> None:
    """Coefficients that made many runs are found again, with a small spread."""
    true = np.array([1.4, 0.6, 1.1])
    (found,) = fit_posteriors([made(true, 200, noise=0.02)], PRIOR)
    assert found.coefficients == pytest.approx(true, rel=0.03)
    assert (np.sqrt(np.diag(found.covariance)) < 0.03).all()
    assert found.noise == pytest.approx(0.02, abs=0.01)


def test_a_campaign_without_runs_learns_from_the_others() -> None:
    """It is drawn to what they found, the more of one software and of one generation, and keeps a spread of its own."""
    rich, none = made(np.array([1.6, 1.0, 1.5]), 100), made(np.array([1.0, 1.0, 1.0]), 0, software="another")
    campaigns = [rich, none._replace(software="own"), none, none._replace(device="two")]
    _, same, alike, other = fit_posteriors(campaigns, PRIOR)
    assert PRIOR.mean[0] < other.coefficients[0] < alike.coefficients[0] < same.coefficients[0] < 1.6
    spreads = [np.sqrt(each.covariance[0, 0]) for each in (same, alike, other)]
    assert 0.3 * PRIOR.deviation[0] < spreads[0] < spreads[1] < spreads[2] < PRIOR.deviation[0]


def test_nothing_is_below_its_floor() -> None:
    """Runs that are faster than kernels leave the coefficient at the floor."""
    (found,) = fit_posteriors([made(np.array([0.5, 1.0, 1.5]), 50)], PRIOR)
    assert found.coefficients[0] == pytest.approx(1.0)


def test_runs_of_an_older_release_say_less() -> None:
    """Slow runs of an older release move the coefficients less than as many of the newest one."""
    fast, slow = made(np.array([1.2, 1.0, 1.5]), 6), made(1.3 * np.array([1.2, 1.0, 1.5]), 6, seed=1)
    rows = np.concatenate([fast.terms(PRIOR.mean), slow.terms(PRIOR.mean)])
    seconds = np.concatenate([fast.seconds, slow.seconds])
    both = CampaignRuns("one", seconds, lambda _: rows, np.zeros(12, dtype=int), "one")
    older = both._replace(release=np.repeat([0, 1], 6))
    (alike,), (apart,) = fit_posteriors([both], PRIOR), fit_posteriors([older], PRIOR)
    assert apart.coefficients.sum() < alike.coefficients.sum()


def test_bands_hold_unseen_runs() -> None:
    """About 80 % of new runs lie within 1.28 deviations."""
    true = np.array([1.3, 0.8, 1.4])
    (found,) = fit_posteriors([made(true, 30, noise=0.05)], PRIOR)
    new = made(true, 400, noise=0.05, seed=7)
    parts = new.terms(found.coefficients) * found.coefficients
    seconds = parts.sum(axis=1)
    inside = np.abs(np.log(new.seconds / seconds)) < 1.2816 * spread_of(parts / seconds[:, None], found)
    assert 0.7 < inside.mean() < 0.92


def test_the_prior_is_a_covariance() -> None:
    """Symmetric and positive, with the whole variance on its diagonal."""
    found = prior_covariance(["one", "one", "two"], ["own", "another", "own"], PRIOR)
    assert np.allclose(found, found.T) and np.linalg.eigvalsh(found).min() > 0
    assert np.diag(found) == pytest.approx(np.tile(PRIOR.deviation**2, 3))
