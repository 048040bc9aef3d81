r"""
Closed-form times of grouped products: of training, measured on one H100, and of inference on other devices.

Run ``python -m benchmarks.grouped_operators DATA [--write FILE]``. DATA is a folder with ``GPU-VERSION.parquet``, the
``moe_perf.parquet`` of TensorRT-LLM by GPU of ai-dynamo/aiconfigurator (Apache-2.0); they are no part of the project.
A row has the milliseconds of experts alone, forward: both products of every expert on a rank, with the traffic of
rows around them. With n tokens, of which k E' / E n go to E' of E experts of width f (1/t of which a rank has), G = E'
groups of :math:`m = k n / E` rows take

(1) the terms of ``taut.data.analytic.operator_times`` (1) for :math:`m \times 2 f` and :math:`m \times h` products,
    G in a kernel, whose coefficients are fitted; and
(2) :math:`2 G m (4 h + 3 f)` bytes at the device's stated share of its memory bandwidth: rows put in order, the
    activation function, and rows put back.

Products are no faster than the peak, so that their coefficient is at least 1. Routing is even. Rows with less than 64
tokens for an expert, tables of minimum latency and layers without gating are left out: training has more. The script
prints the errors on shapes that the fit had not seen and with ``--write`` puts coefficients into the catalog's YAML.

Kernels of training take longer. ``benchmarks/measured/grouped-h100-80gb.csv`` has PyTorch's products and both of their
gradients on H100, on which (1) fitted to inference is 9 to 26 % too fast from 64 tokens an expert on:

(3) devices with H100's chip have the coefficients :math:`c^T` of (1) fitted to that table;
(4) other devices, in half precision, have :math:`\max(0, c + c^T - c^H)`, with c fitted to their own and :math:`c^H` to
    H100's inference: what training adds, in units of peak and bandwidth. Without tables DATA may be ``-``: (3) alone.

Narrower formats keep the coefficients of inference, which hold the casts that training fuses.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.device_measurements import FOLDER
from benchmarks.operator_tables import RECIPES, TABLES, Rows
from benchmarks.operators import _named, _Plain, fit, fit_error
from benchmarks.runs import lines_of
from taut.data.analytic.operator_times import GEMM_TERMS, gemm_terms
from taut.data.arrays import Floats
from taut.data.catalog.devices import catalog_devices
from taut.data.device import Precision
from taut.data.units import MILLISECOND, TERA

FEWEST_ROWS, NARROWEST, FOLDS = 64, 512, 10
FORMATS: dict[str, tuple[Precision, ...]] = {"bfloat16": ("bf16",), **RECIPES}
SHAPE = ["hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size"]
SOURCE = "ai-dynamo/aiconfigurator (Apache-2.0), {table}: {format} MoE of TensorRT-LLM"
TRAINED, ALIKE = "h100-80gb", ("h100-80gb", "gh200-96gb", "h100-96gb", "h800-80gb", "h200-141gb")
"""The device whose grouped products of training were measured, and those with its chip, (3)."""
TRAINING_SOURCE = "benchmarks/measured/grouped-h100-80gb.csv: bf16 grouped_mm of PyTorch, forward and both gradients"
CARRIED_SOURCE = "; and what training adds to inference on h100-80gb"


def table_of(path: Path, kind: str) -> dict[tuple[float, ...], float]:
    """Seconds of the fastest kernel by sizes, in the order of ``SHAPE`` and tokens, of one number format."""
    import pyarrow.parquet

    table, fastest = pyarrow.parquet.read_table(path).to_pylist(), dict[tuple[float, ...], float]()
    for line in table:
        slivers = line["num_tokens"] * line["topk"] < FEWEST_ROWS * line["num_experts"]
        narrow = line["inter_size"] < NARROWEST * line["moe_tp_size"] or line["num_experts"] <= line["moe_ep_size"]
        other = line["moe_dtype"] != kind or line["distribution"] != "balanced"
        if slivers or narrow or other or any(word in line["kernel_source"] for word in ("nongated", "min_latency")):
            continue
        sizes = tuple(float(line[name]) for name in (*SHAPE, "num_tokens"))
        fastest[sizes] = min(line["latency"] * MILLISECOND, fastest.get(sizes, np.inf))
    return fastest


def rows_of(path: Path, kind: str, device_name: str, precision: Precision) -> tuple[Rows, Floats]:
    """Measured layers, and the seconds of their traffic, (1) and (2)."""
    table, device = table_of(path, kind), catalog_devices()[device_name]
    peak, bandwidth = device.peak_flops(precision), device.memory_bandwidth
    assert peak is not None
    sizes = np.array(list(table)).reshape(-1, 7)
    hidden, width, chosen, count, tp, ep, tokens = sizes.T
    rows, groups, width = tokens * chosen / count, count / ep, width / tp
    terms = gemm_terms(rows, 2 * width, hidden, peak, bandwidth, groups)
    terms = terms + gemm_terms(rows, hidden, width, peak, bandwidth, groups)
    traffic = 2 * groups * rows * (4 * hidden + 3 * width) / bandwidth / device.memory_efficiency
    shapes = np.unique(sizes[:, :4], axis=0, return_inverse=True)[1].ravel()
    return Rows(terms, np.array(list(table.values())), 6 * rows * groups * hidden * width, shapes), traffic


def training_rows() -> Rows:
    """Grouped products of training on H100, forward and both gradients, whose shapes are held out by model."""
    device = catalog_devices()[TRAINED]
    rates = device.peak_tflops["bf16"] * TERA, device.memory_bandwidth
    terms, seconds, flop, shapes = [], [], [], []
    for line in lines_of(FOLDER / f"grouped-{TRAINED}.csv"):
        groups, m, n, k = (int(line[name]) for name in ("groups", "tokens", "columns", "sums"))
        if m < FEWEST_ROWS:
            continue
        passes = {"forward_s": (m, n, k), "input_grad_s": (m, k, n), "weight_grad_s": (n, k, m)}
        for name, sizes in passes.items():
            terms.append(gemm_terms(*sizes, *rates, groups))
            seconds.append(float(line[name]))
            flop.append(2.0 * groups * m * n * k)
            shapes.append(line["model"])
    return Rows(np.array(terms), np.array(seconds), np.array(flop), np.array(shapes))


def training_entry() -> dict[str, Any]:
    """Entry of grouped products of training, (3)."""
    rows = training_rows()
    none = np.zeros(len(rows.seconds))
    return {
        "grouped": _named(GEMM_TERMS, fitted(rows, none)),
        "grouped_error": fit_error(rows, unseen_errors(rows, none)),
        "grouped_source": TRAINING_SOURCE,
    }


def with_training(found: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Put grouped products of training in the place of inference, (3) and (4)."""
    entry = training_entry()
    inference = found.get(TRAINED, {}).get("bf16")
    for device, each in found.items():
        if inference is not None and device not in ALIKE and "bf16" in each:
            for term, value in each["bf16"]["grouped"].items():
                more = entry["grouped"][term] - inference["grouped"][term]
                each["bf16"]["grouped"][term] = float(f"{max(0.0, value + more):.4g}")
            each["bf16"]["grouped_source"] += CARRIED_SOURCE
    for device in ALIKE:
        found.setdefault(device, {})["bf16"] = entry


def fitted(rows: Rows, traffic: Floats) -> Floats:
    """Coefficients above the peak's 1 for the products, and above 0, of what the traffic leaves."""
    least = np.eye(len(GEMM_TERMS))[0]
    return np.asarray(least + fit(rows.terms, rows.seconds, 1 - (rows.terms @ least + traffic) / rows.seconds))


def unseen_errors(rows: Rows, traffic: Floats) -> Floats:
    """Relative errors of every row, predicted by a fit that has not seen its shape."""
    shapes = np.random.default_rng(0).permutation(np.unique(rows.shapes))
    errors = np.empty(len(rows.seconds))
    for fold in range(FOLDS):
        unseen = np.isin(rows.shapes, shapes[fold::FOLDS])
        seen = Rows(*(part[~unseen] for part in rows))
        predicted = rows.terms[unseen] @ fitted(seen, traffic[~unseen]) + traffic[unseen]
        errors[unseen] = predicted / rows.seconds[unseen] - 1
    return errors


def entries_of(folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Entries of grouped products by device and precision."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for table, devices in TABLES.items():
        for path in sorted(folder.glob(f"{table}-*.parquet"))[-1:]:
            for kind, precisions in FORMATS.items():
                for device in devices:
                    for precision in precisions:
                        if catalog_devices()[device].peak_flops(precision) is None:
                            continue
                        rows, traffic = rows_of(path, kind, devices[0], precision)
                        if len(rows.seconds):
                            found.setdefault(device, {})[precision] = {
                                "grouped": _named(GEMM_TERMS, fitted(rows, traffic)),
                                "grouped_error": fit_error(rows, unseen_errors(rows, traffic)),
                                "grouped_source": SOURCE.format(table=table, format=kind),
                            }
    return found


def main() -> None:
    """Fit, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    entries = entries_of(options.data)
    with_training(entries)
    for device, each in entries.items():
        for precision, entry in each.items():
            print(device, precision, entry["grouped"], entry["grouped_error"])
    if options.write:
        text = options.write.read_text(encoding="utf-8")
        known = yaml.safe_load(text)
        for device, each in entries.items():
            for precision, entry in each.items():
                home = known[device] if precision == "bf16" else known[device]["recipes"].get(precision)
                if home is not None:
                    home.update(entry)
        head = text[: text.index("\n") + 1]
        body = yaml.dump(known, Dumper=_Plain, sort_keys=False, default_flow_style=None, width=120)
        options.write.write_text(head + body, encoding="utf-8")


if __name__ == "__main__":
    main()
