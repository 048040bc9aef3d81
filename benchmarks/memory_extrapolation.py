"""
What memory predictors that were trained on small clusters say of large ones.

Run ``python -m benchmarks.memory_extrapolation DATA [--figure FILE] [--write-table FILE] [--networks N]``. Pipette (Yim
et al., DATE 2024, section VI) trains a network on up to 32 devices and asks it about more. Here it stands against the
project's formulas, fitted to the same samples (``taut.solver.fit_memory``):

- on synthetic campaigns (``benchmarks/synthetic_memory.py``), whose truth is known and made with these formulas;
- on the memory of BLOOM's trials in the folder DATA (``benchmarks/memory_campaigns.py``), which is not.

``network on formulas`` is a network trained on the ratio of measured bytes to what the fitted formulas say. A model's
bound is its prediction with its margin; a run is beyond it if it needed more, and refused if the bound exceeds 80 GiB
although the run fitted. Networks differ by their seed; figures are means over N of them.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy import as_table
from benchmarks.memory_campaigns import bloom
from benchmarks.synthetic_memory import CAPACITY, LARGE, SMALL, Runs, formula_terms, measured_runs
from taut.data.memory import MEMORY_TERMS, MemoryModel
from taut.data.memory_network import FEATURES
from taut.data.samples import network_features
from taut.data.units import GIB
from taut.errors import FormulationError
from taut.solver.fit_memory import fit_memory, predicted
from taut.solver.fit_network import fit_network

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
Guess = tuple[Floats, Floats]
"""Predicted bytes and their bound, prediction with margin."""
Model = Callable[[Runs], Guess]
MIXED = (*FEATURES, "selective", "full", "zero")
FOLDS = 5


@dataclass(frozen=True)
class Study:
    """A campaign's runs: those that train, unseen ones of the same kind, and those beyond."""

    name: str
    seen: Runs
    inside: Runs
    beyond: Runs
    features: tuple[str, ...]


def analytic(seen: Runs, seed: int) -> Model:
    """The formulas as they stand, with the default overhead and margin; nothing is fitted."""
    return _weighed(MemoryModel())


def fit_physics(seen: Runs, seed: int) -> Model:
    """The formulas, weighed by the samples."""
    return _weighed(fit_memory(formula_terms(seen.rows), seen.measured, {"name": "formulas"}, seed=seed))


def _weighed(model: MemoryModel) -> Model:
    weights = np.array([*(model.coefficient(term) for term in MEMORY_TERMS), model.overhead_bytes])

    def guess(runs: Runs) -> Guess:
        found = predicted(formula_terms(runs.rows), weights)
        return found, found + model.margin * CAPACITY + model.margin_gib * GIB

    return guess


def trained(names: tuple[str, ...]) -> Callable[[Runs, int], Model]:
    """A way to train a network that sees these features."""

    def fit(seen: Runs, seed: int) -> Model:
        features = network_features(seen.rows, names)
        network = fit_network(features, seen.measured, about={"name": "network"}, names=names, seed=seed)

        def guess(runs: Runs) -> Guess:
            found = network.predict(network_features(runs.rows, names))
            return found, found / (1 - network.margin)

        return guess

    return fit


def on_formulas(names: tuple[str, ...]) -> Callable[[Runs, int], Model]:
    """A way to train a network on what the fitted formulas leave."""

    def fit(seen: Runs, seed: int) -> Model:
        physics = fit_physics(seen, seed)
        ratio = trained(names)(Runs(seen.rows, seen.measured / physics(seen)[0]), seed)

        def guess(runs: Runs) -> Guess:
            found, (factor, bound) = physics(runs)[0], ratio(runs)
            return found * factor, found * bound

        return guess

    return fit


def studies(folder: Path) -> Iterator[Study]:
    """Synthetic campaigns and BLOOM's divisions."""
    for name, kind in (
        ("no recompute, no ZeRO", {"mixed": False, "effects": False}),
        ("all recompute, ZeRO-1", {"mixed": True, "effects": False}),
        ("with effects beyond formulas", {"mixed": True, "effects": True}),
    ):
        seen, inside, beyond = (
            measured_runs(gpus, count, seed, **kind)
            for seed, (gpus, count) in enumerate(((SMALL, 2000), (SMALL, 2000), (LARGE, 3000)))
        )
        names = MIXED if kind["mixed"] else FEATURES
        if name.startswith("all"):
            yield Study(f"{name}, 200 runs", seen.take(np.arange(200)), inside, beyond, names)
        yield Study(name, seen, inside, beyond, names)
    rows = bloom(folder / "bloom_a100.csv").rows
    runs = Runs(rows, np.array([row.measured_bytes for row in rows], dtype=float))
    gpus, none = np.array([row.n_gpus for row in rows]), np.array([], dtype=np.int64)
    for most in (128, 360):
        seen, beyond = (runs.take(np.flatnonzero(chosen)) for chosen in (gpus <= most, gpus > most))
        yield Study(f"BLOOM to {most} devices", seen, runs.take(none), beyond, MIXED)


def models(study: Study) -> dict[str, Callable[[Runs, int], Model]]:
    """What is compared, by name."""
    found = {"formulas, not fitted": analytic, "formulas": fit_physics, "network": trained(study.features)}
    if study.features != FEATURES:
        found["network, ten features"] = trained(FEATURES)
    return {**found, "network on formulas": on_formulas(study.features)}


def compared(study: Study, networks: int) -> Iterator[dict[str, Any]]:
    """A line of the table for every model."""
    for name, fit in models(study).items():
        seeds = range(networks if "network" in name else 1)
        line = {"campaign": study.name, "runs": len(study.seen.rows), "model": name}
        try:
            found = [figures(fit(study.seen, seed), study) for seed in seeds]
        except FormulationError:
            found = [dict.fromkeys(figures(analytic(study.seen, 0), study), float("nan"))]
        yield {**line, **{key: float(np.mean([one[key] for one in found])) for key in found[0]}}


def figures(model: Model, study: Study) -> dict[str, float]:
    """Errors inside and beyond, and how the margin holds."""
    (inside, inside_bound), (beyond, beyond_bound) = model(study.inside), model(study.beyond)
    error = np.abs(beyond / study.beyond.measured - 1)
    return {
        "MAPE inside %": 100 * _mean(np.abs(inside / study.inside.measured - 1)),
        "MAPE beyond %": 100 * _mean(error),
        "worst beyond %": 100 * float(error.max()),
        "above bound inside %": 100 * _mean(study.inside.measured > inside_bound),
        "above bound beyond %": 100 * _mean(study.beyond.measured > beyond_bound),
        "refused beyond %": 100 * _mean(beyond_bound > CAPACITY),
    }


def _mean(values: NDArray[Any]) -> float:
    return float(values.mean()) if len(values) else float("nan")
