r"""
Calibrations of dense models on Blackwell, of Megatron-Bridge's published runs, and their errors on MLPerf's.

Run ``python -m benchmarks.blackwell DATA [--write-calibrations FILE]``. DATA is a folder with the campaigns' files
(``benchmarks/campaigns.py``). All Blackwell devices share the coefficients of a precision, pulled to NeMo's in fp8 on
H100 (``taut.solver.calibration.latency`` (6)): few runs are of one device. Errors of unseen runs are those of models
that the fit has not seen, and of devices that it has not seen; the larger half of both makes the band. MLPerf's runs
are in no fit.

No dense run on Blackwell in half precision is public, so its coefficients are put together:

(1) products take as much longer in steps than kernels of training measured alone as they do on H100
    (``taut.data.stack.borrowed``), and so does attention where the device's kernels of training were measured;
(2) communication is that of runs in fp8, over the same links; traffic, launches and the optimizer are NeMo's in bf16;
(3) the band is that of the runs in narrower formats, and these runs are all that was seen.
"""

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy import as_catalog, as_table
from benchmarks.campaigns import megatron_bridge_blackwell
from benchmarks.mlperf import BLACKWELL, mlperf
from benchmarks.runs import Campaign
from taut.data.arrays import Floats
from taut.data.calibration import FP8_GATHERS, KEPT, LAYER_GRAPHS, STEP_GRAPH, TERMS, Calibration
from taut.data.catalog.builtin import catalog_calibrations
from taut.data.device import Precision
from taut.data.samples import ConfigurationRow
from taut.data.stack import borrowed
from taut.prediction.fitting import gather_slowdown_of, samples_of, seen_of
from taut.prediction.rows import predict_rows
from taut.prediction.settings import default_cluster, find_device
from taut.solver.calibration.latency import (
    ALIKE,
    QUANTILES,
    Samples,
    fit_coefficients,
    outer_quantile,
    predicted_seconds,
    stack_of,
)

LIKE, HALF_LIKE = "nemo-h100-fp8", "nemo-h100-bf16"
DEVICES = ("b200", "b300", "gb200", "gb300")
GATHERS: dict[str, tuple[str, ...]] = dict.fromkeys(("fp8", "mxfp8"), (FP8_GATHERS,))
"""Formats whose recipes gather weights in fp8 (Megatron-Bridge's ``mixed_precision.py``)."""
PRECISIONS: tuple[Precision, ...] = ("fp8", "mxfp8", "nvfp4")
GRAPHS = {("nvfp4", "b200"): LAYER_GRAPHS, ("nvfp4", "gb200"): LAYER_GRAPHS}
"""
CUDA graphs of dense models in one stage where they are not of whole steps.

Megatron-Bridge's recipes of August 2026 record whole steps of Llama 3 8B on all four devices in bf16, fp8 and mxfp8,
and on GB300 in nvfp4 (``perf_recipes/llama``). MLPerf's runs of 8B in nvfp4 (v5.1) record whole steps on B300 and
layers on the others. Recipes in fp8 and narrower formats with several stages record nothing, nor do Megatron-FSDP's.
"""
LINKS = ("tensor_parallel", "pipeline", "data_parallel", "gather")


def samples_together(rows: list[ConfigurationRow], about: dict[str, Any], like: Calibration) -> Samples:
    """Runs on several devices as the samples of one fit, whose products are no faster than any device's."""
    parts = []
    for gpu in sorted({row.gpu for row in rows}):
        mine = [index for index, row in enumerate(rows) if row.gpu == gpu]
        parts.append((mine, samples_of([rows[index] for index in mine], find_device(gpu), about, stack_of(like))))
    seconds = np.array([row.measured_s for row in rows], dtype=float)

    def terms(coefficients: Floats) -> Floats:
        found = np.empty((len(rows), len(TERMS)))
        for mine, part in parts:
            found[mine] = part.terms(coefficients)
        return found

    return Samples(terms, seconds, np.max([part.floors for _, part in parts], axis=0), ALIKE)


def unseen_errors(runs: Samples, groups: list[Any], stated: Floats) -> Floats:
    """Prediction / measurement - 1 of runs under fits without their group's, those of the pull alone without others."""
    errors, which = np.empty(len(groups)), np.array([str(group) for group in groups])
    for group in np.unique(which):
        kept, mine = np.flatnonzero(which != group), which == group
        found = fit_coefficients(runs.take(kept), stated) if len(kept) else stated
        errors[mine] = (predicted_seconds(runs, found, None) / runs.seconds - 1)[mine]
    return errors


def fits(campaign: Campaign) -> tuple[list[Calibration], list[dict[str, Any]]]:
    """Calibrations of all devices, and a line of errors for each precision."""
    like = catalog_calibrations()[LIKE]
    about = {**campaign.about, "cluster": ""}
    stated, found, lines, unseen = np.array([like[term] for term in TERMS]), [], [], []
    for precision in PRECISIONS:
        rows = [row for row in campaign.rows if row.precision == precision]
        runs = samples_together(rows, about, like)
        coefficients = fit_coefficients(runs, stated)
        apart = [unseen_errors(runs, [getattr(row, name) for row in rows], stated) for name in ("layers", "gpu")]
        errors = np.concatenate(apart)
        unseen.append(errors)
        fitted = dict(zip(TERMS, coefficients.tolist(), strict=True))
        shown = {**stack_of(like)._asdict(), **{name: campaign.about[name] for name in KEPT if name in campaign.about}}
        found += [_calibration(campaign, gpu, precision, rows, fitted, errors, shown) for gpu in DEVICES]
        before, after = (
            100 * np.abs(predicted_seconds(runs, one, None) / runs.seconds - 1).mean() for one in (stated, coefficients)
        )
        lines.append(
            {"precision": precision, "runs": len(rows), "with H100's losses %": before, "fitted %": after}
            | {
                f"other {name} %": 100 * np.abs(one).mean()
                for name, one in zip(("models", "devices"), apart, strict=True)
            }
            | {name: f"{fitted[name]:.2f}" for name in ("gemm", "attention", "memory", "launch", *LINKS)}
        )
    return [*in_half_precision(campaign, found, np.concatenate(unseen)), *found], lines


def _calibration(
    campaign: Campaign,
    gpu: str,
    precision: Precision,
    rows: list[ConfigurationRow],
    coefficients: dict[str, float],
    errors: Floats,
    shown: dict[str, Any],
) -> Calibration:
    device, mine = find_device(gpu), sum(row.gpu == gpu for row in rows)
    kept = {term: each for term, each in coefficients.items() if term != "gather" or any(row.zero >= 2 for row in rows)}
    none = "" if mine else f", none on {gpu.upper()}"
    return Calibration.model_validate(
        {
            **{name: value for name, value in campaign.about.items() if name in KEPT},
            **shown,
            "name": f"{campaign.stack}-{precision}-{gpu}",
            "stack": campaign.stack,
            "device": device.name,
            "features": [*campaign.features, GRAPHS.get((precision, gpu), STEP_GRAPH), *GATHERS.get(precision, ())],
            "precision": precision,
            "cluster": default_cluster(device),
            "gather_slowdown": gather_slowdown_of(rows),
            "coefficients": kept,
            "residuals": {str(q): outer_quantile(errors, q) for q in QUANTILES},
            "samples": len(rows),
            "mape": float(np.abs(errors).mean()),
            "seen": seen_of(rows),
            "source": f"{campaign.source}, dense models on Blackwell{none}; the band is of models and devices left out",
        }
    )


def in_half_precision(campaign: Campaign, found: list[Calibration], errors: Floats) -> list[Calibration]:
    """Calibrations in half precision, (1) to (3), which have no run."""
    links = next(one for one in found if one.precision == "fp8")
    calibrations = []
    for gpu in DEVICES:
        device = find_device(gpu)
        like = borrowed(catalog_calibrations()[HALF_LIKE], [device], "bf16")
        own = next(one for one in found if one.device == device.name)
        words = "no run in bf16 or fp16: products as kernels of training take them, traffic and launches of "
        calibrations.append(
            own.model_copy(
                update={
                    "name": f"{campaign.stack}-bf16-{gpu}",
                    "features": [one for one in own.features if one != FP8_GATHERS],
                    "precision": "bf16",
                    "coefficients": {**like.coefficients, **{term: links[term] for term in LINKS}},
                    "residuals": {str(q): outer_quantile(errors, q) for q in QUANTILES},
                    "samples": len(campaign.rows),
                    "mape": float(np.abs(errors).mean()),
                    "seen": seen_of(campaign.rows),
                    "source": f"{words}{HALF_LIKE}, links and band of {campaign.source} in narrower formats",
                }
            )
        )
    return calibrations


def check(rows: list[ConfigurationRow]) -> list[dict[str, Any]]:
    """Errors of runs by device, model and precision, as the catalog's calibrations predict them."""
    groups = defaultdict(list)
    for row, each in zip(rows, predict_rows(rows), strict=True):
        measured, (low, high) = row.measured_s or np.nan, each.band or (np.nan, np.nan)
        groups[row.layers, row.gpu, row.precision].append(
            ((each.step_time_s or np.nan) / measured - 1, low <= measured <= high)
        )
    lines = []
    for (layers, gpu, precision), found in sorted(groups.items()):
        errors = np.array([error for error, _ in found])
        lines.append(
            {"layers": layers, "GPU": gpu.upper(), "precision": precision, "runs": len(errors)}
            | {"mean error %": 100 * errors.mean(), "MAPE %": 100 * np.abs(errors).mean()}
            | {"in the band %": 100 * float(np.mean([inside for _, inside in found]))}
        )
    return lines


def main() -> None:
    """Fit, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--write-calibrations", type=Path)
    options = parser.parse_args()
    campaign = megatron_bridge_blackwell(options.data / "megatron_bridge_h100_b200_gb200.csv")
    found, lines = fits(campaign)
    print(as_table(lines))
    for rows in (mlperf(options.data / "mlperf_dense.csv", BLACKWELL).rows, campaign.rows):
        print("\n" + as_table(check(rows)))
    if options.write_calibrations:
        options.write_calibrations.write_text(as_catalog(found), encoding="utf-8")


if __name__ == "__main__":
    main()
