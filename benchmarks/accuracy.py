"""
Predicted against measured step times, on public campaigns.

Run ``python -m benchmarks.accuracy DATA [--write-calibrations FILE] [--write-table FILE]``. DATA is a folder with the
campaigns' CSV files (``benchmarks/campaigns.py``); none of them is part of the project. For every campaign the script
fits a calibration, prints the error on unseen runs (ten-fold cross-validation and half against half), how many unseen
runs the 80 % band holds, and for groups of plans of one job the regret of the plan that the prediction picks.
"""

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.campaigns import campaigns, checks
from benchmarks.runs import Campaign
from taut.data.arrays import Floats
from taut.data.calibration import HIGH, LOW, Calibration
from taut.data.samples import ConfigurationRow
from taut.prediction.fitting import calibrate, samples_of
from taut.prediction.rows import predict_rows
from taut.prediction.settings import find_device
from taut.solver.calibration.latency import (
    FEWEST,
    Samples,
    Stack,
    cross_validate,
    fit_coefficients,
    stated_coefficients,
)

SEEDS = range(5)
PLANS_OF_A_JOB = 5


def study(campaign: Campaign) -> tuple[Calibration, dict[str, Any]]:
    """Calibration of a campaign and its errors on unseen runs."""
    calibration = calibrate(campaign.rows, campaign.about)
    device, stack = find_device(campaign.rows[0].gpu), Stack(calibration.launch_us or 0.0, calibration.fused_attention)
    runs, stated = samples_of(campaign.rows, device, campaign.about, stack), stated_coefficients(device)
    unseen = np.concatenate([cross_validate(runs, stated, seed=seed) for seed in SEEDS])
    halves = np.concatenate([cross_validate(runs, stated, folds=2, seed=seed) for seed in SEEDS])
    figures = {
        "campaign": campaign.name,
        "runs": len(campaign.rows),
        "left out": campaign.left_out,
        "launch us": round(stack.launch_us),
        "attention": "fused" if stack.fused_attention else "unfused",
        "MAPE 10-fold %": 100 * np.abs(unseen).mean(),
        "MAPE half-half %": 100 * np.abs(halves).mean(),
        "median %": 100 * np.median(np.abs(unseen)),
        "largest error %": 100 * np.abs(unseen).max(),
        "in 80 % band %": 100 * band_coverage(runs, stated),
        **regret(campaign.rows, runs, stated),
    }
    return calibration, figures


def band_coverage(runs: Samples, stated: Floats) -> float:
    """Share of runs of one half inside the band of a calibration fitted on the other half."""
    inside = []
    for seed in SEEDS:
        order = np.random.default_rng(seed).permutation(len(runs.seconds))
        for unseen in (order[::2], order[1::2]):
            half = runs.take(np.setdiff1d(order, unseen))
            errors, coefficients = cross_validate(half, stated), fit_coefficients(half, stated)
            predicted, seconds = runs.terms(coefficients)[unseen] @ coefficients, runs.seconds[unseen]
            low, high = predicted / (1 + np.quantile(errors, HIGH)), predicted / (1 + np.quantile(errors, LOW))
            inside += ((low <= seconds) & (seconds <= high)).tolist()
    return float(np.mean(inside))


def regret(rows: list[ConfigurationRow], runs: Samples, stated: Floats) -> dict[str, Any]:
    """How much slower the plan picked for a job is than the best measured, over jobs with at least five plans."""
    seconds = runs.seconds
    predicted = seconds * (1 + cross_validate(runs, stated))
    jobs: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        jobs[row.n_gpus, row.global_batch, row.hidden, row.layers, row.attention_heads, row.seq].append(index)
    regrets = []
    for members in jobs.values():
        if len(members) >= PLANS_OF_A_JOB:
            picked = min(members, key=lambda index: predicted[index])
            regrets.append(seconds[picked] / seconds[members].min() - 1)
    mean = 100 * float(np.mean(regrets)) if regrets else float("nan")
    return {"jobs": len(regrets), "mean regret %": mean}


def check(campaign: Campaign) -> dict[str, Any]:
    """Errors of a campaign's runs, predicted with the calibration of another."""
    rows = [row.model_copy(update={"stack": campaign.stack}) for row in campaign.rows]
    errors = np.array(
        [
            (found.step_time_s or np.nan) / (row.measured_s or np.nan) - 1
            for row, found in zip(rows, predict_rows(rows), strict=True)
        ]
    )
    return {
        "campaign": campaign.name,
        "runs": len(rows),
        "left out": campaign.left_out,
        "calibration": campaign.stack,
        "MAPE %": 100 * np.abs(errors).mean(),
        "mean error %": 100 * errors.mean(),
        "largest error %": 100 * np.abs(errors).max(),
    }


def main() -> None:
    """Fit, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--write-calibrations", type=Path)
    parser.add_argument("--write-table", type=Path)
    options = parser.parse_args()
    studied = [study(campaign) for campaign in campaigns(options.data) if len(campaign.rows) >= FEWEST]
    table = as_table([figures for _, figures in studied])
    table += "\n\n" + as_table([check(campaign) for campaign in checks(options.data)])
    print(table)
    if options.write_table:
        options.write_table.write_text(table + "\n", encoding="utf-8")
    if options.write_calibrations:
        options.write_calibrations.write_text(as_catalog([found for found, _ in studied]), encoding="utf-8")


def as_catalog(found: list[Calibration]) -> str:
    """The calibrations as the catalog's YAML, figures rounded to six digits."""
    values = {entry.name: rounded(entry.model_dump(exclude={"name"})) for entry in found}
    text = yaml.safe_dump(values, sort_keys=False, default_flow_style=None, width=140)
    return "# Fitted by benchmarks/accuracy.py on public campaigns; coefficients only, no measurements.\n" + text


def rounded(value: Any) -> Any:
    """A plain value with its floats at six digits."""
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(part) for part in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def as_table(rows: list[dict[str, Any]]) -> str:
    """Figures as a Markdown table."""
    names = list(rows[0])
    cells = [[f"{row[name]:.1f}" if isinstance(row[name], float) else str(row[name]) for name in names] for row in rows]
    lines = [names, ["---"] * len(names), *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    main()
