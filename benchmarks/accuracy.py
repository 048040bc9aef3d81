"""
Predicted against measured step times, on public campaigns.

Run ``python -m benchmarks.accuracy DATA [--write-calibrations FILE] [--write-table FILE]``. DATA is a folder with the
campaigns' CSV files (``benchmarks/campaigns.py``); none of them is part of the project. For every campaign the script
fits a calibration, prints the error on unseen runs (ten-fold cross-validation and half against half), how many unseen
runs the 80 % band holds, and for groups of plans of one job the regret of the plan that the prediction picks.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.campaigns import campaigns, checks
from benchmarks.runs import Campaign
from taut.data.arrays import Floats
from taut.data.calibration import HIGH, LOW, Calibration, uncalibrated
from taut.data.device import HALF, QUANTIZED, DeviceSpec
from taut.data.samples import ConfigurationRow
from taut.data.seen import Seen
from taut.prediction.fitting import calibrate, samples_of, seen_of
from taut.prediction.rows import predict_rows
from taut.prediction.settings import Given, find_device, setting_of, within_domain
from taut.solver.calibration.latency import (
    ENOUGH,
    FEWEST,
    Samples,
    cross_validate,
    drawn,
    factors_above,
    fit_coefficients,
    plans_of,
    predicted_seconds,
    stack_of,
)

SEEDS = range(5)
PLANS_OF_A_JOB = 5
ENOUGH_FOR_FOLDS = 10


def studies(folder: Path) -> list[tuple[Calibration, dict[str, Any]]]:
    """Every campaign's calibration and errors."""
    found: list[tuple[Calibration, dict[str, Any]]] = []
    for campaign in campaigns(folder):
        if len(campaign.rows) >= FEWEST:
            found.append(study(campaign, pulled_to(campaign, [one for one, _ in found])))
    return found


def pulled_to(campaign: Campaign, known: Iterable[Calibration]) -> Calibration | None:
    """What known fits of the stack say of a campaign in a narrower format, or on many nodes; None without any."""
    fits = [one for one in known if one.stack == campaign.stack and one.name != campaign.name and speaks_for(one)]
    if all(row.precision in QUANTIZED for row in campaign.rows):
        return next(iter(fits), None)
    if all(row.n_gpus > row.gpus_per_node for row in campaign.rows):
        device = find_device(campaign.rows[0].gpu)
        return next((on_many_nodes(one, device) for one in fits if one.nodes == "one"), None)
    return None


def speaks_for(calibration: Calibration) -> bool:
    """Whether a stack's calibration in half precision has enough runs for other fits of the stack, (6)."""
    return calibration.samples >= ENOUGH and calibration.precision in HALF


def on_many_nodes(calibration: Calibration, device: DeviceSpec) -> Calibration:
    """What runs on many nodes are pulled to, of a stack's calibration on one node of the device, (6)."""
    own = {"gemm": calibration["gemm"], "attention": calibration["attention"], "launch": 1.0}
    launch_us = calibration["launch"] * stack_of(calibration).launch_us
    known = {"nodes": "many", "launch_us": launch_us, "coefficients": {**uncalibrated(device).coefficients, **own}}
    return calibration.model_copy(update=known)


def joined(one: Seen, other: Seen) -> Seen:
    """What the runs of both have been."""
    found: dict[str, object] = {}
    for name in Seen.model_fields:
        first, second = getattr(one, name), getattr(other, name)
        if isinstance(first, tuple):
            found[name] = min(first[0], second[0]), max(first[1], second[1])
        elif first is not None or second is not None:
            # Runs that state no ways of mixing tokens have attention alone.
            first, second = (["attention"] if each is None else each for each in (first, second))
            found[name] = [*first, *(kind for kind in second if kind not in first)]
    return one.model_copy(update=found)


def study(campaign: Campaign, like: Calibration | None) -> tuple[Calibration, dict[str, Any]]:
    """Calibration of a campaign and its errors on unseen runs."""
    calibration = calibrate(campaign.rows, campaign.about, like, campaign.towards)
    device, stack = find_device(campaign.rows[0].gpu), stack_of(calibration)
    runs, stated = drawn(samples_of(campaign.rows, device, campaign.about, stack), device, like, campaign.towards)
    factors = bool(calibration.layer_factors)
    unseen = np.concatenate([cross_validate(runs, stated, seed=seed, factors=factors) for seed in SEEDS])
    halves = np.concatenate([cross_validate(runs, stated, folds=2, seed=seed, factors=factors) for seed in SEEDS])
    plans = [cross_validate(runs, stated, seed=seed, factors=factors, plans=True) for seed in SEEDS]
    figures = {
        "campaign": campaign.name,
        "runs": len(campaign.rows),
        "left out": campaign.left_out,
        "launch us": round(stack.launch_us),
        "attention": "fused" if stack.fused_attention else "unfused",
        "MAPE 10-fold %": 100 * np.abs(unseen).mean(),
        "MAPE half-half %": 100 * np.abs(halves).mean(),
        "MAPE other plans %": 100 * np.abs(np.concatenate(plans)).mean(),
        "median %": 100 * np.median(np.abs(unseen)),
        "largest error %": 100 * np.abs(unseen).max(),
        "in 80 % band %": 100 * band_coverage(runs, stated, factors=factors),
        **regret(campaign.rows, runs, stated, factors=factors),
    }
    return calibration, figures


def band_coverage(runs: Samples, stated: Floats, *, factors: bool) -> float:
    """Share of the runs of one half of the plans inside the band of a calibration fitted to the other half."""
    inside, parts = [], plans_of(runs)
    for seed in SEEDS:
        order = np.random.default_rng(seed).permutation(parts.max() + 1)
        for unseen in (np.flatnonzero(np.isin(parts, some)) for some in (order[::2], order[1::2])):
            half = runs.take(np.setdiff1d(np.arange(len(parts)), unseen))
            errors, coefficients = cross_validate(half, stated, plans=True), fit_coefficients(half, stated)
            above = factors_above(half, coefficients) if factors else None
            predicted, seconds = predicted_seconds(runs, coefficients, above)[unseen], runs.seconds[unseen]
            low, high = predicted / (1 + np.quantile(errors, HIGH)), predicted / (1 + np.quantile(errors, LOW))
            inside += ((low <= seconds) & (seconds <= high)).tolist()
    return float(np.mean(inside))


def regret(rows: list[ConfigurationRow], runs: Samples, stated: Floats, *, factors: bool) -> dict[str, Any]:
    """How much slower the plan picked for a job is than the best measured, over jobs with at least five plans."""
    seconds = runs.seconds
    predicted = seconds * (1 + cross_validate(runs, stated, factors=factors))
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


def with_checked(found: Calibration, every: Iterable[Campaign]) -> Calibration:
    """A calibration that has seen the runs of campaigns as well which it predicts."""
    for campaign in every:
        rows = [row.model_copy(update={"stack": campaign.stack}) for row in campaign.rows]
        mine = [row for row in rows if setting_of(within_domain(row), Given()).calibration.name == found.name]
        if mine and found.seen is not None and find_device(mine[0].gpu).name == found.device:
            found = found.model_copy(update={"seen": joined(found.seen, seen_of(mine))})
    return found


def on_cards(found: Calibration, folder: Path) -> list[Calibration]:
    """A campaign's calibration for each of the cards that it is said to be for."""
    cards = next(each.cards for each in campaigns(folder) if each.name == found.name)
    named = [found.model_copy(update={"name": name, "device": device}) for name, device in cards.items()]
    return named or [found]


def check(campaign: Campaign) -> dict[str, Any]:
    """Errors of a campaign's runs, predicted with the calibration of another."""
    rows = [row.model_copy(update={"stack": campaign.stack}) for row in campaign.rows]
    errors = np.array(
        [
            (found.step_time_s or np.nan) / (row.measured_s or np.nan) - 1
            for row, found in zip(rows, predict_rows(rows), strict=True)
        ]
    )
    fitted = ten_folds(rows)
    folds = np.abs(fitted).mean(), np.abs(fitted).max()
    return {
        "campaign": campaign.name,
        "runs": len(rows),
        "left out": campaign.left_out,
        "calibration": campaign.stack,
        "MAPE %": 100 * np.abs(errors).mean(),
        "mean error %": 100 * errors.mean(),
        "largest error %": 100 * np.abs(errors).max(),
        "fitted, 10-fold MAPE %": "-" if np.isnan(folds[0]) else 100 * folds[0],
        "fitted, largest error %": "-" if np.isnan(folds[1]) else 100 * folds[1],
    }


def ten_folds(rows: list[ConfigurationRow]) -> Floats:
    """Errors of runs under fits to nine tenths of them, pulled to the calibration that speaks for them; nan of few."""
    settings = [setting_of(within_domain(row), Given()) for row in rows]
    known = {setting.calibration.name: setting.calibration for setting in settings}
    if len(known) > 1 or len(rows) < ENOUGH_FOR_FOLDS:
        return np.full(1, np.nan)
    like, device = next(iter(known.values())), settings[0].device
    about = {**like.model_dump(), "cluster": ""}
    runs = samples_of([within_domain(row) for row in rows], device, about, stack_of(like))
    return np.concatenate([cross_validate(*drawn(runs, device, like), seed=seed) for seed in SEEDS])


def main() -> None:
    """Fit, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--write-calibrations", type=Path)
    parser.add_argument("--write-table", type=Path)
    options = parser.parse_args()
    studied = studies(options.data)
    table = as_table([figures for _, figures in studied])
    table += "\n\n" + as_table([check(campaign) for campaign in checks(options.data)])
    print(table)
    if options.write_table:
        options.write_table.write_text(table + "\n", encoding="utf-8")
    if options.write_calibrations:
        from benchmarks.published_steps import checked_steps  # It prints its tables by this module.

        every = [*checks(options.data), checked_steps()]
        found = [with_checked(one, every) for fit, _ in studied for one in on_cards(fit, options.data)]
        options.write_calibrations.write_text(as_catalog(found), encoding="utf-8")


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


def _cell(value: Any) -> str:
    """A figure with one decimal, a dash where there is none."""
    if not isinstance(value, float):
        return str(value)
    return "-" if np.isnan(value) else f"{value:.1f}"


def as_table(rows: list[dict[str, Any]]) -> str:
    """Figures as a Markdown table."""
    names = list(rows[0])
    cells = [[_cell(row[name]) for name in names] for row in rows]
    lines = [names, ["---"] * len(names), *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    main()
