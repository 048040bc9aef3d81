"""
Predicted against measured device memory, on public campaigns.

Run ``python -m benchmarks.memory_accuracy DATA [--write-models FILE] [--write-table FILE]``. DATA is a folder with the
campaigns' CSV files (``benchmarks/memory_campaigns.py``); none of them is part of the project. For every campaign the
script fits a memory model, prints the error on unseen runs (cross-validation, five random divisions), how the analytic
model alone errs, the margin (pooled over the campaigns, and its own), how many unseen runs exceed it, how many of the
runs are predicted to fit their devices, and whether those that ended out of memory are refused.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.accuracy import as_table, rounded
from benchmarks.memory_campaigns import STATED, MemoryCampaign, memory_campaigns
from taut.data.arrays import Floats
from taut.data.device import usual_precision
from taut.data.memory import MemoryModel
from taut.data.samples import ConfigurationRow
from taut.data.units import GIB, KIB
from taut.prediction.fitting import memory_model, stage_terms
from taut.prediction.settings import find_device
from taut.solver.calibration.memory import (
    FOLDS,
    REGULARISATIONS,
    conformal_margin,
    cross_validated_errors,
    pooled_margin,
    predicted,
    weights_of,
)

SEEDS, LEVEL = range(5), 0.05
FEW, DRAWS = (4, 6, 8), 400
"""Runs of a campaign that are taken for all there are, and how often."""
ANALYTIC = weights_of(MemoryModel())


@dataclass(frozen=True)
class Fitted:
    """A campaign with its terms (runs, stages, terms), bytes (runs,) and the fit's pull towards the formulas."""

    campaign: MemoryCampaign
    terms: Floats
    measured: Floats
    pull: float

    def errors(self, seed: int = 0) -> Floats:
        """Prediction / measurement - 1 of every run under a fit that has not seen it."""
        return cross_validated_errors(self.terms, self.measured, self.pull, seed=seed)

    def excesses(self, seed: int = 0) -> Floats:
        """Measurement less prediction of every run under a fit that has not seen it, GiB."""
        return np.asarray(self.measured * -self.errors(seed) / GIB)


def fitted(campaign: MemoryCampaign) -> Fitted:
    """A campaign's terms and pull."""
    device = find_device(campaign.rows[0].gpu)
    precision = campaign.rows[0].precision or usual_precision([device])
    terms = stage_terms(campaign.rows, MemoryModel(**campaign.about, device=device.name, precision=precision))
    measured = np.array([row.measured_bytes for row in campaign.rows], dtype=float)
    pull = min(REGULARISATIONS, key=lambda pull: float(np.abs(cross_validated_errors(terms, measured, pull)).mean()))
    return Fitted(campaign, terms, measured, pull)


def study(one: Fitted, others: list[Fitted], beyond: Floats) -> tuple[MemoryModel, dict[str, Any]]:
    """Memory model of a campaign, its errors on unseen runs, and what it says of the runs themselves."""
    campaign = one.campaign
    model = memory_model(campaign.rows, campaign.about, others=[other.excesses() for other in others])
    unseen = np.stack([one.errors(seed) for seed in SEEDS])
    analytic = predicted(one.terms, ANALYTIC) / one.measured - 1
    return model, {
        "campaign": campaign.name,
        "runs": len(one.measured),
        "left out": campaign.left_out,
        "analytic MAPE %": 100 * np.abs(analytic).mean(),
        "analytic bias %": 100 * analytic.mean(),
        "MAPE unseen %": 100 * np.abs(unseen).mean(),
        "largest error %": 100 * np.abs(unseen).max(),
        "margin GiB": model.margin_gib,
        "own margin GiB": conformal_margin(one.excesses(), LEVEL)[0],
        "unseen beyond margin %": 100 * beyond.mean(),
        "ran, within capacity": f"{_within(campaign, campaign.rows, model, 0.0)} of {len(campaign.rows)}",
        "with margin": f"{_within(campaign, campaign.rows, model, 1.0)} of {len(campaign.rows)}",
        "out of memory": refused(campaign, model),
    }


def exceeded(every: list[Fitted]) -> list[Floats]:
    """
    Whether runs of each campaign exceed prediction and margin, over seeds and folds, (seeds runs,).

    The prediction has not seen the run, and the margin is that of the other folds of all campaigns.
    """
    found: list[list[Floats]] = [[] for _ in every]
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        excesses, fold = [one.excesses(seed) for one in every], [rng.permutation(len(one.measured)) for one in every]
        for unseen in range(FOLDS):
            seen = [excess[order % FOLDS != unseen] for excess, order in zip(excesses, fold, strict=True)]
            for index, (excess, order) in enumerate(zip(excesses, fold, strict=True)):
                margin, _ = pooled_margin(seen[index], seen[:index] + seen[index + 1 :], LEVEL)
                found[index].append(excess[order % FOLDS == unseen] > margin)
    return [np.concatenate(parts).astype(float) for parts in found]


def few_runs(every: list[Fitted]) -> list[dict[str, Any]]:
    """Margins from few random runs of a campaign, own and pooled, and how many of its other runs exceed them."""
    rng, excesses = np.random.default_rng(0), [one.excesses() for one in every]
    rows = []
    for index, (one, found) in enumerate(zip(every, excesses, strict=True)):
        others = excesses[:index] + excesses[index + 1 :]
        for count in (count for count in FEW if 2 * count < len(found)):
            orders = [rng.permutation(len(found)) for _ in range(DRAWS)]
            halves = [(found[order[:count]], found[order[count:]]) for order in orders]
            row: dict[str, Any] = {"campaign": one.campaign.name, "runs": count}
            for name, others_of in (("own", []), ("pooled", others)):
                margins = [pooled_margin(seen, others_of, LEVEL)[0] for seen, _ in halves]
                beyond = [(unseen > margin).mean() for margin, (_, unseen) in zip(margins, halves, strict=True)]
                row |= {f"{name} margin GiB": float(np.mean(margins)), f"beyond {name} %": 100 * float(np.mean(beyond))}
            rows.append(row)
    return rows


def _within(campaign: MemoryCampaign, rows: list[ConfigurationRow], model: MemoryModel, margins: float) -> int:
    """How many of the rows a device of the campaign holds with so many margins, as the model predicts."""
    terms, device = stage_terms(rows, model), find_device(campaign.device or model.device)
    weights = weights_of(model)
    most = (device.capacity_kib - margins * model.margin_kib(device.capacity_kib)) * KIB
    return int((predicted(terms, weights) <= most).sum())


def refused(campaign: MemoryCampaign, model: MemoryModel) -> str:
    """How many of the runs that ended out of memory the model refuses."""
    if not campaign.out_of_memory:
        return "-"
    count = len(campaign.out_of_memory)
    return f"{count - _within(campaign, campaign.out_of_memory, model, 1.0)} of {count} refused"


def main() -> None:
    """Fit, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--write-models", type=Path)
    parser.add_argument("--write-table", type=Path)
    options = parser.parse_args()
    every = [fitted(campaign) for campaign in memory_campaigns(options.data)]
    beyond = exceeded(every)
    studied = [study(one, every[:i] + every[i + 1 :], beyond[i]) for i, one in enumerate(every)]
    table = as_table([figures for _, figures in studied])
    print(table, f"\nunseen beyond margin, all runs: {100 * np.concatenate(beyond).mean():.1f} %")
    print(as_table(few_runs(every)))
    if options.write_table:
        options.write_table.write_text(table + "\n", encoding="utf-8")
    if options.write_models:
        written = [*(model for model, _ in studied), *STATED]
        dumped = {model.name: model.model_dump(mode="json", exclude={"name"}, exclude_none=True) for model in written}
        values = {name: rounded(fields) for name, fields in dumped.items()}
        text = yaml.safe_dump(values, sort_keys=False, default_flow_style=None, width=140)
        head = (
            "# Fitted by benchmarks/memory_accuracy.py on public campaigns; coefficients and errors, no measurements.\n"
        )
        options.write_models.write_text(head + text, encoding="utf-8")


if __name__ == "__main__":
    main()
