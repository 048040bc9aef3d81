"""
Predicted against measured step times, on public campaigns.

Run ``python benchmarks/accuracy.py DATA [--write-calibrations FILE] [--write-table FILE]``. DATA is a folder with the
campaigns' CSV files (``vtrain_single.csv``, ``vtrain_multi.csv``, ``bloom_a100.csv``); none of them is part of the
project. For every campaign the script fits a calibration, prints the error on unseen runs (ten-fold cross-validation
and half against half), how many unseen runs the 80 % band holds, and for groups of plans of one job the regret of the
plan that the prediction picks.
"""

import argparse
import csv
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from taut.data.calibration import HIGH, LOW, TERMS, Calibration, uncalibrated
from taut.data.samples import ConfigurationRow
from taut.errors import DataError
from taut.formulations.terms import step_terms
from taut.predict import columns_of, find_device, machine_of
from taut.solver.fit import cross_validate, fit_calibration, fit_coefficients

Floats = NDArray[np.float64]
SHIPPED = 0.1
"""A calibration with a larger mean error on unseen runs is printed but not written."""


@dataclass(frozen=True)
class Campaign:
    """Measured runs of one stack on one device, and the catalog cluster whose links they used."""

    name: str
    stack: str
    nodes: str
    cluster: str
    source: str
    rows: list[ConfigurationRow]
    left_out: int


def lines_of(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file whose comment lines begin with '#', unless they are the header."""
    text = path.read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in text if not line.startswith("#") or line.startswith("# GPUs")))


def vtrain(path: Path, nodes: str) -> Campaign:
    """VTrain's runs: Megatron-DeepSpeed on A100, fp16, with activation checkpointing."""
    rows = []
    for line in lines_of(path):
        cells = {key.strip().lstrip("# ").lower(): value for key, value in line.items()}
        values: dict[str, Any] = {
            "gpu": "a100-80gb",
            "n_gpus": cells["gpus"],
            "hidden": cells["hidden size"],
            "layers": cells["layers"],
            "heads": cells["attention heads"],
            "seq": cells["sequence length"],
            "tp": cells["tensor parallelism"],
            "pp": cells["pipeline parallelism"],
            "dp": cells["data parallelism"],
            "micro_batch": cells["micro batch"],
            "global_batch": cells["global batch"],
        }
        seconds = float(cells["iteration time (ms)"]) / 1e3
        rows.append({**values, "recompute": "full", "precision": "fp16", "measured_s": seconds})
    kept, left_out = accepted(rows)
    source = f"vTrain (arXiv 2312.12391), {'one node' if nodes == 'one' else 'up to 64 nodes'} of 8 A100"
    return Campaign(
        f"megatron-deepspeed-a100-{nodes}",
        "megatron-deepspeed-a100",
        nodes,
        "vtrain-multi-node",
        source,
        kept,
        left_out,
    )


def bloom(path: Path) -> Campaign:
    """BLOOM's trials on Jean Zay: Megatron-DeepSpeed on A100 80 GB."""
    rows = []
    for line in lines_of(path):
        if not line["sec_per_iter"] or not line["layers"]:
            continue
        vocab = line["vocab"].replace("k", "000").rpartition("_")[2]
        values = {
            "gpu": "a100-80gb",
            "n_gpus": line["n_gpus"],
            "hidden": line["hidden"],
            "layers": line["layers"],
            "heads": line["heads"],
            "seq": line["seq"],
            "vocab": vocab,
            "tp": line["tp"],
            "pp": line["pp"],
            "dp": line["dp"],
            "micro_batch": line["mbs"],
            "global_batch": line["gbs"],
            "zero": line["zero_stage"],
            "precision": line["precision"],
            "recompute": line["recompute"] or "full",
            "measured_s": line["sec_per_iter"],
        }
        rows.append({key: value for key, value in values.items() if value != ""})
    kept, left_out = accepted(rows)
    source = "BigScience tr11-176B chronicles (second iteration of each trial), Jean Zay, 8 A100 80 GB a node"
    return Campaign(
        "megatron-deepspeed-bloom", "megatron-deepspeed-bloom", "any", "vtrain-multi-node", source, kept, left_out
    )


def accepted(rows: list[dict[str, Any]]) -> tuple[list[ConfigurationRow], int]:
    """Rows that are even configurations, and how many are not."""
    kept = []
    for values in rows:
        try:
            kept.append(ConfigurationRow.parse(values, "row"))
        except DataError:
            continue
    return kept, len(rows) - len(kept)


def study(campaign: Campaign) -> tuple[Calibration, dict[str, Any]]:
    """Calibration of a campaign and its errors on unseen runs."""
    device = find_device(campaign.rows[0].gpu)
    precision = campaign.rows[0].precision or "bf16"
    peak = device.peak_flops(precision) or np.nan
    machine = machine_of(campaign.cluster, device, 8, peak)
    terms = step_terms(columns_of(campaign.rows), machine, 2, 2 if precision == "fp16" else 4)
    seconds = np.array([row.measured_s for row in campaign.rows])
    calibration = fit_calibration(
        terms,
        seconds,
        device,
        name=campaign.name,
        stack=campaign.stack,
        nodes=campaign.nodes,
        cluster=campaign.cluster,
        source=campaign.source,
    )
    stated = np.array([uncalibrated(device)[term] for term in TERMS])
    unseen = np.concatenate([cross_validate(terms, seconds, stated, seed=seed) for seed in range(5)])
    halves = np.concatenate([cross_validate(terms, seconds, stated, folds=2, seed=seed) for seed in range(5)])
    figures = {
        "campaign": campaign.name,
        "runs": len(seconds),
        "left out": campaign.left_out,
        "MAPE 10-fold %": 100 * np.abs(unseen).mean(),
        "MAPE half-half %": 100 * np.abs(halves).mean(),
        "largest error %": 100 * np.abs(unseen).max(),
        "in 80 % band %": 100 * band_coverage(terms, seconds, stated),
        **regret(campaign.rows, terms, seconds, stated),
    }
    return calibration, figures


def band_coverage(terms: Floats, seconds: Floats, stated: Floats) -> float:
    """Share of runs of one half inside the band of a calibration fitted on the other half."""
    inside = []
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(seconds))
        for unseen in (order[::2], order[1::2]):
            seen = np.setdiff1d(order, unseen)
            errors = cross_validate(terms[seen], seconds[seen], stated)
            predicted = terms[unseen] @ fit_coefficients(terms[seen], seconds[seen], stated)
            low, high = predicted / (1 + np.quantile(errors, HIGH)), predicted / (1 + np.quantile(errors, LOW))
            inside += ((low <= seconds[unseen]) & (seconds[unseen] <= high)).tolist()
    return float(np.mean(inside))


def regret(rows: list[ConfigurationRow], terms: Floats, seconds: Floats, stated: Floats) -> dict[str, Any]:
    """How much slower the plan picked for a job is than the best measured, over jobs with at least five plans."""
    errors = cross_validate(terms, seconds, stated)
    predicted = seconds * (1 + errors)
    jobs: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        jobs[row.n_gpus, row.global_batch, row.hidden, row.layers, row.attention_heads, row.seq].append(index)
    regrets = []
    for members in jobs.values():
        if len(members) >= 5:
            picked = min(members, key=lambda index: predicted[index])
            regrets.append(seconds[picked] / seconds[members].min() - 1)
    mean = 100 * float(np.mean(regrets)) if regrets else float("nan")
    return {"jobs": len(regrets), "mean regret %": mean}


def main() -> None:
    """Fit, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--write-calibrations", type=Path)
    parser.add_argument("--write-table", type=Path)
    options = parser.parse_args()
    campaigns = [
        vtrain(options.data / "vtrain_single.csv", "one"),
        vtrain(options.data / "vtrain_multi.csv", "many"),
        bloom(options.data / "bloom_a100.csv"),
    ]
    studied = [study(campaign) for campaign in campaigns]
    table = as_table([figures for _, figures in studied])
    print(table)
    if options.write_table:
        options.write_table.write_text(table + "\n", encoding="utf-8")
    if options.write_calibrations:
        values = {
            found.name: found.model_dump(exclude={"name"})
            for found, _ in studied
            if found.mape and found.mape < SHIPPED
        }
        rounded = yaml.safe_dump(values, sort_keys=False, default_flow_style=None, width=120)
        head = "# Fitted by benchmarks/accuracy.py on public campaigns; coefficients only, no measurements.\n"
        options.write_calibrations.write_text(head + rounded, encoding="utf-8")


def as_table(rows: list[dict[str, Any]]) -> str:
    """Figures as a Markdown table."""
    names = list(rows[0])
    cells = [[f"{row[name]:.1f}" if isinstance(row[name], float) else str(row[name]) for name in names] for row in rows]
    lines = [names, ["---"] * len(names), *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    main()
