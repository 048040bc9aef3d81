"""Factors of layer shapes from runs."""

import numpy as np
import pytest

from taut.data.calibration import TERMS
from taut.data.layers.layer_factor import LayerFactor
from taut.solver.calibration.latency import (
    LayerShapes,
    Samples,
    cross_validate,
    factors_above,
    predicted_seconds,
    relative_factors,
    stated_factors,
)

RUNS, SHAPES = 60, 6
STATED = np.ones(len(TERMS))


def shape(number: int) -> LayerFactor:
    return LayerFactor.of((number + 1, 128, 64, 4, 4, 256, 1))


def samples(truth: list[float], noise: float = 0.0) -> Samples:
    """Runs whose layers take so many times what products say, and hops beside them."""
    rng = np.random.default_rng(0)
    terms = np.zeros((RUNS, len(TERMS)))
    terms[:, 0], terms[:, 5] = rng.uniform(1, 4, RUNS), rng.uniform(0.1, 1, RUNS)
    which = np.arange(RUNS) % SHAPES
    of_layers = np.where(np.arange(len(TERMS)) == 0, terms, 0.0)
    seconds = (terms[:, 0] * np.array(truth)[which] + terms[:, 5]) * (1 + noise * rng.standard_normal(RUNS))
    layers = LayerShapes(tuple(map(shape, range(SHAPES))), which, lambda _: of_layers)
    return Samples(lambda _: terms, seconds, layers=layers)


def test_a_factor_is_drawn_to_one_by_the_noise_of_few_runs() -> None:
    """One run that is a tenth slower, all of it layers, has 1 + 0.1 / (1 + (0.02 / 0.08)^2), on seconds of the run."""
    layers = LayerShapes((shape(0),), np.array([0]), lambda _: np.array([[1.0]]))
    found = relative_factors(layers, np.array([1.0]), np.array([1.0]), np.array([1.0 / 0.9]))
    assert found[0] == pytest.approx(0.1 * 0.9 / (0.9**2 + 0.0625))
    assert stated_factors(layers, found)[0].factor == pytest.approx(1 + found[0])


def test_factors_of_shapes_are_found_beside_coefficients() -> None:
    """Shapes that take 0.8 to 1.3 times as long are told apart, and unseen runs of theirs predicted to 1 %."""
    runs = samples([0.8, 0.9, 1.0, 1.05, 1.2, 1.3], noise=0.005)
    plain, found = cross_validate(runs, STATED), cross_validate(runs, STATED, factors=True)
    assert np.abs(plain).mean() > 0.08
    assert np.abs(found).mean() < 0.01


def test_where_shapes_are_alike_factors_change_little() -> None:
    """Factors of shapes that differ by noise alone stay within it."""
    runs = samples([1.0] * SHAPES, noise=0.01)
    above = factors_above(runs, STATED)
    assert above is not None
    assert np.abs(above).max() < 0.01
    more = predicted_seconds(runs, STATED, above) / predicted_seconds(runs, STATED) - 1
    assert np.abs(more).max() < 0.01


def test_shapes_of_other_runs_alone_keep_their_prediction() -> None:
    """A run whose shape no seen run has is predicted by the coefficients alone."""
    runs = samples([1.3] + [1.0] * (SHAPES - 1))
    assert runs.layers is not None
    seen = runs.take(np.flatnonzero(runs.layers.which > 0))
    above = factors_above(seen, STATED)
    unseen = runs.layers.which == 0
    assert predicted_seconds(runs, STATED, above)[unseen] == pytest.approx(predicted_seconds(runs, STATED)[unseen])


def test_runs_without_shapes_have_no_factors() -> None:
    """Samples that state no layers are predicted by coefficients alone."""
    runs = samples([1.0] * SHAPES)._replace(layers=None)
    assert factors_above(runs, STATED) is None
