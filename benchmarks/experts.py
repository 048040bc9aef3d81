"""
Predicted against measured step times of models with experts, on Megatron-Bridge's published runs.

Run ``python -m benchmarks.experts DATA [--terms] [--fit] [--bf16-gradients] [--write-calibrations FILE]``. DATA has
``megatron_bridge_h100_b200_gb200.csv`` and ``megatron_bridge_recipes_config.csv``; neither is part of the project. The
script prints every run with its prediction and error, and with ``--terms`` what each term of the step time takes. With
``--fit`` it fits the campaigns of ``benchmarks/expert_rows.py`` together and prints the coefficients, and the mean
errors of runs under fits that have not seen them: of ten folds, and of folds by model, each predicted by fits on the
others. ``--bf16-gradients`` reads gradients of 2 bytes, as the recipes reduce them.
"""

import argparse
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.accuracy import as_catalog, as_table
from benchmarks.expert_fitting import Fitted, calibrations_of, expert_terms, fit_experts, unseen_errors, unseen_runs
from benchmarks.expert_rows import ExpertRun, campaigns, expert_runs, left_out
from taut.data.arrays import Floats
from taut.data.calibration import EXPERT_TERMS, Calibration
from taut.data.samples import ConfigurationRow
from taut.prediction.rows import predict_rows

SHOWN = ("gpu", "n_gpus", "tp", "pp", "vpp", "ep", "micro_batch", "global_batch", "precision", "cuda_graphs")
MAIN = ("gemm", "attention", "memory", "launch", "exchange")
"""Terms whose coefficients are printed."""


def main() -> None:
    """Predict or fit, print every run, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--terms", action="store_true")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--bf16-gradients", action="store_true")
    parser.add_argument("--write-calibrations", type=Path)
    options = parser.parse_args()
    runs = expert_runs(options.data)
    if options.bf16_gradients:
        runs = [run._replace(row=run.row.model_copy(update={"grad_precision": "bf16"})) for run in runs]
    predicted(runs, terms=options.terms)
    if options.fit or options.write_calibrations:
        found = fit(runs)
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


def fit(runs: list[ExpertRun]) -> list[Calibration]:
    """Calibrations of all campaigns; prints their coefficients, and errors under fits that have not seen the runs."""
    fitted = fit_experts(campaigns(runs))
    errors, apart = unseen_errors(fitted), by_model(fitted)
    ends = np.cumsum([0, *(len(each.runs.seconds) for each in fitted)])
    lines = []
    for each, error, (begin, end) in zip(fitted, errors, pairwise(ends), strict=True):
        terms = zip(EXPERT_TERMS, each.posterior.coefficients, np.diag(each.posterior.covariance), strict=True)
        said = {name: f"{value:.2f} ({100 * variance**0.5:.0f} %)" for name, value, variance in terms if name in MAIN}
        lines.append(
            {
                "calibration": each.campaign.label,
                "runs": end - begin,
                "ten folds %": 100 * float(np.abs(error).mean()),
                "other models %": 100 * float(np.abs(apart[begin:end]).mean()),
                **said,
                "noise %": 100 * each.posterior.noise,
            }
        )
    print("\n" + as_table(lines))
    together = 100 * np.abs(np.concatenate(errors)).mean()
    print(f"together: {len(apart)} runs, ten folds {together:.1f} %, other models {100 * np.abs(apart).mean():.1f} %")
    return [one for each in fitted for one in calibrations_of(each, of_machines(each, fitted, errors))]


def of_machines(each: Fitted, fitted: list[Fitted], errors: list[Floats]) -> Floats:
    """Errors of all runs on the machines of a campaign in its precision, whether their hosts wait or not."""
    alike = [list(each.campaign.runs), list(each.campaign.beside)]
    return np.concatenate([error for one, error in zip(fitted, errors, strict=True) if one.campaign.runs in alike])


def by_model(fitted: list[Fitted]) -> Floats:
    """Errors of runs, each predicted by a fit on the runs of other models."""
    models = np.array([run.model for each in fitted for run in each.campaign.runs])
    errors = np.empty(len(models))
    for model in np.unique(models):
        errors[models == model] = 1 / unseen_runs(fitted, models == model)[0] - 1
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
