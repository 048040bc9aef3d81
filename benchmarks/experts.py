"""
Predicted against measured step times of models with experts, on Megatron-Bridge's published runs.

Run ``python -m benchmarks.experts DATA [--terms] [--fit] [--write-calibrations FILE]``. DATA is a folder with
``megatron_bridge_h100_b200_gb200.csv`` and ``megatron_bridge_recipes_config.csv``; neither is part of the project. The
script prints every run with its prediction and error, and with ``--terms`` what each term of the step time takes. With
``--fit`` it fits the campaigns of ``benchmarks/expert_rows.py`` and prints the errors of every run under fits that have
not seen it: of ten folds, and of folds by model, each predicted by fits on the other models.
"""

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np

from benchmarks.accuracy import as_catalog
from benchmarks.expert_fitting import calibrate_experts, expert_samples, expert_terms
from benchmarks.expert_rows import ExpertCampaign, ExpertRun, campaigns, expert_runs, left_out
from taut.data.arrays import Floats
from taut.data.calibration import EXPERT_TERMS, Calibration
from taut.data.samples import ConfigurationRow
from taut.prediction.rows import predict_rows
from taut.prediction.settings import find_device
from taut.solver.calibration.latency import Samples, cross_validate, fit_coefficients, stated_coefficients

SHOWN = ("gpu", "n_gpus", "tp", "pp", "vpp", "ep", "micro_batch", "global_batch", "precision", "cuda_graphs")
SEEDS = range(5)


def main() -> None:
    """Predict or fit, print every run, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--terms", action="store_true")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--write-calibrations", type=Path)
    options = parser.parse_args()
    runs = expert_runs(options.data)
    predicted(runs, terms=options.terms)
    if options.fit or options.write_calibrations:
        found = [one for each in (study(campaign) for campaign in campaigns(runs)) for one in each]
        if options.write_calibrations:
            options.write_calibrations.write_text(as_catalog(found), encoding="utf-8")


def predicted(runs: list[ExpertRun], *, terms: bool) -> None:
    """Print runs with their predictions by the catalog's calibrations, and the mean errors by GPU."""
    errors: dict[str, list[float]] = defaultdict(list)
    inside = 0
    for run, one in zip(runs, predict_rows([run.row for run in runs]), strict=True):
        measured = run.row.measured_s or np.nan
        error = (one.step_time_s or np.nan) / measured - 1
        errors[run.row.gpu].append(error)
        low, high = one.band or (np.nan, np.nan)
        inside += low <= measured <= high
        print(f"{described(run)}  {measured:7.3f} s  {100 * error:+6.1f} %  {one.error}{left_out(run)}")
        if terms:
            print("    " + "  ".join(f"{name} {part:.2f}" for name, part in expert_terms(run.row).items()))
    errors["all"] = [error for each in errors.values() for error in each]
    for gpu, each in errors.items():
        print(f"{gpu}: {len(each)} runs, mean {100 * np.mean(each):+.1f} %, MAPE {100 * np.mean(np.abs(each)):.1f} %")
    print(f"{inside} of {len(runs)} runs within the band")


def study(campaign: ExpertCampaign) -> list[Calibration]:
    """Calibrations of a campaign; prints the errors of its runs under fits that have not seen them."""
    rows = [run.row for run in campaign.runs]
    found = calibrate_experts(rows, campaign.about, campaign.launches)
    samples = expert_samples(rows, campaign.about, campaign.launches)
    runs = next(each for stack, each in samples.items() if stack.launch_us == found[0].launch_us)
    stated = stated_coefficients(find_device(rows[0].gpu), EXPERT_TERMS)
    unseen = np.array([cross_validate(runs, stated, seed=seed) for seed in SEEDS])
    apart = by_model(runs, stated, campaign.runs)
    coefficients = ", ".join(f"{name} {value:.2f}" for name, value in found[0].coefficients.items())
    print(f"\n{found[0].name}: {len(rows)} runs, launch {found[0].launch_us} us, {coefficients}")
    print(f"ten folds {100 * np.abs(unseen).mean():.1f} %, median {100 * np.median(np.abs(unseen)):.1f} %, ")
    print(f"other models {100 * np.abs(apart).mean():.1f} %")
    for run, error, other in zip(campaign.runs, unseen.mean(axis=0), apart, strict=True):
        words = f"{100 * error:+6.1f} %  other models {100 * other:+6.1f} %"
        print(f"{described(run)}  {run.row.measured_s:7.3f} s  {words}")
    return found


def by_model(runs: Samples, stated: Floats, given: list[ExpertRun]) -> Floats:
    """Errors of runs, each predicted by a fit on the runs of other models."""
    models, errors = np.array([run.model for run in given]), np.empty(len(given))
    for model in np.unique(models):
        unseen = models == model
        coefficients = fit_coefficients(runs.take(np.flatnonzero(~unseen)), stated)
        errors[unseen] = runs.terms(coefficients)[unseen] @ coefficients / runs.seconds[unseen] - 1
    return errors


def described(run: ExpertRun) -> str:
    """A run in words."""
    return f"{run.model:16} {run.container:8} " + " ".join(_cell(run.row, name) for name in SHOWN)


def _cell(row: ConfigurationRow, name: str) -> str:
    value, short = getattr(row, name), {"micro_batch": "mb", "global_batch": "gb"}.get(name, name)
    if isinstance(value, bool):
        return "graphs" if value else " " * len("graphs")
    return f"{value:8}" if isinstance(value, str) else f"{short} {value:<4}"


if __name__ == "__main__":
    main()
