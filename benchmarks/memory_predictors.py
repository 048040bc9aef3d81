"""Memory predictors trained on samples: the project's formulas, networks, and a network on what the formulas leave."""

from collections.abc import Callable

from benchmarks.synthetic_memory import CAPACITY, Runs, formula_terms
from taut.data.arrays import Floats
from taut.data.memory import MemoryModel
from taut.data.units import GIB
from taut.prediction.rows import network_features
from taut.solver.calibration.memory import fit_memory, predicted, weights_of
from taut.solver.calibration.memory_network import fit_network

Guess = tuple[Floats, Floats]
"""Predicted bytes and their bound, prediction with margin."""
Model = Callable[[Runs], Guess]
Fit = Callable[[Runs, int], Model]
"""From samples and a seed to a model."""


def analytic(seen: Runs, seed: int) -> Model:
    """The formulas as they stand, with the default overhead and margin; nothing is fitted."""
    return _weighed(MemoryModel())


def fit_physics(seen: Runs, seed: int) -> Model:
    """The formulas, weighed by the samples."""
    return _weighed(fit_memory(formula_terms(seen.rows), seen.measured, {"name": "formulas"}, seed=seed))


def _weighed(model: MemoryModel) -> Model:
    weights = weights_of(model)

    def guess(runs: Runs) -> Guess:
        found = predicted(formula_terms(runs.rows), weights)
        return found, found + model.margin * CAPACITY + model.margin_gib * GIB

    return guess


def trained(names: tuple[str, ...]) -> Fit:
    """A way to train a network that sees these features."""

    def fit(seen: Runs, seed: int) -> Model:
        features = network_features(seen.rows, names)
        network = fit_network(features, seen.measured, about={"name": "network"}, names=names, seed=seed)

        def guess(runs: Runs) -> Guess:
            found = network.predict(network_features(runs.rows, names))
            return found, found / (1 - network.margin)

        return guess

    return fit


def on_formulas(names: tuple[str, ...]) -> Fit:
    """A way to train a network on what the fitted formulas leave."""

    def fit(seen: Runs, seed: int) -> Model:
        physics = fit_physics(seen, seed)
        ratio = trained(names)(Runs(seen.rows, seen.measured / physics(seen)[0]), seed)

        def guess(runs: Runs) -> Guess:
            found, (factor, bound) = physics(runs)[0], ratio(runs)
            return found * factor, found * bound

        return guess

    return fit
