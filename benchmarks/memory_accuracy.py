"""
Predicted against measured device memory, on public campaigns.

Run ``python -m benchmarks.memory_accuracy DATA [--write-models FILE] [--write-table FILE]``. DATA is a folder with the
campaigns' CSV files (``benchmarks/memory_campaigns.py``); none of them is part of the project. For every campaign the
script fits a memory model, prints the error on unseen runs (cross-validation, five random divisions), how the analytic
model alone errs, the margin and how many unseen runs exceed it, and whether the runs that ended out of memory are
refused.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.accuracy import as_table, rounded
from benchmarks.memory_campaigns import MemoryCampaign, memory_campaigns
from taut.data.arrays import Floats
from taut.data.memory import MEMORY_TERMS, MemoryModel
from taut.data.units import KIB
from taut.prediction.fitting import memory_model, stage_terms
from taut.prediction.settings import find_device
from taut.solver.calibration.memory import REGULARISATIONS, conformal_margin, cross_validated_errors, predicted

SEEDS, LEVEL = range(5), 0.05
ANALYTIC = np.array([*(1.0 for _ in MEMORY_TERMS), MemoryModel().overhead_bytes])


def study(campaign: MemoryCampaign) -> tuple[MemoryModel, dict[str, Any]]:
    """Memory model of a campaign, and its errors on unseen runs."""
    model = memory_model(campaign.rows, campaign.about)
    device = find_device(model.device)
    terms = stage_terms(campaign.rows, model)
    measured = np.array([row.measured_bytes for row in campaign.rows])
    pull = min(REGULARISATIONS, key=lambda pull: float(np.abs(cross_validated_errors(terms, measured, pull)).mean()))
    unseen = np.stack([cross_validated_errors(terms, measured, pull, seed=seed) for seed in SEEDS])
    analytic = predicted(terms, ANALYTIC) / measured - 1
    return model, {
        "campaign": campaign.name,
        "runs": len(measured),
        "left out": campaign.left_out,
        "analytic MAPE %": 100 * np.abs(analytic).mean(),
        "analytic bias %": 100 * analytic.mean(),
        "MAPE unseen %": 100 * np.abs(unseen).mean(),
        "largest error %": 100 * np.abs(unseen).max(),
        "margin GiB": model.margin_gib,
        "margin % of capacity": 100 * model.margin_gib / device.memory_gib,
        "unseen beyond margin %": 100 * exceeded(terms, measured, pull),
        "out of memory": refused(campaign, model),
    }


def exceeded(terms: Floats, measured: Floats, pull: float) -> float:
    """Share of unseen runs beyond prediction and margin, the margin from the other half's own cross-validation."""
    beyond = []
    for seed in SEEDS:
        errors = cross_validated_errors(terms, measured, pull, seed=seed)
        order = np.random.default_rng(seed).permutation(len(measured))
        for unseen, seen in ((order[::2], order[1::2]), (order[1::2], order[::2])):
            margin, _ = conformal_margin(measured[seen] * -errors[seen], LEVEL)
            beyond += (measured[unseen] * -errors[unseen] > margin).tolist()
    return float(np.mean(beyond))


def refused(campaign: MemoryCampaign, model: MemoryModel) -> str:
    """How many of the runs that ended out of memory the model refuses."""
    if not campaign.out_of_memory:
        return "-"
    device = find_device(model.device)
    terms = stage_terms(campaign.out_of_memory, model)
    weights = np.array([*(model.coefficient(term) for term in MEMORY_TERMS), model.overhead_bytes])
    most = (device.capacity_kib - model.margin_kib(device.capacity_kib)) * KIB
    return f"{int((predicted(terms, weights) > most).sum())} of {len(campaign.out_of_memory)} refused"


def main() -> None:
    """Fit, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--write-models", type=Path)
    parser.add_argument("--write-table", type=Path)
    options = parser.parse_args()
    studied = [study(campaign) for campaign in memory_campaigns(options.data)]
    table = as_table([figures for _, figures in studied])
    print(table)
    if options.write_table:
        options.write_table.write_text(table + "\n", encoding="utf-8")
    if options.write_models:
        values = {model.name: rounded(model.model_dump(mode="json", exclude={"name"})) for model, _ in studied}
        text = yaml.safe_dump(values, sort_keys=False, default_flow_style=None, width=140)
        head = "# Fitted by benchmarks/memory_accuracy.py on public campaigns; coefficients only, no measurements.\n"
        options.write_models.write_text(head + text, encoding="utf-8")


if __name__ == "__main__":
    main()
