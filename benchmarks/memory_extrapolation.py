"""
What memory predictors that were trained on small clusters say of large ones.

Run ``python -m benchmarks.memory_extrapolation DATA [--figure FILE] [--write-table FILE] [--networks N]``. Pipette (Yim
et al., DATE 2024, section VI) trains a network on up to 32 devices and asks it about more. Here it stands against the
project's formulas, fitted to the same samples (``taut.solver.calibration.memory``):

- on synthetic campaigns (``benchmarks/synthetic_memory.py``), whose truth is known and made with these formulas;
- on the memory of BLOOM's trials in the folder DATA (``benchmarks/memory_campaigns.py``), which is not.

``network on formulas`` is a network trained on the ratio of measured bytes to what the fitted formulas say. A model's
bound is its prediction with its margin; a run is beyond it if it needed more, and refused if the bound exceeds 80 GiB
although the run fitted. Networks differ by their seed; figures are means over N of them.
"""

import argparse
import os
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy import as_table
from benchmarks.memory_campaigns import bloom
from benchmarks.memory_predictors import Fit, Guess, Model, analytic, fit_physics, on_formulas, trained
from benchmarks.synthetic_memory import CAPACITY, LARGE, SMALL, Runs, measured_runs
from taut.data.memory import FEATURES
from taut.data.units import GIB
from taut.errors import FormulationError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MIXED = (*FEATURES, "selective", "full", "zero")
RUNS, FEW, HALVES = 2000, 200, 5
DRAWN = "all recompute, ZeRO-1"
BLUE, ORANGE = "#0072b2", "#d55e00"
COLUMNS = (
    "MAPE inside %",
    "MAPE beyond %",
    "worst beyond %",
    "above bound inside %",
    "above bound beyond %",
    "refused beyond %",
)


@dataclass(frozen=True)
class Study:
    """A campaign's runs: those that train, unseen ones of the same kind, and those beyond."""

    name: str
    seen: Runs
    inside: Runs
    beyond: Runs
    features: tuple[str, ...]


def studies(folder: Path) -> Iterator[Study]:
    """Synthetic campaigns, and BLOOM's trials."""
    for name, kind in (
        ("no recompute, no ZeRO", {"mixed": False, "effects": False}),
        ("all recompute, ZeRO-1", {"mixed": True, "effects": False}),
        ("with effects beyond formulas", {"mixed": True, "effects": True}),
    ):
        small, beyond = measured_runs(SMALL, 2 * RUNS, 0, **kind), measured_runs(LARGE, RUNS, 1, **kind)
        # Drawn together, so that no configuration is both in training and unseen.
        seen, inside = small.take(np.arange(0, len(small.rows), 2)), small.take(np.arange(1, len(small.rows), 2))
        names = MIXED if kind["mixed"] else FEATURES
        if name.startswith("all"):
            yield Study(f"{name}, {FEW} runs", seen.take(np.arange(FEW)), inside, beyond, names)
        yield Study(name, seen, inside, beyond, names)
    yield from _bloom_studies(folder)


def _bloom_studies(folder: Path) -> Iterator[Study]:
    """BLOOM's trials, divided by the number of devices, and into random halves."""
    rows = bloom(folder / "bloom_a100.csv").rows
    runs = Runs(rows, np.array([row.measured_bytes for row in rows], dtype=float))
    gpus, none = np.array([row.n_gpus for row in rows]), runs.take(np.array([], dtype=np.int64))
    for most in (128, 360):
        seen, beyond = (runs.take(np.flatnonzero(chosen)) for chosen in (gpus <= most, gpus > most))
        yield Study(f"BLOOM to {most} devices", seen, none, beyond, MIXED)
    for seed in range(HALVES):
        order = np.random.default_rng(seed).permutation(len(rows))
        yield Study("BLOOM, random halves", runs.take(order[::2]), runs.take(order[1::2]), none, MIXED)


def fits(study: Study) -> dict[str, Fit]:
    """What is compared, by name."""
    found: dict[str, Fit] = {"formulas, not fitted": analytic, "formulas": fit_physics}
    found["network"] = trained(study.features)
    if study.features != FEATURES:
        found["network, ten features"] = trained(FEATURES)
    return {**found, "network on formulas": on_formulas(study.features)}


def figures(model: Model, study: Study) -> dict[str, float]:
    """Errors inside and beyond, and how the margin holds."""
    (inside, inside_bound), (beyond, beyond_bound) = (_guess(model, runs) for runs in (study.inside, study.beyond))
    error = np.abs(beyond / study.beyond.measured - 1)
    return {
        "MAPE inside %": 100 * _mean(np.abs(inside / study.inside.measured - 1)),
        "MAPE beyond %": 100 * _mean(error),
        "worst beyond %": 100 * float(error.max(initial=0.0)) if len(error) else float("nan"),
        "above bound inside %": 100 * _mean(study.inside.measured > inside_bound),
        "above bound beyond %": 100 * _mean(study.beyond.measured > beyond_bound),
        "refused beyond %": 100 * _mean(beyond_bound > CAPACITY),
    }


def _guess(model: Model, runs: Runs) -> Guess:
    return model(runs) if runs.rows else (np.empty(0), np.empty(0))


def _mean(values: NDArray[Any]) -> float:
    return float(values.mean()) if len(values) else float("nan")


def table(studied: list[Study], networks: int) -> list[dict[str, Any]]:
    """A line for every campaign and model; means over divisions and seeds, of the worst the worst."""
    lines: dict[tuple[str, int, str], list[dict[str, float]]] = defaultdict(list)
    tried = [(study, name, networks if "network" in name else 1) for study in studied for name in fits(study)]
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        for (study, name, _), found in zip(tried, pool.map(_figures, *zip(*tried, strict=True)), strict=True):
            lines[study.name, len(study.seen.rows), name] += found
    return [
        {"campaign": campaign, "runs": runs, "model": name, **_merged(found)}
        for (campaign, runs, name), found in lines.items()
    ]


def _figures(study: Study, name: str, seeds: int) -> list[dict[str, float]]:
    """Figures of a model by name for so many seeds; none where its runs are too few."""
    fit = fits(study)[name]
    with suppress(FormulationError):
        return [figures(fit(study.seen, seed), study) for seed in range(seeds)]
    return []


def _merged(found: list[dict[str, float]]) -> dict[str, Any]:
    if not found:
        return {"MAPE inside %": "too few runs", **dict.fromkeys(COLUMNS[1:], "-")}
    merged = {key: (max if "worst" in key else np.mean)([one[key] for one in found]) for key in COLUMNS}
    return {key: "-" if np.isnan(value) else float(value) for key, value in merged.items()}


def draw(studied: list[Study], path: Path) -> None:
    """
    Predicted against measured memory in four panels.

    The first two are of the mixed synthetic campaign, the third its errors by the number of devices with the training
    range shaded, the last BLOOM's trials.
    """
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(11, 10), layout="constrained")
    synthetic, trials = (next(one for one in studied if one.name == name) for name in (DRAWN, "BLOOM to 360 devices"))
    both: dict[str, Fit] = {"network": trained(MIXED), "formulas": fit_physics}
    models = {name: fit(synthetic.seen, 0) for name, fit in both.items()}
    for axis, (name, model) in zip(axes[0], models.items(), strict=True):
        _scatter(axis, synthetic.beyond, model, ORANGE, f"{LARGE[0]} to {LARGE[-1]} devices")
        _scatter(axis, synthetic.inside, model, BLUE, f"{SMALL[0]} to {SMALL[-1]} devices, unseen")
        _finish(axis, f"{name}, synthetic campaign", synthetic.seen, 3, 250)
    _by_devices(axes[1, 0], synthetic, models)
    for (name, fit), colour in zip(both.items(), (ORANGE, BLUE), strict=True):
        _scatter(axes[1, 1], trials.beyond, fit(trials.seen, 0), colour, f"{name}, 384 devices", size=20)
    _finish(axes[1, 1], "BLOOM's trials, trained on 8 to 360 devices", trials.seen, 15, 150)
    figure.savefig(path, dpi=110)


def _scatter(axis: "Axes", runs: Runs, model: Model, colour: str, label: str, size: int = 3) -> None:
    axis.scatter(runs.measured / GIB, model(runs)[0] / GIB, s=size, color=colour, alpha=0.6, linewidths=0, label=label)


def _finish(axis: "Axes", title: str, seen: Runs, least: float, most: float) -> None:
    """Log axes of equal extent, the line where prediction is measurement, and the memory that training saw."""
    axis.plot([least, most], [least, most], color="black", linewidth=1)
    ends = seen.measured.min() / GIB, seen.measured.max() / GIB
    axis.axvspan(*ends, color="grey", alpha=0.12, label=f"memory of {len(seen.rows)} training runs")
    axis.set(xscale="log", yscale="log", xlim=(least, most), ylim=(least, most), aspect="equal", title=title)
    axis.set(xlabel="measured (GiB)", ylabel="predicted (GiB)")
    ticks = [tick for tick in (5, 10, 20, 40, 80, 160) if least <= tick <= most]
    axis.set_xticks(ticks, [str(tick) for tick in ticks])
    axis.set_yticks(ticks, [str(tick) for tick in ticks])
    axis.minorticks_off()
    axis.legend(loc="upper left")


def _by_devices(axis: "Axes", study: Study, models: dict[str, Model]) -> None:
    """Median error and the range of nine runs in ten, by number of devices."""
    both = Runs(
        [*study.inside.rows, *study.beyond.rows], np.concatenate([study.inside.measured, study.beyond.measured])
    )
    gpus, numbers = np.array([row.n_gpus for row in both.rows]), np.array(SMALL + LARGE)
    for (name, model), colour in zip(models.items(), (ORANGE, BLUE), strict=True):
        error = 100 * (model(both)[0] / both.measured - 1)
        low, middle, high = np.array([np.quantile(error[gpus == number], (0.05, 0.5, 0.95)) for number in numbers]).T
        axis.fill_between(numbers, low, high, color=colour, alpha=0.25, linewidth=0)
        axis.plot(numbers, middle, color=colour, marker="o", label=f"{name}: median, and nine runs in ten")
    axis.axvspan(SMALL[0] * 0.8, SMALL[-1] * 1.2, color="grey", alpha=0.12, label="training range")
    axis.set(xscale="log", xlabel="devices", ylabel="predicted / measured - 1 (%)", title="errors, synthetic campaign")
    axis.set_xticks(numbers, [str(number) for number in numbers])
    axis.minorticks_off()
    axis.legend(loc="upper left")


def main() -> None:
    """Compare, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--write-table", type=Path)
    parser.add_argument("--networks", type=int, default=3)
    options = parser.parse_args()
    studied = list(studies(options.data))
    text = as_table(table(studied, options.networks))
    print(text)
    if options.write_table:
        options.write_table.write_text(text + "\n", encoding="utf-8")
    if options.figure:
        draw(studied, options.figure)


if __name__ == "__main__":
    main()
